"""Tokens outside of the one header `Authorization`, at every entry point of a server.

A token in a URL, a cookie or a subprotocol is sent by web pages and recorded by proxies. With two
headers, a proxy may have checked the one that the server ignores.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict

from fairlead import MCPServer
from fairlead.auth.server.server_auth import ServerAuth, StaticClient, TokenIssuer
from tests.support.http_server import BOTH, Web, introduction, serving, stateless
from tests.support.token_issuer import TokenMint

LIMIT = 20.0
MINT = TokenMint()
BODY, STATELESS = stateless("tools/list")
JSON = {"Content-Type": "application/json", "Accept": BOTH}
# Method, path, body and headers.
ENTRIES: dict[str, tuple[str, str, Any, dict[str, str]]] = {
    "stateless POST": ("POST", "/mcp", BODY, {**JSON, **STATELESS}),
    "initialize": ("POST", "/mcp", introduction(), JSON),
    "GET in a session": ("GET", "/mcp", None, {"Accept": "text/event-stream"}),
    "DELETE of a session": ("DELETE", "/mcp", None, {}),
    "HTTP+SSE stream": ("GET", "/sse", None, {}),
    "WebSocket": ("GET", "/ws", None, {}),
    "REST call": ("POST", "/tools/add/call", {}, JSON),
    "REST list": ("GET", "/tools", None, {}),
    "status page": ("GET", "/", None, {}),
}
AT_EVERY_ENTRY = pytest.mark.parametrize("entry", ENTRIES)


class Place:
    """A server with an open session, and a valid token for all its paths."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.base = web.url.removesuffix("/mcp")
        self.token = self.token_with("use")
        self.session = ""

    def token_with(self, scope: str) -> str:
        paths = [self.base + path for path in ("/mcp", "/sse", "/ws")]
        return MINT.token(paths, scope=scope)

    async def send(
        self, entry: str, headers: list[tuple[str, str]], query: str = "", **options: Any
    ) -> int:
        """Send a request and return its status."""
        method, path, body, more = ENTRIES[entry]
        sent = CIMultiDict(more)
        sent.extend(headers)
        if entry in ("GET in a session", "DELETE of a session"):
            sent["Mcp-Session-Id"] = self.session
        url = f"{self.base}{path}{query}"
        if entry == "WebSocket":
            try:
                async with self.web.http.ws_connect(url, headers=sent, **options):
                    return 101
            except aiohttp.WSServerHandshakeError as refused:
                return refused.status
        data = None if body is None else json.dumps(body)
        async with self.web.http.request(method, url, data=data, headers=sent) as reply:
            return reply.status


@contextlib.asynccontextmanager
async def protected(scopes: str = "", **options: Any) -> AsyncIterator[Place]:
    tokens = {"static": StaticClient(name="ci")}
    issuer = TokenIssuer(MINT.issuer, jwks=MINT.jwks)
    auth = ServerAuth(issuer=issuer, tokens=tokens, scopes=scopes)
    server = MCPServer("places", auth=auth, rate_limit_rate=0)

    @server.tool()
    async def add() -> str:
        return "added"

    async with asyncio.timeout(LIMIT), serving(server, **options) as web:
        place = Place(web)
        opened = await web.post(introduction(), dict([bearer(place.token)]))
        place.session = opened.headers["mcp-session-id"]
        yield place


def bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


@pytest.mark.attack(
    "two `Authorization` headers, or two tokens in one",
    "a request has one token",
    "400 or 401, in each order and at every entry point",
)
@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
@AT_EVERY_ENTRY
async def test_a_request_with_two_tokens_is_refused(entry: str, fast_path: bool) -> None:
    async with protected(fast_path=fast_path) as place:
        valid, other = bearer(place.token), bearer("static")
        for pair in ([valid, bearer("x")], [bearer("x"), valid], [valid, other], [valid, valid]):
            assert await place.send(entry, pair) in (400, 401)
        for text in (f"{place.token}, x", f"x, Bearer {place.token}", f"{place.token} static"):
            assert await place.send(entry, [bearer(text)]) in (400, 401)
        assert await place.send(entry, [valid]) in (101, 200)


@pytest.mark.attack(
    "a valid token in the query, a cookie, another header or a WebSocket subprotocol",
    "tokens are read from `Authorization` only",
    "401 over HTTP, HTTP+SSE, WebSocket and REST, and for pages",
)
@pytest.mark.covers("AUT-06")
@AT_EVERY_ENTRY
async def test_tokens_outside_of_the_authorization_header_are_ignored(entry: str) -> None:
    async with protected() as place:
        for token in (place.token, "static"):
            for query in (f"?access_token={token}", f"?token={token}", f"?bearer={token}"):
                assert await place.send(entry, [], query) == 401
            for name in ("Cookie", "X-Auth-Token", "X-API-Key", "Proxy-Authorization"):
                value = f"access_token={token}" if name == "Cookie" else f"Bearer {token}"
                assert await place.send(entry, [(name, value)]) == 401
            for scheme in ("Basic", "Token", "JWT"):
                assert await place.send(entry, [("Authorization", f"{scheme} {token}")]) == 401
        if entry == "WebSocket":
            for protocols in (("bearer", place.token), ("mcp", f"base64url.bearer.{place.token}")):
                assert await place.send(entry, [], protocols=protocols) == 401


async def test_a_token_in_a_form_parameter_is_ignored() -> None:
    """RFC 6750, section 2.2, allows a form parameter; the metadata name the header only."""
    async with protected() as place:
        form = aiohttp.FormData({"access_token": place.token})
        async with place.web.http.post(place.web.url, data=form) as reply:
            assert reply.status == 401


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
@AT_EVERY_ENTRY
async def test_the_scopes_of_the_server_are_required(entry: str, fast_path: bool) -> None:
    async with protected(scopes="use", fast_path=fast_path) as place:
        for token in (place.token_with("other"), place.token_with("user use2"), "static"):
            for _ in range(2):  # the second request finds the verdict of the first one
                assert await place.send(entry, [bearer(token)]) == 403
        assert await place.send(entry, [bearer(place.token)]) in (101, 200)
