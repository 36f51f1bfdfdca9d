"""Streams end once their token is revoked or its key is withdrawn, not only when it expires."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead import MCPServer
from fairlead.auth.server import issuer_keys
from fairlead.auth.server.server_auth import Introspection, ServerAuth
from fairlead.transport.http.server import token_expiry
from tests.attacks.auth.test_users_of_one_role import two_users
from tests.support.http_server import BOTH, Web, introduction, next_event, serving, stateless
from tests.support.token_issuer import RunningIssuer, running_issuer

LIMIT = 15.0
LISTEN = {"notifications": {"toolsListChanged": True}}
STREAMS = pytest.mark.parametrize("kind", ["listen", "session", "sse", "websocket"])


def make_server(auth: ServerAuth) -> MCPServer:
    server = MCPServer("notes", auth=auth)

    @server.tool()
    async def note() -> str:
        return "noted"

    return server


@contextlib.asynccontextmanager
async def introspecting(remember: float) -> AsyncIterator[tuple[Web, RunningIssuer]]:
    async with running_issuer() as issuer:
        asked = Introspection(
            url=f"{issuer.issuer}/introspect",
            client_id="a",
            client_secret="s",
            require_audience=False,
        )
        issuer.introspected = {"active": True, "sub": "alice", "token_type": "Bearer"}
        auth = ServerAuth(issuer=issuer.issuer, introspection=asked, remember=remember)
        async with serving(make_server(auth)) as web:
            yield web, issuer


async def read_to_the_end(reply: aiohttp.ClientResponse) -> None:
    while await next_event(reply):
        pass


@contextlib.asynccontextmanager
async def open_stream(web: Web, kind: str, token: str) -> AsyncIterator[Any]:
    """Open a stream and yield a coroutine that returns when the server ends it."""
    given = {"Authorization": f"Bearer {token}"}
    base = web.url.removesuffix("/mcp")
    if kind == "websocket":
        async with web.http.ws_connect(f"{base}/ws", headers=given) as socket:
            yield socket.receive()
        return
    body, method = None, "GET"
    if kind == "listen":
        body, headers = stateless("subscriptions/listen", LISTEN)
        given |= {**headers, "Accept": BOTH}
        method = "POST"
    elif kind == "session":
        opened = await web.post(introduction(), given)
        given |= {"Mcp-Session-Id": opened.headers["mcp-session-id"], "Accept": BOTH}
    url = f"{base}/sse" if kind == "sse" else web.url
    async with web.http.request(method, url, json=body, headers=given) as stream:
        assert stream.status == 200
        yield read_to_the_end(stream)


@pytest.mark.covers("AUT-06")
@STREAMS
async def test_a_stream_ends_after_its_token_was_revoked(kind: str) -> None:
    """The introspected token has no expiry."""
    async with introspecting(remember=1.0) as (web, issuer), asyncio.timeout(LIMIT):
        async with open_stream(web, kind, "opaque") as ended:
            asked = len(issuer.asked)
            waiting = asyncio.ensure_future(ended)
            while len(issuer.asked) < asked + 2:  # checked again, and still valid
                await asyncio.sleep(0.05)
            assert not waiting.done()
            issuer.introspected = {"active": False}
            await waiting


@STREAMS
async def test_a_stream_ends_if_introspection_reports_another_user_for_its_token(kind: str) -> None:
    async with introspecting(remember=1.0) as (web, issuer), asyncio.timeout(LIMIT):
        async with open_stream(web, kind, "opaque") as ended:
            issuer.introspected = {"active": True, "sub": "bob", "token_type": "Bearer"}
            await ended


async def test_a_stream_survives_a_short_but_not_a_long_outage_of_the_authorization_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_expiry, "RETRY_AFTER", 0.1)
    async with introspecting(remember=1.0) as (web, issuer), asyncio.timeout(LIMIT):
        async with open_stream(web, "listen", "opaque") as ended:
            waiting = asyncio.ensure_future(ended)
            issuer.status = 500
            asked = len(issuer.asked)
            while len(issuer.asked) < asked + 3:
                await asyncio.sleep(0.05)
            assert not waiting.done()
            monkeypatch.setattr(token_expiry, "MAX_OUTAGE", 0.5)
            await waiting


async def test_a_stream_ends_when_the_verify_function_refuses_its_token() -> None:
    allowed = {"t": "bot"}

    async def verify(token: str) -> str | None:
        return allowed.get(token)

    auth = ServerAuth(verify=verify, remember=1.0)
    async with serving(make_server(auth)) as web, asyncio.timeout(LIMIT):
        async with open_stream(web, "websocket", "t") as ended:
            allowed.clear()
            assert (await ended).data == 1008


@pytest.fixture
def quick_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let keys be renewed after a moment, although no request arrives."""
    monkeypatch.setattr(issuer_keys, "MIN_AGE", 0.2)
    monkeypatch.setattr(token_expiry, "LONGEST_WAIT", 0.2)


@pytest.mark.covers("AUT-06")
@pytest.mark.usefixtures("quick_renewal")
@STREAMS
async def test_a_stream_ends_when_the_issuer_withdraws_the_key_of_its_token(kind: str) -> None:
    async with running_issuer() as issuer:
        issuer.headers = {"Cache-Control": "max-age=0"}
        async with serving(make_server(ServerAuth(issuer=issuer.issuer))) as web:
            place = web.url.replace("/mcp", "/sse") if kind == "sse" else web.url
            async with (
                asyncio.timeout(LIMIT),
                open_stream(web, kind, issuer.token(place)) as ended,
            ):
                waiting = asyncio.ensure_future(ended)
                fetched = issuer.counts["/jwks"]
                while issuer.counts["/jwks"] < fetched + 2:
                    await asyncio.sleep(0.05)
                assert not waiting.done()
                issuer.rotate("second")
                await waiting


@STREAMS
async def test_a_stream_ends_once_another_request_has_shown_that_its_key_was_withdrawn(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without that request, the stream would check its token only after five minutes."""
    monkeypatch.setattr(issuer_keys, "MIN_AGE", 0.0)
    async with running_issuer() as issuer:
        issuer.headers = {"Cache-Control": "max-age=0"}
        async with serving(make_server(ServerAuth(issuer=issuer.issuer))) as web:
            place = web.url.replace("/mcp", "/sse") if kind == "sse" else web.url
            known = {"Authorization": f"Bearer {issuer.token(web.url, sub='bob')}"}
            assert (await web.stateless("tools/list", {}, known)).status == 200
            async with (
                asyncio.timeout(LIMIT),
                open_stream(web, kind, issuer.token(place)) as ended,
            ):
                waiting = asyncio.ensure_future(ended)
                issuer.rotate("second")
                while (await web.stateless("tools/list", {}, known)).status != 401:
                    assert not waiting.done()
                await waiting


@pytest.mark.usefixtures("quick_renewal")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/new", "/mcp/old"])
async def test_a_stream_at_a_gateway_ends_when_the_issuer_withdraws_its_key(
    path: str, tmp_path: Path
) -> None:
    """At `/mcp/new` the stream is relayed to a server of the same era."""
    async with two_users(tmp_path, path) as (place, _, _):
        place.a.headers = {"Cache-Control": "max-age=0"}
        body, headers = stateless("subscriptions/listen", LISTEN)
        token = place.a.token(place.url + path, sub="ann", scope="mcp")
        sent = {**headers, "Accept": BOTH, "Authorization": f"Bearer {token}"}
        async with (
            asyncio.timeout(LIMIT),
            place.web.post(place.url + path, json=body, headers=sent) as reply,
        ):
            assert reply.status == 200
            place.a.rotate("second")
            events: list[Any] = []
            while not events or "result" not in events[-1]:
                events.append(json.loads((await next_event(reply))["data"]))
        assert events[-1]["result"]["resultType"] == "complete"
