"""Streams at a gateway end when the access token that opened them expires."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.auth.server.token_claims import LEEWAY
from tests.attacks.auth.test_users_of_one_role import two_users
from tests.gateway.clients.test_role_access import Place
from tests.support.http_server import BOTH, next_event, stateless

LIMIT = 15.0
LISTEN = {"notifications": {"toolsListChanged": True}}


def soon_expired(place: Place, path: str) -> dict[str, str]:
    """Return the header with a token that is valid for two more seconds, leeway included."""
    expiry = int(time.time() + 2 - LEEWAY)
    token = place.a.token(place.url + path, sub="ann", scope="mcp", exp=expiry)
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/new", "/mcp/old"])
async def test_a_listen_stream_ends_with_a_result_when_its_token_expires(
    path: str, tmp_path: Path
) -> None:
    """At `/mcp/new` the stream is relayed to a server of the same era."""
    async with two_users(tmp_path, path) as (place, _, _):
        body, headers = stateless("subscriptions/listen", LISTEN)
        sent = {**headers, "Accept": BOTH, **soon_expired(place, path)}
        events: list[Any] = []
        async with (
            asyncio.timeout(LIMIT),
            place.web.post(place.url + path, json=body, headers=sent) as reply,
        ):
            assert reply.status == 200
            while not events or "result" not in events[-1]:
                events.append(json.loads((await next_event(reply))["data"]))
        assert events[0]["method"] == "notifications/subscriptions/acknowledged"
        assert events[-1]["result"]["resultType"] == "complete"
        assert events[-1]["id"] == body["id"]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/new", "/mcp/old"])
async def test_an_expired_token_ends_the_stream_of_a_session_but_not_the_session(
    path: str, tmp_path: Path
) -> None:
    async with two_users(tmp_path, path) as (place, ann, _):
        session = await ann.open()
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": session}
        headers |= soon_expired(place, path)
        async with (
            asyncio.timeout(LIMIT),
            place.web.get(place.url + path, headers=headers) as stream,
        ):
            assert stream.status == 200
            await stream.read()
        assert "result" in await ann.call("who", session)


async def test_a_websocket_is_closed_when_its_token_expires(tmp_path: Path) -> None:
    async with two_users(tmp_path, "/mcp") as (place, _, _):
        headers = soon_expired(place, "/mcp")
        async with (
            asyncio.timeout(LIMIT),
            place.web.ws_connect(f"{place.url}/ws", headers=headers) as socket,
        ):
            end = await socket.receive()
        assert (end.type, end.data) == (aiohttp.WSMsgType.CLOSE, 1008)


async def test_an_http_sse_stream_ends_when_its_token_expires(tmp_path: Path) -> None:
    async with two_users(tmp_path, "/sse") as (place, _, _):
        headers = soon_expired(place, "/sse")
        async with (
            asyncio.timeout(LIMIT),
            place.web.get(f"{place.url}/sse", headers=headers) as stream,
        ):
            assert (await next_event(stream))["event"] == "endpoint"
            await stream.read()
