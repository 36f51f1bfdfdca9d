"""Tests of line channels over memory, Unix sockets and TCP, on both event loops."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPServer
from fairlead.errors import ChannelClosed, ConnectFailed, RemoteProtocolError
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.channel import Deliver, Incoming, SharedStream, complete_channel
from fairlead.transport.line_channel import HARD_LIMIT, LineChannel
from fairlead.transport.memory import memory_pair
from fairlead.transport.socket import connect_tcp, connect_unix
from fairlead.wire import Message, Notification, Request, RequestId, Success
from tests.support.line_sockets import listen_tcp, listen_unix

Pair = Callable[[], "contextlib.AbstractAsyncContextManager[tuple[LineChannel, LineChannel]]"]


@contextlib.asynccontextmanager
async def memory(limit: int = 1 << 24) -> AsyncIterator[tuple[LineChannel, LineChannel]]:
    yield memory_pair(limit=limit)


@contextlib.asynccontextmanager
async def tcp(limit: int = 1 << 24) -> AsyncIterator[tuple[LineChannel, LineChannel]]:
    accepted: asyncio.Future[LineChannel] = asyncio.get_running_loop().create_future()
    async with listen_tcp("127.0.0.1", 0, accepted.set_result, limit=limit) as server:
        port = server.sockets[0].getsockname()[1]
        yield await connect_tcp("127.0.0.1", port, limit=limit), await accepted


@contextlib.asynccontextmanager
async def unix(limit: int = 1 << 24) -> AsyncIterator[tuple[LineChannel, LineChannel]]:
    accepted: asyncio.Future[LineChannel] = asyncio.get_running_loop().create_future()
    path = f"/tmp/fairlead-test-{os.getpid()}.sock"
    async with listen_unix(path, accepted.set_result, limit=limit):
        yield await connect_unix(path, limit=limit), await accepted


@pytest.fixture(params=[memory, tcp, unix], ids=lambda f: f.__name__)
def pair(request: pytest.FixtureRequest) -> Pair:
    return request.param  # type: ignore[no-any-return]


class Reader:
    """Runs a channel and stores the delivered items."""

    def __init__(self, channel: LineChannel) -> None:
        self.got: asyncio.Queue[Incoming] = asyncio.Queue()
        self.task: asyncio.Task[None] = asyncio.create_task(channel.run(self.got.put_nowait))

    def next(self) -> Awaitable[Incoming]:
        return asyncio.wait_for(self.got.get(), 10)


async def close_all(*channels: LineChannel) -> None:
    await asyncio.gather(*(channel.close() for channel in channels))


@pytest.mark.covers("TRN-14", "TRN-18")
async def test_messages_arrive_in_order_in_both_directions(pair: Pair, loop_kind: str) -> None:
    async with pair() as (left, right):
        here, there = Reader(left), Reader(right)
        for i in range(100):
            left.send(Request(i, "ask", Raw(b'{"n":%d}' % i)))
            right.send_success(i, Raw(b"{}"))
        for i in range(100):
            assert await there.next() == Request(i, "ask", Raw(b'{"n":%d}' % i))
            assert await here.next() == Success(i, Raw(b"{}"))
        await close_all(left, right)
        await asyncio.gather(here.task, there.task)


async def test_messages_sent_before_closing_are_delivered(pair: Pair) -> None:
    async with pair() as (left, right):
        left.send(Notification("last words", Raw(b'{"x":"' + b"y" * 300_000 + b'"}')))
        closing = asyncio.create_task(left.close())
        there = Reader(right)
        message = await there.next()
        assert isinstance(message, Notification)
        assert message.method == "last words"
        await there.task  # raises no error, because the peer ended its side
        await close_all(right)
        await closing


@pytest.mark.covers("TRN-08")
async def test_a_closed_channel_refuses_to_send(pair: Pair) -> None:
    async with pair() as (left, right):
        await left.close()
        await left.close()  # a second call has no effect
        with pytest.raises(ChannelClosed) as refused:
            left.send(Notification("x"))
        assert refused.value.delivered is False
        await right.close()


async def test_an_invalid_line_does_not_close_the_connection(pair: Pair) -> None:
    async with pair() as (left, right):
        there = Reader(right)
        left.write(b"this is no json\n\n  \n")
        left.write(b'{"jsonrpc":"2.0","method":"ok"}\n')
        bad = await there.next()
        assert isinstance(bad, RemoteProtocolError)
        assert (bad.code, bad.excerpt) == (-32700, "this is no json")
        assert await there.next() == Notification("ok")
        await close_all(left, right)


@pytest.mark.covers("RPC-08")
async def test_a_line_over_the_limit_is_reported_once_and_dropped(pair: Pair) -> None:
    async with pair(limit=1000) as (left, right):  # type: ignore[call-arg]
        there = Reader(right)
        left.write(b'{"jsonrpc":"2.0","method":"' + b"m" * 500_000 + b'"}\n')
        left.write(b'{"jsonrpc":"2.0","method":"ok"}\n')
        bad = await there.next()
        assert isinstance(bad, RemoteProtocolError)
        assert "over the limit of 1000" in str(bad)
        assert bad.size == 500_029
        assert await there.next() == Notification("ok")
        await close_all(left, right)


@pytest.mark.covers("TRN-13")
async def test_back_pressure_reaches_the_sending_task(pair: Pair) -> None:
    async with pair() as (left, right):
        while not left.congested:
            left.send(Notification("n", Raw(b'{"x":"' + b"y" * 100_000 + b'"}')))
        draining = asyncio.create_task(left.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        there = Reader(right)
        async with asyncio.timeout(10):
            await draining
        assert not left.congested
        await close_all(left, right)
        await there.task


async def test_reading_stops_if_responses_accumulate_for_a_peer_that_does_not_read() -> None:
    left, right = memory_pair()
    there = Reader(right)
    payload = Raw(b'{"x":"' + b"y" * (1 << 20) + b'"}')
    for i in range(HARD_LIMIT // (1 << 20) + 2):
        right.send_success(i, payload)  # the left end does not read, because it is not run yet
    left.send(Notification("ignored for now"))
    await asyncio.sleep(0.01)
    assert there.got.empty()
    here = Reader(left)
    assert await there.next() == Notification("ignored for now")
    await close_all(left, right)
    await asyncio.gather(here.task, there.task)


@pytest.mark.covers("TRN-13")
async def test_close_does_not_wait_for_a_peer_that_does_not_read(pair: Pair) -> None:
    async with pair() as (left, right):
        for _ in range(20):
            left.send(Notification("n", Raw(b'{"x":"' + b"y" * 1_000_000 + b'"}')))
        async with asyncio.timeout(5):
            await left.close()
        await right.close()


async def test_the_error_of_a_failed_connection_contains_the_address(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed, match="nobody.sock"):
        await connect_unix(str(tmp_path / "nobody.sock"))
    with pytest.raises(ConnectFailed, match="127.0.0.1:1"):
        await connect_tcp("127.0.0.1", 1)


class OwnChannel:
    """A custom channel that lacks all optional members."""

    def __init__(self, inner: LineChannel) -> None:
        self._inner = inner
        self.context = inner.context
        self.sent: list[Message] = []

    async def run(self, deliver: Deliver) -> None:
        await self._inner.run(deliver)

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self.sent.append(message)
        self._inner.send(message)

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        self._inner.send_success(request_id, result)

    @property
    def congested(self) -> bool:
        return self._inner.congested

    async def drain(self) -> None:
        await self._inner.drain()

    async def close(self) -> None:
        await self._inner.close()


async def test_a_channel_that_lacks_optional_members_gets_their_defaults() -> None:
    channel: Any = OwnChannel(memory_pair()[0])
    assert complete_channel(channel) is channel
    hooks = [name for name in vars(SharedStream) if not name.startswith("_")]
    assert [name for name in hooks if not hasattr(channel, name)] == []
    assert (channel.id, channel.carries_headers, channel.correlates_calls) == (None, False, False)
    assert (channel.related_request_id, channel.waits_for_events(1)) == (None, False)
    channel.add_headers(1, {"a": "b"})
    channel.send_request(7, "tools/call", Raw(b"{}"))
    assert channel.sent == [Request(7, "tools/call", Raw(b"{}"))]


async def test_optional_members_of_a_channel_are_kept() -> None:
    class WithStreams(OwnChannel):
        correlates_calls = True

        def waits_for_events(self, request_id: RequestId) -> bool:
            return True

    channel: Any = complete_channel(WithStreams(memory_pair()[0]))  # type: ignore[arg-type]
    assert (channel.correlates_calls, channel.waits_for_events(1)) == (True, True)


def test_a_channel_with_slots_that_lacks_optional_members_is_rejected() -> None:
    class Closed:
        __slots__ = ()

    with pytest.raises(TypeError, match="Closed has no `logins`: derive it from SharedStream"):
        complete_channel(Closed())  # type: ignore[arg-type]


async def test_a_client_can_use_a_custom_channel() -> None:
    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    async def open_channel() -> Any:
        ours, theirs = memory_pair()
        server.attach(theirs, ANONYMOUS)
        return OwnChannel(ours)

    async with asyncio.timeout(10), MCPClient.connect_channel(open_channel) as client:
        assert (await client.call("add", {"a": 1, "b": 2})).text == "3"
