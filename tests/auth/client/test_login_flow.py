"""Parameters that a login sends to the authorization server, and addresses that receive its
redirect.
"""

import asyncio
import socket
import time
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import aiohttp
import pytest

from fairlead.auth.client.interactive_login import LoginPrompt
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import EnterpriseLogin, OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError
from tests.support.scripted_http_server import Call
from tests.support.scripted_provider import (
    ScriptedProvider,
    request,
    responding,
    scripted_provider,
)

SERVICE = OAuthSettings(grant="client_credentials", client_id="c", client_secret="secret")
WORKLOAD = OAuthSettings(grant="jwt_bearer", assertion="workload")
GRANTS = pytest.mark.parametrize("settings", [SERVICE, WORKLOAD])


class Browser(LoginPrompt):
    """A browser that requests the redirect, and records its URI."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self._provider = provider
        self.uris: list[str] = []

    def visit(self, request: Any) -> None:
        self.uris.append(request.redirect_uri)
        self.task = asyncio.ensure_future(self._redirect(self._provider.redirect(request)))

    async def _redirect(self, url: str) -> None:
        async with aiohttp.ClientSession() as http, http.get(url) as reply:
            assert reply.status == 200


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def log_in(provider: ScriptedProvider, browser: Browser, **options: Any) -> None:
    await OAuthAuthorizer(provider.url, prompt=browser, **options).log_in()
    await browser.task


@pytest.mark.covers("AUT-01")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_a_configured_loopback_redirect_is_received_at_its_port_and_path(host: str) -> None:
    async with scripted_provider() as provider:
        browser = Browser(provider)
        uri = f"http://{host}:{free_port()}/oauth/cb"
        settings = OAuthSettings(client_id="mine", redirect_uri=uri)
        await log_in(provider, browser, settings=settings)
        assert browser.uris == [uri]
        assert provider.forms()[0]["redirect_uri"] == uri


async def test_a_loopback_redirect_without_a_port_is_received_at_a_free_port() -> None:
    async with scripted_provider() as provider:
        browser = Browser(provider)
        settings = OAuthSettings(client_id="mine", redirect_uri="http://localhost/oauth/cb")
        await log_in(provider, browser, settings=settings)
        [uri] = browser.uris
        assert (urlsplit(uri).hostname, urlsplit(uri).path) == ("localhost", "/oauth/cb")
        assert urlsplit(uri).port


async def test_the_configured_callback_port_may_differ_from_that_of_the_redirect() -> None:
    """A port may be mapped to another one, as with containers."""
    async with scripted_provider() as provider:
        inside, outside = free_port(), free_port()

        class Mapped(Browser):
            async def _redirect(self, url: str) -> None:
                await super()._redirect(url.replace(str(outside), str(inside), 1))

        browser = Mapped(provider)
        uri = f"http://127.0.0.1:{outside}/cb"
        settings = OAuthSettings(client_id="mine", redirect_uri=uri, callback_port=inside)
        await log_in(provider, browser, settings=settings)
        assert browser.uris == [uri]


async def test_a_login_fails_if_the_port_of_the_configured_redirect_is_in_use() -> None:
    async with scripted_provider() as provider:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            settings = OAuthSettings(redirect_uri=f"http://localhost:{port}/cb")
            with pytest.raises(AuthorizationError, match=f"cannot listen on port {port}"):
                await log_in(provider, Browser(provider), settings=settings)


async def test_the_redirect_uri_has_a_literal_address_and_keeps_its_port() -> None:
    async with scripted_provider() as provider:
        browser, store = Browser(provider), MemoryCredentialStore()
        for _ in range(2):
            await log_in(provider, browser, store=store)
        first, second = browser.uris
        assert first == second
        assert urlsplit(first).hostname == "127.0.0.1"
        assert provider.of("register")[0].message["redirect_uris"] == [
            first,
            "http://127.0.0.1/callback",
            "http://localhost/callback",
        ]


async def test_only_the_scopes_of_the_challenge_are_requested() -> None:
    async with scripted_provider() as provider:
        provider.challenge = {"scope": "read"}
        provider.protected = {"scopes_supported": ["read", "write", "admin"]}
        provider.metadata = {"scopes_supported": ["read", "write", "admin", "openid"]}
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        assert (await request(provider, authorizer))[0] == 200
        [visit] = provider.visits
        assert parse_qs(urlsplit(visit.url).query)["scope"] == ["read"]


# Grants without a user and without a refresh token, which are repeated for each renewal


def without_refresh_tokens(provider: ScriptedProvider, lifetime: int) -> None:
    provider.token = {"refresh_token": None, "expires_in": lifetime}


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + seconds)


@pytest.mark.covers("AUT-03")
@GRANTS
async def test_a_repeated_grant_needs_no_discovery_and_requests_the_same_scopes(
    settings: OAuthSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_provider() as provider:
        provider.protected = {"scopes_supported": ["read", "write", "admin"]}
        provider.challenge["scope"] = "read"
        without_refresh_tokens(provider, 60)
        authorizer = OAuthAuthorizer(provider.url, settings)
        assert await request(provider, authorizer) == (200, {"token": "access-1"})
        provider.calls.clear()
        pass_time(monkeypatch, 45)
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        assert provider.steps == {"token": 1, "mcp": 1}
        [form] = provider.forms()
        assert (form["scope"], form["resource"]) == ("read", provider.url)


@pytest.mark.covers("AUT-03")
@GRANTS
async def test_scopes_of_a_step_up_are_kept_by_a_repeated_grant(
    settings: OAuthSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_provider() as provider:
        granted: dict[str, str] = {}

        async def issue(call: Call) -> None:
            scope = dict(parse_qsl(call.body.decode())).get("scope", "")
            granted[f"access-{provider.steps['token']}"] = scope
            await provider._token(call)

        async def check(call: Call) -> None:
            token = call.headers.get("authorization", "").partition(" ")[2]
            if token not in granted:
                await provider._mcp(call)
            elif "write" in granted[token].split():
                await call.json({"token": token})
            else:
                value = 'Bearer error="insufficient_scope", scope="write"'
                await call.answer(403, "{}", WWW_Authenticate=value)

        provider.scripts |= {"token": issue, "mcp": check}
        provider.challenge["scope"] = "read"
        without_refresh_tokens(provider, 60)
        authorizer = OAuthAuthorizer(provider.url, settings)
        for number in (2, 3, 4):
            assert await request(provider, authorizer) == (200, {"token": f"access-{number}"})
            assert set(granted[f"access-{number}"].split()) == {"read", "write"}
            pass_time(monkeypatch, 61)


async def test_a_repeated_grant_requests_changed_scopes_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_provider() as provider:
        without_refresh_tokens(provider, 60)
        store = MemoryCredentialStore()
        for scopes in (["read", "write"], ["read"]):
            settings = OAuthSettings(
                grant="client_credentials", client_id="c", client_secret="s", scopes=scopes
            )
            authorizer = OAuthAuthorizer(provider.url, settings, store=store)
            assert (await request(provider, authorizer))[0] == 200
            assert provider.forms()[-1]["scope"] == " ".join(scopes)
            pass_time(monkeypatch, 61)


async def test_a_repeated_grant_without_a_user_requests_a_token_bound_to_the_same_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scripted_provider() as provider:

        async def check(call: Call) -> None:
            scheme, _, token = call.headers.get("authorization", "").partition(" ")
            if scheme == "DPoP" and token in provider.accepted:
                await call.json({"token": token})
            else:
                await call.answer(401, "{}", WWW_Authenticate='DPoP algs="ES256"')

        provider.scripts["mcp"] = check
        without_refresh_tokens(provider, 60)
        provider.token["token_type"] = "DPoP"
        authorizer = OAuthAuthorizer(provider.url, SERVICE)
        assert await request(provider, authorizer) == (200, {"token": "access-1"})
        pass_time(monkeypatch, 45)
        provider.calls.clear()
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        assert provider.steps == {"token": 1, "mcp": 1}
        assert "dpop" in provider.of("token")[0].headers


async def test_a_moved_token_endpoint_is_discovered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_provider() as provider:
        provider.metadata = {"token_endpoint": f"{provider.origin}/as/device"}
        provider.scripts["device"] = provider._token
        without_refresh_tokens(provider, 60)
        store = MemoryCredentialStore()
        authorizer = OAuthAuthorizer(provider.url, SERVICE, store=store)
        assert await request(provider, authorizer) == (200, {"token": "access-1"})
        provider.metadata = {}
        provider.scripts["device"] = responding(404, "")
        pass_time(monkeypatch, 45)
        assert await request(provider, authorizer) == (200, {"token": "access-2"})
        [login] = store.logins()
        assert login.token_endpoint == f"{provider.issuer}/token"


@pytest.mark.parametrize("resource", [None, "https://api.example/notes"])
async def test_an_enterprise_login_names_the_configured_resource(resource: Any) -> None:
    async with scripted_provider() as provider:

        async def issue(call: Call) -> None:
            if b"token-exchange" not in call.body:
                await provider._token(call)
                return
            kind = "urn:ietf:params:oauth:token-type:id-jag"
            document = {"access_token": "jag", "issued_token_type": kind, "token_type": "N_A"}
            await call.json(document)

        provider.scripts["token"] = issue
        company = EnterpriseLogin(
            token_endpoint=f"{provider.issuer}/token", client_id="c", id_token="id"
        )
        settings = OAuthSettings(
            grant="enterprise", client_id="c", enterprise=company, resource=resource
        )
        await OAuthAuthorizer(provider.url, settings).log_in()
        exchange, _ = provider.forms()
        assert exchange["resource"] == (resource or provider.url)
