"""Stolen tokens that are bound to a key (DPoP), at every entry point of a server."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from multidict import CIMultiDict

from fairlead import MCPServer
from fairlead.auth.challenge import parse_challenges
from fairlead.auth.dpop import DpopKey, token_hash
from fairlead.auth.server.server_auth import ServerAuth
from tests.support.http_server import BOTH, Web, introduction, next_event, serving, stateless
from tests.support.token_issuer import running_issuer

LIMIT = 20.0
WINDOW = 300.0  # seconds by which the clocks of client and server may differ
BODY, STATELESS = stateless("tools/list")
PING = {"jsonrpc": "2.0", "id": 3, "method": "ping"}
JSON = {"Content-Type": "application/json", "Accept": BOTH}
# Method, path, body, headers and the status with a valid proof.
ENTRIES: dict[str, tuple[str, str, Any, dict[str, str], int]] = {
    "stateless POST": ("POST", "/mcp", BODY, {**JSON, **STATELESS}, 200),
    "POST in a session": ("POST", "/mcp", PING, JSON, 200),
    "GET in a session": ("GET", "/mcp", None, {"Accept": "text/event-stream"}, 200),
    "DELETE of a session": ("DELETE", "/mcp", None, {}, 200),
    "HTTP+SSE stream": ("GET", "/sse", None, {}, 200),
    "HTTP+SSE message": ("POST", "/messages", introduction(), JSON, 202),
    "WebSocket": ("GET", "/ws", None, {}, 101),
    "REST call": ("POST", "/tools/add/call", {}, JSON, 200),
    "REST list": ("GET", "/tools", None, {}, 200),
    "OpenAPI": ("GET", "/openapi.json", None, {}, 200),
    "status page": ("GET", "/", None, {}, 200),
}
AT_EVERY_ENTRY = pytest.mark.parametrize("entry", ENTRIES)


class Place:
    """A server that requires proofs, a bound token, and a session and a stream of its owner."""

    def __init__(self, web: Web, token: str, key: DpopKey) -> None:
        self.web, self.token, self.key = web, token, key
        self.base = web.url.removesuffix("/mcp")
        self.session = ""
        self.messages = ""

    def proof(self, entry: str, key: DpopKey | None = None, **claims: Any) -> list[tuple[str, str]]:
        """Return the headers with a proof for a request; `claims` replace its claims."""
        method, path, *_ = ENTRIES[entry]
        right = {"jti": str(time.monotonic_ns()), "htm": method, "htu": self.base + path}
        right |= {"iat": int(time.time()), "ath": token_hash(self.token)}  # type: ignore[dict-item]
        private = ECKey.import_key((key or self.key).private)
        head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": private.as_dict(private=False)}
        proof = jwt.encode(head, {**right, **claims}, private)
        return [("Authorization", f"DPoP {self.token}"), ("DPoP", proof)]

    async def send(self, entry: str, headers: list[tuple[str, str]]) -> tuple[int, str]:
        """Send a request; return its status and challenge."""
        method, path, body, more, _ = ENTRIES[entry]
        sent = CIMultiDict(more)
        sent.extend(headers)
        if "in a session" in entry or "of a session" in entry:
            sent["Mcp-Session-Id"] = self.session
        if entry == "WebSocket":
            try:
                async with self.web.http.ws_connect(f"{self.base}{path}", headers=sent):
                    return 101, ""
            except aiohttp.WSServerHandshakeError as refused:
                return refused.status, (refused.headers or {}).get("WWW-Authenticate", "")
        url = self.messages if path == "/messages" else self.base + path
        data = None if body is None else json.dumps(body)
        async with self.web.http.request(method, url, data=data, headers=sent) as reply:
            return reply.status, reply.headers.get("WWW-Authenticate", "")

    async def refuses(self, entry: str, headers: list[tuple[str, str]]) -> None:
        """Send a request and expect a challenge that names the invalid proof."""
        status, text = await self.send(entry, headers)
        assert status == 401
        (challenge,) = parse_challenges(text)
        assert (challenge.scheme, challenge.error) == ("dpop", "invalid_dpop_proof")


@contextlib.asynccontextmanager
async def protected() -> AsyncIterator[Place]:
    async with running_issuer() as issuer, asyncio.timeout(LIMIT):
        auth = ServerAuth(issuer=issuer.issuer, dpop="required")
        server = MCPServer("bound", auth=auth, rate_limit_rate=0)

        @server.tool()
        async def add() -> str:
            return "added"

        async with serving(server) as web:
            key = DpopKey()
            place = Place(web, issuer.bound_token(web.url, key), key)
            opening = CIMultiDict(JSON)
            opening.extend(place.proof("stateless POST"))
            async with web.http.post(web.url, json=introduction(), headers=opening) as opened:
                place.session = opened.headers["Mcp-Session-Id"]
            listening = CIMultiDict(place.proof("HTTP+SSE stream"))
            async with web.http.get(f"{place.base}/sse", headers=listening) as stream:
                place.messages = place.base + (await next_event(stream))["data"]
                yield place


@pytest.mark.covers("AUT-06")
@AT_EVERY_ENTRY
async def test_a_bound_token_with_a_new_proof_is_accepted(entry: str) -> None:
    async with protected() as place:
        assert (await place.send(entry, place.proof(entry)))[0] == ENTRIES[entry][-1]


@pytest.mark.attack(
    "a stolen token that is bound to a key, with the proof of another request",
    "each request needs its own proof, with method, path, time, token and key",
    "401 over HTTP, HTTP+SSE, WebSocket and REST, and for pages",
)
@AT_EVERY_ENTRY
async def test_a_stolen_token_is_refused_without_a_matching_proof(entry: str) -> None:
    async with protected() as place:
        method, path, *_ = ENTRIES[entry]
        now, other = time.time(), "GET" if method == "POST" else "POST"
        for wrong in (
            place.proof(entry, DpopKey()),
            place.proof(entry, htm=other),
            place.proof(entry, htu=f"{place.base}{path}/other"),
            place.proof(entry, htu=f"https://evil.example{path}"),
            place.proof(entry, ath=token_hash("other")),
            place.proof(entry, iat=now - WINDOW - 10),
            place.proof(entry, iat=now + WINDOW + 10),
            place.proof(entry, iat=str(now)),
            place.proof(entry)[:1],
        ):
            await place.refuses(entry, wrong)
        bearer = [("Authorization", f"Bearer {place.token}")]
        assert (await place.send(entry, bearer))[0] == 401
        assert (await place.send(entry, place.proof(entry)))[0] == ENTRIES[entry][-1]


@AT_EVERY_ENTRY
async def test_the_same_proof_is_refused_the_second_time(entry: str) -> None:
    async with protected() as place:
        proof = place.proof(entry)
        assert (await place.send(entry, proof))[0] == ENTRIES[entry][-1]
        await place.refuses(entry, proof)


@AT_EVERY_ENTRY
async def test_a_request_with_two_proofs_is_refused(entry: str) -> None:
    """A proxy or a log may read the one that the server ignores (RFC 9449, section 4.3)."""
    async with protected() as place:
        forged = place.proof(entry, DpopKey())[1]
        for first, second in ((0, 1), (1, 0)):
            pair = [place.proof(entry)[1], forged]
            headers = [("Authorization", f"DPoP {place.token}"), pair[first], pair[second]]
            assert (await place.send(entry, headers))[0] in (400, 401)
        twice = place.proof(entry)
        assert (await place.send(entry, [*twice, place.proof(entry)[1]]))[0] == 400
        joined = f"{place.proof(entry)[1][1]}, {place.proof(entry)[1][1]}"
        await place.refuses(entry, [twice[0], ("DPoP", joined)])


async def test_the_time_of_a_proof_may_differ_by_almost_five_minutes() -> None:
    """Clocks of clients are often wrong by minutes."""
    async with protected() as place:
        for off in (-WINDOW + 10, WINDOW - 10):
            early = place.proof("stateless POST", iat=int(time.time() + off))
            assert (await place.send("stateless POST", early))[0] == 200
