"""Dynamic registrations: reuse, replacement after a refusal, and the choice of the issuer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError, LoginRequired
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import (
    ScriptedProvider,
    request,
    responding,
    scripted_provider,
)


def refusing(
    provider: ScriptedProvider, client: bytes, status: int, body: str
) -> Callable[[Call], Awaitable[None]]:
    """Return a script that refuses one client at the token endpoint."""

    async def token(call: Call) -> None:
        if b"client_id=" + client in call.body:
            await call.answer(status, body, Content_Type="application/json")
        else:
            await provider._token(call)

    return token


async def log_in(provider: ScriptedProvider, store: MemoryCredentialStore, **options: Any) -> Any:
    user = provider.user()
    return await OAuthAuthorizer(provider.url, store=store, authorize=user, **options).log_in()


REFUSALS = {
    "422": (422, '{"message": "unknown client"}'),
    "400": (400, ""),
    "401": (401, "<h1>Unauthorized</h1>"),
    "403": (403, "null"),
    "404": (404, ""),
    "invalid_client": (401, '{"error": "invalid_client"}'),
}


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_stored_registration_that_is_refused_is_replaced_once(kind: str) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in(provider, store)
        provider.scripts["token"] = refusing(provider, b"client-1", *REFUSALS[kind])
        login = await log_in(provider, store)
        assert (login.client.client_id, provider.steps["register"]) == ("client-2", 2)
        await log_in(provider, store)
        assert provider.steps["register"] == 2


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_new_registration_that_is_refused_is_not_replaced(kind: str) -> None:
    async with scripted_provider() as provider:
        provider.scripts["token"] = refusing(provider, b"client-1", *REFUSALS[kind])
        with pytest.raises(AuthorizationError):
            await log_in(provider, MemoryCredentialStore())
        assert (provider.steps["register"], len(provider.visits)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "body"),
    [(400, '{"error": "invalid_grant"}'), (503, ""), (200, "<h1>Wi-Fi</h1>"), (302, "")],
)
async def test_a_stored_registration_is_kept_unless_the_server_rejects_the_client(
    status: int, body: str
) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in(provider, store)
        provider.scripts["token"] = responding(status, body)
        with pytest.raises(AuthorizationError):
            await log_in(provider, store)
        assert provider.steps["register"] == 1


async def test_a_pushed_request_that_names_an_unknown_client_replaces_the_registration() -> None:
    async with scripted_provider() as provider:
        provider.metadata = {"require_pushed_authorization_requests": True}
        store = MemoryCredentialStore()
        store.save_registration(provider.issuer, "loopback /callback", await registered(provider))

        async def par(call: Call) -> None:
            if b"client_id=client-1" in call.body:
                await call.json({"error": "invalid_client"}, 401)
            else:
                await call.json({"error": "invalid_request"}, 400)

        provider.scripts["par"] = par
        with pytest.raises(AuthorizationError, match="invalid_request") as caught:
            await log_in(provider, store)
        assert (caught.value.error, provider.steps["register"]) == ("invalid_request", 2)


async def registered(provider: ScriptedProvider) -> Any:
    """Return the first registration at a provider."""
    provider.metadata["require_pushed_authorization_requests"] = False
    store = MemoryCredentialStore()
    client = (await log_in(provider, store)).client
    provider.metadata["require_pushed_authorization_requests"] = True
    return client


async def test_a_login_page_that_never_redirects_names_the_option_that_registers_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.auth.client.interactive_login.LOGIN_TIMEOUT", 0.1)
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        await log_in(provider, store)

        async def never(_: Any) -> str:
            await asyncio.get_running_loop().create_future()
            return ""

        authorizer = OAuthAuthorizer(provider.url, store=store, authorize=never)
        with pytest.raises(AuthorizationError, match="--new-client"):
            await authorizer.log_in()
        # The server may have deleted the registration, and its page shows only an error.
        assert (await log_in(provider, store)).client.client_id == "client-2"


@pytest.mark.parametrize("code", ["invalid_client", "unauthorized_client"])
async def test_a_renewal_that_names_an_unknown_client_keeps_the_login(code: str) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        provider.token = {"expires_in": 0}
        login = await log_in(provider, store)
        provider.token = {}
        provider.scripts["token"] = responding(401, f'{{"error": "{code}"}}')
        authorizer = OAuthAuthorizer(provider.url, store=store, remedy="run `login`")
        with pytest.raises(LoginRequired, match="no longer knows this program.*: run `login`"):
            await request(provider, authorizer)
        assert store.logins() == [login]
        # If the server accepts the client again, renewals succeed; the next login registers anyway.
        del provider.scripts["token"]
        again = OAuthAuthorizer(provider.url, store=store)
        assert (await request(provider, again))[0] == 200
        assert (await log_in(provider, store)).client.client_id == "client-2"


async def test_a_renewal_that_names_an_unknown_client_leads_to_a_login_if_possible() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        provider.token = {"expires_in": 0}
        await log_in(provider, store)
        provider.token = {}
        provider.refused.add("access-1")
        body = '{"error": "invalid_client"}'
        provider.scripts["token"] = refusing(provider, b"client-1", 401, body)
        authorizer = OAuthAuthorizer(provider.url, store=store, authorize=provider.user())
        assert (await request(provider, authorizer))[0] == 200
        assert store.logins()[0].client.client_id == "client-2"


async def test_a_newer_registration_of_another_program_is_not_deleted() -> None:
    """Another process may have registered again before this one notices the refusal."""
    async with scripted_provider() as provider:
        store, newer = MemoryCredentialStore(), MemoryCredentialStore()
        provider.token = {"expires_in": 0}
        await log_in(provider, store)
        client = (await log_in(provider, newer)).client
        provider.token = {}
        key = (provider.issuer, "loopback /callback")
        store.save_registration(*key, client)
        provider.scripts["token"] = responding(401, '{"error": "invalid_client"}')
        with pytest.raises(LoginRequired):
            await request(provider, OAuthAuthorizer(provider.url, store=store))
        assert store.load_registration(*key) == client


@pytest.mark.parametrize("held", ["nothing", "registration", "configured issuer"])
async def test_an_issuer_at_which_the_client_is_registered_is_preferred(held: str) -> None:
    async with scripted_provider() as provider, scripted_provider() as other:
        store = MemoryCredentialStore()
        settings = OAuthSettings()
        if held == "registration":
            await log_in(other, store)
        elif held == "configured issuer":
            settings = OAuthSettings(client_id="mine", issuer=other.issuer)
        provider.protected = {"authorization_servers": [provider.issuer, other.issuer]}
        expected = provider if held == "nothing" else other
        user = expected.user()
        authorizer = OAuthAuthorizer(provider.url, settings, store=store, authorize=user)
        assert (await authorizer.log_in()).issuer == expected.issuer
