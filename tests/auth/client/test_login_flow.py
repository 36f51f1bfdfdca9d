"""Parameters that a login sends to the authorization server, and addresses that receive its
redirect.
"""

import asyncio
import socket
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from fairlead.auth.client.interactive_login import LoginPrompt
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.client.oauth_settings import OAuthSettings
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import AuthorizationError
from tests.support.scripted_provider import ScriptedProvider, request, scripted_provider


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
