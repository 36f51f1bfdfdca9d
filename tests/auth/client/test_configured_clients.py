"""Configured client credentials, which are sent only to the issuer that they belong to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import EnterpriseLogin, OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError
from tests.support.scripted_provider import (
    ScriptedProvider,
    request,
    responding,
    scripted_provider,
)

SECRET = "configured-secret"
CREDENTIALS = {
    "authorization_code": OAuthSettings(client_id="c", client_secret=SECRET),
    "device_code": OAuthSettings(grant="device_code", client_id="c", client_secret=SECRET),
    "client_credentials": OAuthSettings(
        grant="client_credentials", client_id="c", client_secret=SECRET
    ),
    "jwt_bearer": OAuthSettings(grant="jwt_bearer", assertion=SECRET),
    "jwt_bearer with a client": OAuthSettings(
        grant="jwt_bearer", assertion=SECRET, client_id="c", client_secret=SECRET
    ),
    "enterprise": OAuthSettings(
        grant="enterprise",
        client_id="c",
        client_secret=SECRET,
        enterprise=EnterpriseLogin(
            token_endpoint="https://idp.invalid/token", client_id="idp", id_token=SECRET
        ),
    ),
}
GRANTS = pytest.mark.parametrize("grant", CREDENTIALS)
WITHOUT_USER = pytest.mark.parametrize("grant", ["client_credentials", "jwt_bearer"])


@asynccontextmanager
async def two_providers() -> AsyncIterator[tuple[ScriptedProvider, ScriptedProvider]]:
    """Run a server with its authorization server, and a foreign authorization server."""
    async with scripted_provider() as own, scripted_provider() as foreign:
        yield own, foreign


def received(provider: ScriptedProvider) -> bool:
    """Return True if a provider has received the secret, or a request that is not for metadata."""
    text = "".join(f"{call.path} {call.headers} {call.body!r}" for _, call in provider.calls)
    return SECRET in text or set(provider.steps) - {"metadata"} != set()


@GRANTS
async def test_configured_credentials_are_not_sent_to_another_issuer(grant: str) -> None:
    async with two_providers() as (own, foreign):
        own.protected = {"authorization_servers": [foreign.issuer]}
        settings = replace(CREDENTIALS[grant], issuer=own.issuer)
        authorizer = OAuthAuthorizer(own.url, settings, authorize=own.user())
        with pytest.raises(AuthorizationError) as caught:
            await request(own, authorizer)
        text = str(caught.value)
        assert own.issuer in text
        assert foreign.issuer in text
        assert "`issuer`" in text
        assert not received(foreign)
        assert own.steps["token"] == 0


@GRANTS
async def test_the_configured_issuer_is_chosen_among_several_issuers_of_a_server(
    grant: str,
) -> None:
    if grant in ("device_code", "enterprise"):
        pytest.skip("needs more than the scripted provider")
    async with two_providers() as (own, foreign):
        own.protected = {"authorization_servers": [foreign.issuer, own.issuer]}
        settings = replace(CREDENTIALS[grant], issuer=own.issuer)
        authorizer = OAuthAuthorizer(own.url, settings, authorize=own.user())
        assert (await request(own, authorizer))[0] == 200
        assert foreign.calls == []


@WITHOUT_USER
@pytest.mark.parametrize("restarted", [False, True])
async def test_configured_credentials_are_sent_only_to_the_issuer_of_the_first_login(
    grant: str, restarted: bool
) -> None:
    async with two_providers() as (own, foreign):
        store = MemoryCredentialStore()
        authorizer = OAuthAuthorizer(own.url, CREDENTIALS[grant], store=store)
        own.token = {"refresh_token": None}
        assert (await request(own, authorizer))[0] == 200
        own.protected = {"authorization_servers": [foreign.issuer]}
        own.refused.add("access-1")
        if restarted:
            authorizer = OAuthAuthorizer(own.url, CREDENTIALS[grant], store=store)
        with pytest.raises(AuthorizationError, match="configure.*`issuer`"):
            await request(own, authorizer)
        assert not received(foreign)


async def test_a_renewal_uses_the_current_client_secret_of_the_settings() -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        provider.token = {"expires_in": 0}
        before = OAuthSettings(client_id="c", client_secret="old")
        authorizer = OAuthAuthorizer(provider.url, before, store=store, authorize=provider.user())
        await authorizer.log_in()
        provider.token = {}
        provider.refused.add("access-1")
        after = replace(before, client_secret="new")
        assert (await request(provider, OAuthAuthorizer(provider.url, after, store=store)))[
            0
        ] == 200
        assert [form["client_secret"] for form in provider.forms()] == ["old", "new"]


@pytest.mark.parametrize(
    "other",
    [
        OAuthSettings(client_id="another", client_secret="new"),
        OAuthSettings(client_id="c", client_secret="new", issuer="https://another.example"),
    ],
)
async def test_a_renewal_does_not_use_the_secret_of_another_client(other: OAuthSettings) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        provider.token = {"expires_in": 0}
        before = OAuthSettings(client_id="c", client_secret="old")
        await OAuthAuthorizer(provider.url, before, store=store, authorize=provider.user()).log_in()
        provider.scripts["token"] = responding(400, '{"error": "invalid_client"}')
        with pytest.raises(AuthorizationError, match="invalid_client"):
            await OAuthAuthorizer(provider.url, other, store=store).access_token()
        assert [form["client_secret"] for form in provider.forms()] == ["old", "old"]
