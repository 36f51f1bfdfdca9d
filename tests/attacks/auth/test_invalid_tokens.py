"""Invalid tokens at every entry point of a server and of a gateway."""

import asyncio
import base64
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from joserfc import jws
from joserfc.jwk import ECKey

from fairlead import MCPServer
from fairlead.auth.challenge import parse_challenges
from fairlead.auth.server.server_auth import ServerAuth
from fairlead.gateway import Gateway
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.gateway_file import read_gateway_file
from tests.support.gateway_servers import free_port, until
from tests.support.gateway_servers import serving as serving_at
from tests.support.http_server import BOTH, introduction, serving, stateless
from tests.support.token_issuer import RunningIssuer, TokenMint, running_issuer

LIMIT = 60.0
JSON = {"Content-Type": "application/json", "Accept": BOTH}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
BODY, STATELESS = stateless("tools/list")
# Requests to an endpoint: method, body and headers.
REQUESTS: list[tuple[str, Any, dict[str, str]]] = [
    ("POST", BODY, {**JSON, **STATELESS}),
    ("POST", introduction(), JSON),
    ("POST", [PING], JSON),
    ("POST", {"jsonrpc": "2.0", "id": 1, "result": {}}, JSON),
    ("POST", CANCEL, {**JSON, "Mcp-Session-Id": "any"}),
    ("GET", None, {"Accept": "text/event-stream", "Mcp-Session-Id": "any"}),
    ("DELETE", None, {"Mcp-Session-Id": "any"}),
    ("PUT", None, {}),
]
# Requests to other paths: method, path and body.
COMMON = [("GET", "/sse", None), ("POST", "/messages?session_id=x", PING), ("WS", "/ws", None)]
SERVER_PAGES = [("GET", "/", None), ("GET", "/tools", None), ("GET", "/openapi.json", None)]
SERVER_PAGES += [("POST", "/tools/add/call", {}), ("POST", "/", introduction())]
GATEWAY_PAGES = [("GET", "/", None), ("GET", "/status", None), ("GET", "/metrics", None)]
GATEWAY_PAGES += [("GET", "/admin/sessions", None), ("POST", "/admin/reload", {})]
FILE = """
[auth]
issuer = "{issuer}"
public_url = "{url}"
[[auth.rules]]
client = "users"
admin = true
"""


def packed(part: Any) -> str:
    text = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def signed(header: dict[str, Any], payload: Any, key: Any) -> str:
    """Return a JWS with any header and payload; bytes are the key of an HMAC."""
    text = f"{packed(header)}.{packed(payload)}"
    if isinstance(key, bytes):
        return f"{text}.{packed(hmac.digest(key, text.encode(), 'sha256'))}"
    return f"{text}.{packed(jws.JWSRegistry.algorithms['ES256'].sign(text.encode(), key))}"


def invalid_tokens(issuer: RunningIssuer, here: str) -> dict[str, str | None]:
    """Return tokens that the endpoint must refuse with 401."""
    now, base = int(time.time()), here.partition("/mcp")[0]
    claims, own = issuer.claims(here), ECKey.generate_key("P-256")
    head = {"alg": "ES256", "kid": "first", "typ": "at+jwt"}
    public = issuer.published[0]
    return {
        "none": None,
        "garbage": "garbage",
        "expired": issuer.token(here, iat=now - 600, exp=now - 60),
        "not valid yet": issuer.token(here, nbf=now + 120),
        "without an expiry": issuer.token(here, exp=None),
        "for the host": issuer.token(base),
        "for a path below": issuer.token(f"{here}/x"),
        "for a shorter path": issuer.token(here[:-1]),
        "for a nested audience": issuer.token([[here]]),
        "without an audience": issuer.token(None),
        "of another issuer": TokenMint("https://evil.example").token(here),
        "of a similar issuer": issuer.token(here, iss=f"{issuer.issuer}/"),
        "with a foreign key and a known id": TokenMint(issuer.issuer).token(here),
        "with the key in the header": signed(
            {**head, "jwk": own.as_dict(private=False)}, claims, own
        ),
        "unsigned": f"{packed({'alg': 'none'})}.{packed(claims)}.",
        "unsigned in another spelling": f"{packed({'alg': 'nOnE'})}.{packed(claims)}.AA",
        "signed with the public key": signed(
            {**head, "alg": "HS256"}, claims, issuer.key.as_pem(private=False)
        ),
        "signed with the published key": signed(
            {**head, "alg": "HS256"}, claims, json.dumps(public).encode()
        ),
        "nested": signed({**head, "cty": "JWT"}, issuer.token(here).encode(), issuer.key),
        "with a critical extension": signed(
            {**head, "crit": ["b64"], "b64": True}, claims, issuer.key
        ),
        "an ID token": issuer.token(here, at_hash="x"),
        "a proof": issuer.token(here, header={"typ": "dpop+jwt"}),
        "an identity assertion": issuer.token(here, header={"typ": "oauth-id-jag+jwt"}),
        "bound to a key": issuer.token(here, cnf={"jkt": "x"}),
        "of nobody": issuer.token(here, sub="", client_id=None),
    }


class Place:
    """A server or gateway, and the paths of its endpoint and pages."""

    def __init__(self, issuer: RunningIssuer, web: aiohttp.ClientSession, base: str) -> None:
        self.issuer, self.base = issuer, base
        self._web = web

    async def send(
        self, method: str, path: str, body: Any, headers: dict[str, str], token: str | None
    ) -> tuple[int, list[str], str]:
        """Send a request; return its status, the schemes of its challenges, and its text."""
        sent = headers if token is None else {**headers, "Authorization": f"Bearer {token}"}
        if method == "WS":
            with contextlib.suppress(aiohttp.WSServerHandshakeError):
                async with self._web.ws_connect(self.base + path, headers=sent):
                    return 101, [], ""
            method = "GET"
            sent = {**sent, "Connection": "Upgrade", "Upgrade": "websocket"}
            sent |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}
        data = None if body is None else json.dumps(body)
        async with self._web.request(method, self.base + path, data=data, headers=sent) as reply:
            challenges = reply.headers.get("WWW-Authenticate", "")
            schemes = [one.scheme for one in parse_challenges(challenges)]
            is_stream = reply.content_type == "text/event-stream"
            return reply.status, schemes, challenges + ("" if is_stream else await reply.text())

    async def refuses(self, path: str, pages: list[tuple[str, str, Any]]) -> None:
        """Check that invalid tokens are refused without a quote, and that a valid one is not."""
        requests = [(method, path, body, headers) for method, body, headers in REQUESTS]
        requests += [(method, page, body, JSON) for method, page, body in pages]
        right = [self.base + one for one in (path, "/sse", "/ws")]
        for method, where, body, headers in requests:
            for name, token in invalid_tokens(self.issuer, self.base + path).items():
                status, schemes, text = await self.send(method, where, body, headers, token)
                assert (status, schemes) == (401, ["bearer"]), (method, where, name, text)
                assert token is None or token[-20:] not in text, (method, where, name)
            token = self.issuer.token(right)
            assert (await self.send(method, where, body, headers, token))[0] != 401


@contextlib.asynccontextmanager
async def server(*, fast_path: bool) -> AsyncIterator[Place]:
    async with running_issuer() as issuer, asyncio.timeout(LIMIT):
        served = MCPServer("s", auth=ServerAuth(issuer=issuer.issuer), rate_limit_rate=0)

        @served.tool()
        async def add() -> str:
            return "added"

        async with serving(served, fast_path=fast_path) as web:
            yield Place(issuer, web.http, web.url.removesuffix("/mcp"))


@contextlib.asynccontextmanager
async def gateway(folder: Path) -> AsyncIterator[Place]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with running_issuer() as issuer, asyncio.timeout(LIMIT):
        (folder / "gateway.toml").write_text(FILE.format(issuer=issuer.issuer, url=url))
        file = read_gateway_file(folder / "gateway.toml")
        access = ClientAccess(file)
        options: Any = {"verify_token": access.verify, "auth": access.access()}
        async with (
            aiohttp.ClientSession() as web,
            serving(MCPServer("upstream")) as upstream,
            Gateway(settings=file.settings, is_admin=access.is_admin) as served,
            serving_at(served, port=port, **options),
        ):
            await served.connect({"red": {"type": "http", "url": upstream.url}})
            await until(lambda: served.is_ready)
            yield Place(issuer, web, url)


@pytest.mark.attack(
    "invalid tokens of 25 kinds at every entry point: forged, expired, of others, for others",
    "every request is judged before its body is read, at every path and for every method",
    "401 with a challenge that does not quote the token",
)
@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("fast_path", [True, False])
async def test_every_entry_point_of_a_server_refuses_invalid_tokens(fast_path: bool) -> None:
    async with server(fast_path=fast_path) as place:
        await place.refuses("/mcp", [*COMMON, *SERVER_PAGES])


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(
    ("path", "pages"),
    [("/mcp", [*COMMON, *GATEWAY_PAGES]), ("/mcp/red", []), ("/mcp/unknown", [])],
    ids=["merged", "one server", "no server"],
)
async def test_every_entry_point_of_a_gateway_refuses_invalid_tokens(
    path: str, pages: list[tuple[str, str, Any]], tmp_path: Path
) -> None:
    async with gateway(tmp_path) as place:
        await place.refuses(path, pages)
