"""Exact responses of the fast path, on a connection without a socket."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from fairlead.protocol.envelope import TransportContext
from fairlead.transport.http.server.asgi import JSON, TEXT
from fairlead.transport.http.server.fastpath.fastpath_call import (
    FastPathCall,
    LazyTimer,
    RequestHead,
)
from tests.support.fake_http_transport import FakeHttpTransport, turns
from tests.support.virtual_time import VirtualTime


class Connection:
    """A stand-in for the attributes of a connection that a call uses."""

    def __init__(self) -> None:
        self.transport = FakeHttpTransport()
        self.flow = FlowControl(self.transport)
        self.call: FastPathCall | None = None
        self.patience = LazyTimer(asyncio.get_running_loop(), self._out_of_patience)
        self.tasks: list[asyncio.Task[None]] = []
        self.done: list[str] = []

    def _out_of_patience(self) -> None:
        assert self.call is not None
        self.call.silent()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def take_over(self, call: FastPathCall) -> None:
        self.call = call

    def fast_path_complete(self) -> None:
        self.done.append("complete")

    def drop_connection(self) -> None:
        self.done.append("drop")
        self.transport.close()


def start(*, keep_alive: bool = True) -> tuple[FastPathCall, Connection]:
    connection = Connection()
    context = TransportContext(transport_type="http", path="/mcp", peer_address="10.0.0.1")
    edge: Any = None
    head = RequestHead(edge, {b"a": b"b"}, context, None, keep_alive)
    call = FastPathCall(connection, head)
    connection.take_over(call)
    return call, connection


async def test_a_call_has_the_data_of_its_request() -> None:
    call, _ = start()
    assert call.headers == {b"a": b"b"}
    assert (call.context.path, call.context.peer_address) == ("/mcp", "10.0.0.1")
    assert call.message_event is call
    assert (call.gone, call.response_started, call.response_complete) == (False, False, False)


@pytest.mark.parametrize(
    ("keep_alive", "arguments", "written"),
    [
        (
            True,
            (200, b"{}"),
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}",
        ),
        (True, (202, b""), b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"),
        (
            False,
            (202, b"", JSON, [(b"x", b"y")]),
            b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nx: y\r\nconnection: close\r\n\r\n",
        ),
        (
            False,
            (400, b"no", TEXT),
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n"
            b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\nno",
        ),
    ],
    ids=["body", "no body", "last, no body", "last"],
)
async def test_a_complete_response_is_written_once(
    keep_alive: bool, arguments: Any, written: bytes
) -> None:
    done = ["complete"] if keep_alive else ["drop", "complete"]
    for wait in (False, True):
        call, connection = start(keep_alive=keep_alive)
        for _ in range(2):
            if wait:
                await call.answer(*arguments)
            else:
                call.answer_now(*arguments)
        assert connection.transport.written == written
        assert (connection.done, call.response_complete) == (done, True)


async def test_a_stream_is_written_in_chunks() -> None:
    call, connection = start()
    await call.open_stream()
    assert (call.response_started, call.response_complete) == (True, False)
    await call.write(b"x" * 17)
    assert connection.done == []
    await call.end()
    await call.end()
    await call.write(b"late")
    await call.open_stream()
    assert connection.transport.written == (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        b"cache-control: no-cache, no-transform\r\nx-accel-buffering: no\r\n"
        b"transfer-encoding: chunked\r\n\r\n11\r\n" + b"x" * 17 + b"\r\n0\r\n\r\n"
    )
    assert (connection.done, call.response_complete) == (["complete"], True)


async def test_writing_a_stream_waits_for_a_slow_reader() -> None:
    call, connection = start()
    await call.open_stream()
    connection.transport.written = b""
    connection.flow.pause_writing()
    writing = asyncio.ensure_future(call.write(b"x"))
    await turns()
    assert not writing.done()
    connection.flow.resume_writing()
    await writing
    assert connection.transport.written == b"1\r\nx\r\n"


async def test_writing_to_a_closing_connection_yields_to_the_loop(
    virtual_time: VirtualTime,
) -> None:
    call, connection = start()
    begun = virtual_time.now
    for closing in (False, True):
        others: list[int] = []
        asyncio.get_running_loop().call_soon(others.append, 1)
        if closing:
            connection.transport.close()
        await call.write(b"x")
        assert (others, virtual_time.now) == ([1] * closing, begun)
        await turns()


async def test_no_data_is_written_after_a_disconnect() -> None:
    call, connection = start()
    left: list[int] = []

    async def beat() -> None:
        raise AssertionError

    call.watch(lambda: left.append(1), beat, 0)
    call.set()
    call.set()
    assert (call.gone, left) == (True, [1])
    connection.flow.pause_writing()
    call.answer_now(200, b"x")
    await call.answer(200, b"x")
    await call.open_stream()
    await call.write(b"x")
    await call.end()
    call.give_up()
    assert (connection.transport.written, connection.done) == (b"", [])
    assert (call.response_complete, connection.transport.closed_at) == (False, None)
    call.watch(lambda: left.append(2), beat, 1.0)
    assert left == [1, 2], "called immediately"
    assert not connection.patience.is_set


async def test_a_disconnect_after_the_response_is_ignored() -> None:
    call, _ = start()
    left: list[int] = []

    async def beat() -> None:
        raise AssertionError

    call.watch(lambda: left.append(1), beat, 0)
    call.answer_now(200, b"x")
    call.set()
    assert (call.gone, left) == (False, [])


async def test_a_shutdown_answers_pending_calls_with_500() -> None:
    call, connection = start()
    call.give_up()
    assert connection.transport.written == (
        b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 82\r\n"
        b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
        b"500 Internal Server Error: the server was stopped before it completed the request\n"
    )
    assert connection.done == ["drop", "complete"]


@pytest.mark.parametrize("ended", [False, True])
async def test_a_shutdown_closes_open_streams(ended: bool) -> None:
    call, connection = start()
    await call.open_stream()
    if ended:
        await call.end()
    size = len(connection.transport.written)
    call.give_up()
    assert len(connection.transport.written) == size
    assert (connection.transport.closed_at is not None) == (not ended)


async def test_heartbeats_are_sent_while_no_other_data_is_written(
    virtual_time: VirtualTime,
) -> None:
    call, connection = start()
    begun = virtual_time.now
    beats: list[float] = []

    async def beat() -> None:
        beats.append(virtual_time.now - begun)

    call.watch(lambda: None, beat, 2.0)
    await asyncio.sleep(5)
    assert beats == pytest.approx([2.0, 4.0])
    connection.flow.pause_writing()
    await asyncio.sleep(2)
    assert len(beats) == 2, "no heartbeat while writing is paused"
    connection.flow.resume_writing()
    await asyncio.sleep(2)
    assert beats == pytest.approx([2.0, 4.0, 8.0])
    call.unwatch()
    assert not connection.patience.is_set
    await asyncio.sleep(5)
    call.silent()
    assert len(beats) == 3


async def test_heartbeats_are_disabled_without_an_interval(virtual_time: VirtualTime) -> None:
    call, connection = start()

    async def beat() -> None:
        raise AssertionError

    call.watch(lambda: None, beat, 0.0)
    assert not connection.patience.is_set
    await asyncio.sleep(100)
    assert connection.tasks == []


LIMIT = 10.0


class Bell:
    """A callback that counts its calls."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rang = asyncio.Event()
        self.at = 0.0
        self.times = 0

    def ring(self) -> None:
        self.at = self.loop.time()
        self.times += 1
        self.rang.set()

    async def wait(self) -> float:
        async with asyncio.timeout(LIMIT):
            await self.rang.wait()
        self.rang.clear()
        return self.at


async def test_a_timer_expires_once_after_it_was_last_set() -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(0.05)
    timer.set(0.2)
    due = bell.loop.time() + 0.2
    assert await bell.wait() >= due - 0.01
    assert bell.times == 1
    assert not timer.is_set


async def test_a_shorter_timeout_replaces_a_longer_one() -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    start = bell.loop.time()
    timer.set(60)
    timer.set(0.02)
    assert await bell.wait() - start < 5


async def test_a_cleared_timer_does_not_expire_and_can_be_set_again() -> None:
    bell, other = Bell(), Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(0.02)
    timer.clear()
    assert not timer.is_set
    LazyTimer(other.loop, other.ring).set(0.1)
    await other.wait()
    assert bell.times == 0
    timer.set(0.02)
    await bell.wait()


async def test_a_stopped_timer_does_not_expire() -> None:
    bell, other = Bell(), Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(0.02)
    timer.stop()
    LazyTimer(other.loop, other.ring).set(0.1)
    await other.wait()
    assert bell.times == 0


async def test_the_last_set_timeout_applies_whether_it_is_shorter_or_longer(
    virtual_time: VirtualTime,
) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(60)
    timer.set(10)
    await asyncio.sleep(10.5)
    assert bell.times == 1
    timer.set(100)
    await asyncio.sleep(99.5)
    assert bell.times == 1
    await asyncio.sleep(1)
    assert bell.times == 2
    await asyncio.sleep(200)
    assert bell.times == 2


async def test_a_cleared_timer_that_is_set_again_expires_at_the_new_time(
    virtual_time: VirtualTime,
) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(5)
    timer.clear()
    await asyncio.sleep(6)
    assert (bell.times, timer.is_set) == (0, False)
    timer.set(5)
    assert timer.is_set
    due = virtual_time.now + 5
    await bell.wait()
    assert (bell.at, timer.is_set) == (due, False)


async def test_a_stopped_timer_is_not_referenced_by_the_loop(virtual_time: VirtualTime) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.stop()
    timer.set(5)
    handle = timer._handle
    assert handle is not None
    timer.stop()
    assert handle.cancelled()
    assert timer._handle is None
    assert not timer.is_set
    timer.set(3)
    await asyncio.sleep(10)
    assert (bell.times, bell.at) == (1, 1003.0)


async def test_the_loop_handle_is_replaced_only_if_the_timeout_becomes_shorter(
    virtual_time: VirtualTime,
) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(5)
    first = timer._handle
    timer.set(5)
    timer.set(7)
    assert timer._handle is first
    timer.set(4)
    assert timer._handle is not first
    assert first is not None
    assert first.cancelled()
    timer.set(8)
    await asyncio.sleep(20)
    assert (bell.times, bell.at) == (1, 1008.0)
