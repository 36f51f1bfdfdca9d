"""Termination of sessions whose client closes or is cancelled while they are being opened."""

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.errors import ChannelClosed, FairleadError
from fairlead.transport.http.client.http1.http_client import HttpResponse
from fairlead.transport.http.client.http_channel import HttpChannel
from fairlead.transport.http.client.session_teardown import (
    DELETE_GRACE,
    HEAR_OUT,
    SessionTeardown,
)
from tests.support.scripted_door import Asked, ScriptedDoor, reply
from tests.support.scripted_http_server import Call, connected, peer_over, raw_server, shake_hands
from tests.support.virtual_time import VirtualTime

LIMIT = 10.0
CONFIG = MCPClientConfig(protocol_version="2025-11-25", timeout_seconds=LIMIT, max_retries=0)
RESULT = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}

# Points at which the server pauses the handshake until the client has begun to close.
PLACES = ["before the head", "before the answer", "inside the answer", "after the answer"]


class Counter:
    """A server that counts its sessions and pauses while it opens session `number`."""

    def __init__(self, place: str, number: int) -> None:
        self.there = asyncio.Event()  # set when the server has paused
        self.leaving = asyncio.Event()  # set to let the server continue
        self.open: set[str] = set()
        self.given = 0
        self._place = place
        self._number = number

    async def __call__(self, call: Call) -> None:
        session = call.headers.get("mcp-session-id", "")
        if call.rpc == "initialize":
            await self._begin(call)
        elif session not in self.open:
            await call.answer(404)
        elif call.rpc == "DELETE":
            self.open.remove(session)
            await call.answer(200)
        elif call.rpc == "GET":
            await call.answer(405)
        elif call.rpc.startswith("notifications/"):
            await self._stop("after the answer")
            await call.accept()
        else:
            await call.result({})

    async def _begin(self, call: Call) -> None:
        self.given += 1
        session = f"s{self.given}"
        self.open.add(session)
        await self._stop("before the head")
        await call.begin_events(Mcp_Session_Id=session)
        await self._stop("before the answer")
        answer = {"jsonrpc": "2.0", "id": call.message["id"], "result": RESULT}
        await call.chunk(b"data: ")
        await self._stop("inside the answer")
        await call.chunk(json.dumps(answer).encode() + b"\n\n")
        await call.end()

    async def _stop(self, place: str) -> None:
        if self._place == place and self.given == self._number:
            self.there.set()
            await self.leaving.wait()


async def leave(counter: Counter, close: Callable[[], Awaitable[Any]]) -> None:
    """Close the client while the server is paused, then let the server continue."""
    async with asyncio.timeout(LIMIT):
        await counter.there.wait()
        closing = asyncio.ensure_future(close())
        for _ in range(20):
            await asyncio.sleep(0)
        counter.leaving.set()
        await closing


@pytest.mark.parametrize("place", PLACES)
async def test_closing_during_a_renewal_terminates_the_new_session(place: str) -> None:
    counter = Counter(place, 2)
    async with raw_server(counter) as server, connected(server.url) as (peer, channel):
        await peer.request("tools/list")
        counter.open.clear()
        call = asyncio.ensure_future(peer.request("tools/list"))
        await leave(counter, channel.close)
        with pytest.raises(FairleadError):
            await call
        assert counter.given == 2
        assert counter.open == set()


@pytest.mark.parametrize("place", PLACES)
async def test_closing_while_connecting_terminates_the_session(place: str) -> None:
    counter = Counter(place, 1)
    async with raw_server(counter) as server, peer_over(HttpChannel(server.url)) as peer:
        opening = asyncio.ensure_future(shake_hands(peer))
        await leave(counter, peer.close)
        # With "after the answer", the handshake is already complete.
        with contextlib.suppress(ChannelClosed):
            await opening
        assert counter.given == 1
        assert counter.open == set()


@pytest.mark.parametrize("place", PLACES)
async def test_cancelling_a_client_while_connecting_terminates_the_session(place: str) -> None:
    counter = Counter(place, 1)
    async with raw_server(counter) as server:

        async def visit() -> None:
            async with MCPClient.connect_http(server.url, CONFIG) as client:
                await client.list_tools()
                await asyncio.get_running_loop().create_future()

        visiting = asyncio.create_task(visit())

        async def cancel() -> None:
            visiting.cancel()
            await asyncio.wait((visiting,))

        await leave(counter, cancel)
        assert visiting.cancelled()
        assert counter.given == 1
        assert counter.open == set()


async def test_cancelling_a_client_during_a_renewal_terminates_the_new_session() -> None:
    counter = Counter("before the head", 2)
    async with raw_server(counter) as server:

        async def visit() -> None:
            async with MCPClient.connect_http(server.url, CONFIG) as client:
                counter.open.clear()
                await client.request("tools/list")

        visiting = asyncio.create_task(visit())

        async def cancel() -> None:
            visiting.cancel()
            await asyncio.wait((visiting,))

        await leave(counter, cancel)
        assert visiting.cancelled()
        assert counter.given == 2
        assert counter.open == set()


@pytest.mark.parametrize("number", [1, 2])
async def test_closing_waits_a_limited_time_for_a_server_that_never_responds(number: int) -> None:
    counter = Counter("before the head", number)
    async with raw_server(counter) as server, peer_over(HttpChannel(server.url)) as peer:

        async def talk() -> None:
            await shake_hands(peer)
            counter.open.clear()
            await peer.request("tools/list")

        talking = asyncio.ensure_future(talk())
        await counter.there.wait()
        began = time.monotonic()
        await peer.close()
        assert time.monotonic() - began < HEAR_OUT + DELETE_GRACE + 2
        with pytest.raises(ChannelClosed):
            await talking


async def test_closing_does_not_wait_for_an_initialize_request_that_was_not_sent() -> None:
    """An unanswered TLS handshake sends no request, so no session must be ended."""
    greeted, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            greeted.set()
        writer.close()
        left.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server, peer_over(HttpChannel(url)) as peer:
        opening = asyncio.ensure_future(shake_hands(peer))
        await greeted.wait()
        began = time.monotonic()
        await peer.close()
        assert time.monotonic() - began < HEAR_OUT / 2
        with pytest.raises(ChannelClosed):
            await opening
        await left.wait()


# Without a network


def teardown(answer: Any) -> tuple[SessionTeardown, ScriptedDoor]:
    door: Any = ScriptedDoor(answer)
    return SessionTeardown(door, lambda session: {"Mcp-Session-Id": session}), door


@pytest.mark.parametrize(("seconds", "ended"), [(1.9, ["s"]), (2.1, [])])
async def test_a_cancelled_initialize_is_awaited_for_two_seconds(
    virtual_time: VirtualTime, seconds: float, ended: list[str]
) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        if asked.method == "POST":
            await asyncio.sleep(seconds)
        return reply(200, Mcp_Session_Id="s")

    ends, door = teardown(answer)
    opening = asyncio.create_task(ends.open({}, b"{}"))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    begun = virtual_time.now
    await ends.wait()
    assert virtual_time.now - begun == pytest.approx(min(seconds, 2.0))
    assert [asked.headers["mcp-session-id"] for asked in door.of("DELETE")] == ended


async def test_teardown_does_not_wait_for_an_initialize_that_was_cancelled_before_it_was_sent(
    virtual_time: VirtualTime,
) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        await asyncio.sleep(100)
        return reply(200)

    ends, door = teardown(answer)
    door.reached = False
    opening = asyncio.create_task(ends.open({}, b"{}"))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait((opening,))
    begun = virtual_time.now
    await ends.wait()
    assert virtual_time.now == begun


@pytest.mark.parametrize("given", [None, "s"])
async def test_a_delete_request_is_sent_only_for_an_assigned_session(given: str | None) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        return reply(200, **({"Mcp_Session_Id": given} if given else {}))

    ends, door = teardown(answer)
    assert (await ends.open({}, b"{}")).status == 200
    ends.end(given)
    await ends.wait()
    assert len(door.of("DELETE")) == (given is not None)


async def test_the_delete_request_times_out_after_two_seconds(virtual_time: VirtualTime) -> None:
    async def answer(asked: Asked) -> HttpResponse:
        await asyncio.sleep(100)
        return reply(200)

    ends, _ = teardown(answer)
    begun = virtual_time.now
    ends.end("s")
    await ends.wait()
    assert virtual_time.now - begun == pytest.approx(2.0)


async def test_a_failed_delete_request_is_ignored() -> None:
    async def answer(asked: Asked) -> HttpResponse:
        raise ChannelClosed("gone")

    ends, _ = teardown(answer)
    ends.end("s")
    await ends.wait()
