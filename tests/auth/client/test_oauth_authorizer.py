"""Logins and renewals of a client at a real authorization server."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.auth.client.interactive_login import DeviceCode, LoginPrompt
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError, HttpError, LoginRequired
from tests.support.oidc_provider import Provider, confirm_code, running_provider, visit
from tests.support.protected_server import ProtectedServer, protected_server
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import request, scripted_provider

LIMIT = 60.0
SERVICE = {
    "client_id": "service",
    "client_secret": "a-secret",
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
}


@asynccontextmanager
async def protected(**options: Any) -> AsyncIterator[tuple[Provider, ProtectedServer]]:
    async with (
        asyncio.timeout(LIMIT),
        running_provider(**options) as provider,
        protected_server(provider.issuer) as server,
    ):
        yield provider, server


async def add(server: ProtectedServer, authorizer: OAuthAuthorizer) -> Any:
    async with MCPClient.connect_http(server.url, http={"authorizer": authorizer}) as client:
        return (await client.call("add", {"a": 1, "b": 2})).text


async def test_one_login_is_used_for_all_requests_of_a_client() -> None:
    async with protected() as (provider, server):
        authorizer = OAuthAuthorizer(server.url, authorize=provider.user())
        assert await add(server, authorizer) == "3"
        assert len(provider.visits) == 1
        assert await provider.counts() == {"authorization_code 200": 1}


async def test_a_stored_login_is_used_without_asking_the_user_again() -> None:
    async with protected() as (provider, server):
        store = MemoryCredentialStore()
        first = OAuthAuthorizer(server.url, store=store, authorize=provider.user())
        await add(server, first)
        server.tokens.clear()
        assert await add(server, OAuthAuthorizer(server.url, store=store)) == "3"
        assert None not in server.tokens


@pytest.mark.covers("AUT-03")
async def test_an_expired_token_is_renewed_once_for_many_calls() -> None:
    async with protected(ttl=1) as (provider, server):
        authorizer = OAuthAuthorizer(server.url, authorize=provider.user())
        async with MCPClient.connect_http(server.url, http={"authorizer": authorizer}) as client:
            results = await asyncio.gather(
                *(client.call("add", {"a": number, "b": 1}) for number in range(20))
            )
        assert [result.text for result in results] == [str(n + 1) for n in range(20)]
        assert len(provider.visits) == 1
        counts = await provider.counts()
        # Each renewal is shared by all calls that wait for it.
        assert counts["authorization_code 200"] == 1
        assert set(counts) <= {"authorization_code 200", "refresh_token 200"}


@pytest.mark.covers("AUT-03")
async def test_a_token_that_the_server_refuses_is_renewed() -> None:
    async with protected() as (provider, server):
        authorizer = OAuthAuthorizer(server.url, authorize=provider.user())
        await add(server, authorizer)
        server.revoked.add(str(server.tokens[-1]))
        assert await add(server, authorizer) == "3"
        assert await provider.counts() == {"authorization_code 200": 1, "refresh_token 200": 1}


@pytest.mark.covers("AUT-04")
async def test_a_request_for_more_scopes_includes_the_scopes_of_the_current_login() -> None:
    async with protected() as (provider, server):
        authorizer = OAuthAuthorizer(server.url, authorize=provider.user())
        await add(server, authorizer)
        server.required = {"mcp:write"}
        assert await add(server, authorizer) == "3"
        assert {"mcp:basic", "mcp:write"} <= set(provider.visits[-1].scopes)
        assert len(provider.visits) == 2


async def test_many_tools_may_each_require_a_different_scope() -> None:
    async with scripted_provider() as provider:
        held: dict[str, set[str]] = {}

        async def check(call: Call) -> None:
            token = call.headers.get("authorization", "").partition(" ")[2]
            if token not in provider.accepted:
                await provider._mcp(call)
                return
            held.setdefault(token, set(provider.visits[-1].scopes))
            if needed in held[token]:
                await call.json({"scope": needed})
            else:
                value = f'Bearer error="insufficient_scope", scope="{needed}"'
                await call.answer(403, "{}", WWW_Authenticate=value)

        provider.scripts["mcp"] = check
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        for number in range(6):
            needed = f"tool:{number}"
            assert await request(provider, authorizer) == (200, {"scope": needed})
        assert provider.visits[-1].scopes == tuple(f"tool:{number}" for number in range(6))


async def test_scopes_that_are_never_granted_are_requested_once() -> None:
    async with protected() as (provider, server):
        authorizer = OAuthAuthorizer(server.url, authorize=provider.user())
        await add(server, authorizer)
        server.required = {"mcp:unknown"}
        for _ in range(3):
            with pytest.raises((HttpError, AuthorizationError)):
                await add(server, authorizer)
        assert len(provider.visits) <= 2


async def test_the_error_contains_the_login_command_if_no_user_can_be_asked() -> None:
    async with protected() as (_, server):
        authorizer = OAuthAuthorizer(server.url, remedy="run `fairlead login notes`")
        with pytest.raises(LoginRequired, match="requires a login: run `fairlead login notes`"):
            await add(server, authorizer)


async def test_a_refused_login_is_not_repeated_by_other_requests() -> None:
    async with protected() as (_, server):
        asked = []

        def decline(request: Any) -> str:
            asked.append(request)
            return f"{request.redirect_uri}?error=access_denied&state=wrong"

        authorizer = OAuthAuthorizer(server.url, authorize=decline)
        for _ in range(3):
            with pytest.raises(AuthorizationError, match="wrong state"):
                await add(server, authorizer)
        assert len(asked) == 1


async def test_client_credentials_obtain_a_token_without_a_user() -> None:
    async with protected(clients=[SERVICE]) as (provider, server):
        settings = OAuthSettings(
            grant="client_credentials", client_id="service", client_secret="a-secret"
        )
        assert await add(server, OAuthAuthorizer(server.url, settings)) == "3"
        assert await provider.counts() == {"client_credentials 200": 1}


async def test_a_device_code_is_confirmed_on_another_device() -> None:
    async with protected() as (_, server):
        settings = OAuthSettings(grant="device_code")
        prompt = DevicePrompt()
        assert await add(server, OAuthAuthorizer(server.url, settings, prompt=prompt)) == "3"
        await prompt.confirming


class DevicePrompt(LoginPrompt):
    def show_code(self, code: DeviceCode) -> None:
        assert code.complete_url is not None
        self.confirming = asyncio.ensure_future(confirm_code(code.complete_url))


async def test_a_browser_redirects_to_the_listener_of_the_program() -> None:
    async with protected() as (_, server):
        prompt = BrowserPrompt()
        assert await add(server, OAuthAuthorizer(server.url, prompt=prompt)) == "3"
        assert await prompt.browsing == 200


class BrowserPrompt(LoginPrompt):
    def visit(self, request: Any) -> None:
        self.browsing = asyncio.ensure_future(browse(request))


async def browse(request: Any) -> int:
    import aiohttp

    target = await visit(request.url, request.redirect_uri, "alice")
    async with aiohttp.ClientSession() as http, http.get(target) as reply:
        assert "code" not in await reply.text()
        return reply.status


async def test_logging_out_revokes_and_deletes_the_login() -> None:
    async with protected() as (provider, server):
        store = MemoryCredentialStore()
        authorizer = OAuthAuthorizer(server.url, store=store, authorize=provider.user())
        await add(server, authorizer)
        [login] = store.logins()
        assert await authorizer.log_out()
        assert store.logins() == []
        assert not await authorizer.log_out()
        # The provider no longer accepts the refresh token.
        store.save(login)
        again = OAuthAuthorizer(server.url, store=store)
        server.revoked.add(login.tokens.access_token)
        with pytest.raises(LoginRequired, match="requires a new login"):
            await add(server, again)
        [ended] = store.logins()
        assert ended.ended


async def test_a_login_is_not_used_for_another_server_with_its_credential_id() -> None:
    async with protected() as (provider, server):
        store = MemoryCredentialStore()
        mine = {"store": store, "credential_id": "mine"}
        await add(server, OAuthAuthorizer(server.url, authorize=provider.user(), **mine))
        async with protected_server(provider.issuer) as other:
            with pytest.raises(LoginRequired):
                await add(other, OAuthAuthorizer(other.url, **mine))
            assert set(other.tokens) == {None}


async def test_tokens_are_removed_from_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with protected() as (provider, server):
        await add(server, OAuthAuthorizer(server.url, authorize=provider.user()))
        token = server.tokens[-1]
        logging.getLogger("fairlead.auth").warning("sent %s", token)
        assert caplog.messages[-1] == "sent [REDACTED]"


async def test_secrets_of_a_login_are_removed_from_log_lines_whatever_they_look_like(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("fairlead.auth")
    async with scripted_provider() as provider:
        provider.token = {"access_token": "alpha-beta-gamma", "refresh_token": "iota-kappa"}
        provider.token["expires_in"] = 0
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        log.warning("%s and %s", "alpha-beta-gamma", "iota-kappa")
        assert caplog.messages[-1] == "[REDACTED] and [REDACTED]"
        provider.token = {"access_token": "delta-epsilon", "refresh_token": "zeta-eta"}
        assert await request(provider, authorizer) == (200, {"token": "delta-epsilon"})
        log.warning("%s and %s", "delta-epsilon", "zeta-eta")
        assert caplog.messages[-1] == "[REDACTED] and [REDACTED]"


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + seconds)


@pytest.mark.covers("AUT-03")
async def test_requests_use_a_valid_token_while_its_renewal_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.auth.client.oauth_authorizer.EARLY_WAIT", 0.1)
    async with scripted_provider() as provider:
        provider.token = {"expires_in": 60}
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        await authorizer.log_in()
        pass_time(monkeypatch, 40)  # the token is valid, but due for renewal
        released = asyncio.Event()

        async def wait(call: Call) -> None:
            await released.wait()
            await provider._token(call)

        provider.scripts["token"] = wait
        for _ in range(3):
            assert await request(provider, authorizer) == (200, {"token": "access-1"})
        assert provider.steps["token"] == 2
        released.set()
        # The renewal was not cancelled, and its result is used.
        pass_time(monkeypatch, 30)
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        assert provider.steps["token"] == 2


async def test_the_traceback_of_a_failed_login_does_not_grow_with_each_request() -> None:
    async with scripted_provider() as provider:
        user = provider.user(code=None, error="access_denied")
        authorizer = OAuthAuthorizer(provider.url, authorize=user)
        lengths = []
        for _ in range(4):
            with pytest.raises(AuthorizationError, match="access_denied") as caught:
                await request(provider, authorizer)
            lengths.append(len(caught.traceback))
        assert len(provider.visits) == 1
        assert len(set(lengths[1:])) == 1
