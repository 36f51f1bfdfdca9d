"""Tests of WebSocket channels: delivery, close codes, queue limits and timeouts."""

import asyncio
from typing import Any

import pytest

from fairlead.errors import ChannelClosed
from fairlead.limits import MESSAGES_PER_TURN
from fairlead.protocol.envelope import TransportContext
from fairlead.transport.line_channel import HARD_LIMIT, HIGH_WATER
from fairlead.transport.websocket.websocket_channel import (
    WebSocketChannel,
    WebSocketClosed,
    WriteQueue,
    describe,
)
from fairlead.wire import Notification
from tests.support.virtual_time import VirtualTime


class FakeSocket:
    """A WebSocket that delays frames and the close handshake."""

    def __init__(self, *, send: float = 0, close: float = 0) -> None:
        self.open, self.aborted = True, False
        self.sent: list[bytes] = []
        self.farewells: list[tuple[int, str]] = []
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send, self._close = send, close

    async def receive(self) -> str | bytes:
        await self.end
        raise AssertionError

    async def send(self, frame: bytes) -> None:
        await asyncio.sleep(self._send)
        self.sent.append(frame)

    async def close(self, code: int, reason: str) -> None:
        self.farewells.append((code, reason))
        await asyncio.sleep(self._close)

    def abort(self) -> None:
        self.aborted = True


def channel_on(socket: FakeSocket) -> WebSocketChannel:
    return WebSocketChannel(TransportContext(transport_type="websocket"), socket)


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        (WebSocketClosed(1006), "WebSocket closed with 1006 (dropped without a close frame)"),
        (WebSocketClosed(1008, "no"), "WebSocket closed with 1008 (policy violation): no"),
        (WebSocketClosed(4000), "WebSocket closed with 4000"),
    ],
)
async def test_the_error_of_a_closed_websocket_contains_code_and_reason(
    gone: WebSocketClosed, text: str
) -> None:
    socket = FakeSocket()
    channel = channel_on(socket)
    socket.end.set_exception(gone)
    with pytest.raises(ChannelClosed) as ended:
        await channel.run(lambda item: None)
    assert ended.value.reason == text
    assert (channel.context.connected, channel.context.close_code) == (False, gone.code)
    with pytest.raises(ChannelClosed) as refused:
        channel.write(b"{}")
    assert refused.value.delivered is False
    await channel.close()


@pytest.mark.parametrize(("each", "left"), [(0.4, 2), (0.9, 1), (1.1, 0)])
async def test_closing_waits_one_second_for_queued_frames(
    virtual_time: VirtualTime, each: float, left: int
) -> None:
    socket = FakeSocket(send=each)
    channel = channel_on(socket)
    for _ in range(3):
        channel.send(Notification("notifications/x"))
    begun = virtual_time.now
    await channel.close()
    assert len(socket.sent) == left
    assert virtual_time.now - begun == pytest.approx(1.0)
    assert (socket.farewells, socket.aborted) == ([(1000, "")], True)


@pytest.mark.parametrize(("seconds", "took"), [(0.9, 0.9), (5, 1.0)])
async def test_the_peer_has_one_second_for_its_close_frame(
    virtual_time: VirtualTime, seconds: float, took: float
) -> None:
    socket = FakeSocket(close=seconds)
    channel = channel_on(socket)
    reading = asyncio.ensure_future(channel.run(lambda item: None))
    await asyncio.sleep(0)
    begun = virtual_time.now
    await asyncio.gather(channel.close(), channel.close())
    assert virtual_time.now - begun == pytest.approx(took)
    await channel.wait_closed()
    await reading  # no error, because this side closed the connection
    assert (socket.farewells, socket.aborted) == ([(1000, "")], True)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (1000, "normal"),
        (1001, "going away"),
        (1002, "protocol error"),
        (1003, "unsupported data"),
        (1005, "no code given"),
        (1006, "dropped without a close frame"),
        (1007, "invalid data"),
        (1008, "policy violation"),
        (1009, "message too big"),
        (1011, "internal error"),
        (1012, "restarting"),
        (1013, "try again later"),
        (1014, "bad gateway"),
    ],
)
def test_the_description_of_a_close_code_contains_its_name(code: int, name: str) -> None:
    assert describe(code) == f"WebSocket closed with {code} ({name})"


class TalkingSocket(FakeSocket):
    """A WebSocket that receives the given frames and then its end."""

    def __init__(self, *frames: str | bytes, end: Exception | None = None, **more: float) -> None:
        super().__init__(**more)
        self.frames = list(frames)
        self._problem = end

    async def receive(self) -> str | bytes:
        if self.frames:
            return self.frames.pop(0)
        if self._problem is not None:
            raise self._problem
        await self.end
        raise AssertionError


NOTE = '{"jsonrpc":"2.0","method":"n"}'


async def test_valid_frames_are_delivered_as_messages_and_invalid_ones_as_errors() -> None:
    noise = b"n\xff" + b"o" * 300
    channel = channel_on(TalkingSocket(NOTE, NOTE.encode(), noise, end=WebSocketClosed(1000)))
    got: list[Any] = []
    with pytest.raises(ChannelClosed, match=r"1000 \(normal\)"):
        await channel.run(got.append)
    assert got[:2] == [Notification("n"), Notification("n")]
    error = got[2]
    assert (error.excerpt, error.size, error.frame) == ("n�" + "o" * 198, 302, noise)
    with pytest.raises(ChannelClosed):
        await channel.run(got.append)
    await channel.close()


async def test_items_that_arrive_before_run_are_delivered_first() -> None:
    channel = channel_on(TalkingSocket(NOTE, end=WebSocketClosed(1001, "bye")))
    channel.hand_over(Notification("early"))
    got: list[Any] = []
    with pytest.raises(ChannelClosed, match="bye"):
        await channel.run(got.append)
    assert got == [Notification("early"), Notification("n")]
    await channel.close()


async def test_a_websocket_whose_reader_fails_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    socket = TalkingSocket(end=ValueError("odd"))
    channel = channel_on(socket)
    with pytest.raises(ChannelClosed, match=r"1011 \(internal error\): internal error"):
        await channel.run(lambda item: None)
    assert "reading from a WebSocket failed" in caplog.text
    await channel.close()
    assert socket.farewells == [(1011, "internal error")]


async def test_queued_frames_are_dropped_when_the_websocket_closes(
    virtual_time: VirtualTime,
) -> None:
    socket = TalkingSocket(send=5.0)
    channel = channel_on(socket)
    running = asyncio.ensure_future(channel.run(lambda item: None))
    for _ in range(3):
        channel.write(b"x" * (1 << 20))
    assert channel.congested
    draining = asyncio.ensure_future(channel.drain())
    await asyncio.sleep(1)
    socket.end.set_exception(WebSocketClosed(1006))
    with pytest.raises(ChannelClosed):
        await running
    with pytest.raises(ChannelClosed) as refused:
        await draining
    assert (refused.value.delivered, channel.congested) == (False, False)
    await asyncio.sleep(60)
    assert socket.sent == []
    await channel.close()


@pytest.mark.parametrize("problem", [WebSocketClosed(1006, "gone"), ValueError("odd")])
async def test_a_frame_that_cannot_be_sent_ends_the_channel(problem: Exception) -> None:
    socket = FakeSocket()

    async def fail(frame: bytes) -> None:
        raise problem

    socket.send = fail  # type: ignore[method-assign]
    channel = channel_on(socket)
    running = asyncio.ensure_future(channel.run(lambda item: None))
    channel.write(b"{}")
    for _ in range(5):
        await asyncio.sleep(0)
    reason = "1006" if isinstance(problem, WebSocketClosed) else "internal error"
    with pytest.raises(ChannelClosed, match=reason) as refused:
        channel.write(b"{}")
    assert refused.value.delivered is False
    assert running.done() == isinstance(problem, ValueError), (
        "if the socket is closed, its reader ends the channel"
    )
    await channel.close()
    await asyncio.wait((running,))
    running.exception()


async def test_sending_fails_while_a_channel_closes_or_the_websocket_is_not_open(
    virtual_time: VirtualTime,
) -> None:
    socket = FakeSocket(close=0.5)
    channel = channel_on(socket)
    channel.farewell = (1001, "bye")
    closing = asyncio.ensure_future(channel.close())
    await asyncio.sleep(0.1)
    for attempt in (lambda: channel.write(b"{}"), lambda: channel.send(Notification("n"))):
        with pytest.raises(ChannelClosed) as refused:
            attempt()
        assert refused.value.delivered is False
    with pytest.raises(ChannelClosed):
        await channel.drain()
    await closing
    assert (socket.sent, socket.farewells) == ([], [(1001, "bye")])
    await channel.run(lambda item: None)
    other = FakeSocket()
    other.open = False
    with pytest.raises(ChannelClosed, match="WebSocket not open") as refused:
        channel_on(other).write(b"{}")
    assert refused.value.delivered is False


async def test_other_tasks_run_between_many_frames() -> None:
    frames = [NOTE] * (2 * MESSAGES_PER_TURN.value + 1)
    channel = channel_on(TalkingSocket(*frames, end=WebSocketClosed(1000)))
    got: list[Any] = []
    seen: list[int] = []

    def look() -> None:
        seen.append(len(got))
        if len(got) < len(frames):
            asyncio.get_running_loop().call_soon(look)

    asyncio.get_running_loop().call_soon(look)
    with pytest.raises(ChannelClosed):
        await channel.run(got.append)
    assert len(got) == len(frames)
    turn = MESSAGES_PER_TURN.value
    assert {turn, 2 * turn} <= set(seen)
    await channel.close()


async def test_reading_waits_while_the_write_queue_is_full(virtual_time: VirtualTime) -> None:
    socket = TalkingSocket(NOTE, send=3.0)
    channel = channel_on(socket)
    channel.write(b"x" * (HARD_LIMIT + 1))
    got: list[Any] = []
    running = asyncio.ensure_future(channel.run(got.append))
    await asyncio.sleep(2.9)
    assert got == []
    await asyncio.sleep(0.2)
    assert got == [Notification("n")]
    await channel.close()
    await running


async def turns() -> None:
    """Run all callbacks that are due."""
    for _ in range(5):
        await asyncio.sleep(0)


class SlowPeer:
    """A peer that reads one frame whenever the test allows it."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(0)
        self.taken: list[int] = []
        self.failures: list[Exception] = []
        self.given_up: list[str] = []
        self.queue = WriteQueue(
            self._send, failed=self.failures.append, given_up=self.given_up.append
        )

    async def _send(self, frame: bytes) -> None:
        await self.turns.acquire()
        self.taken.append(len(frame))


async def test_a_peer_that_reads_nothing_for_a_minute_is_disconnected(
    virtual_time: VirtualTime,
) -> None:
    peer = SlowPeer()
    for _ in range(3):
        peer.queue.put(bytes(HIGH_WATER))
    for _ in range(2):  # the time limit starts again with each frame that is read
        await asyncio.sleep(59)
        assert peer.given_up == []
        peer.turns.release()
        await asyncio.sleep(1)
    assert peer.queue.congested
    await asyncio.sleep(59)
    assert peer.given_up == []
    await asyncio.sleep(1)
    assert peer.given_up == ["the peer does not read"]
    assert (peer.queue.congested, peer.queue.full) == (False, False)


async def test_a_write_queue_at_the_high_water_mark_has_no_time_limit(
    virtual_time: VirtualTime,
) -> None:
    peer = SlowPeer()
    peer.queue.put(bytes(HIGH_WATER))
    await asyncio.sleep(600)
    assert (peer.given_up, peer.queue.congested) == ([], False)
    peer.queue.drop()
    crowded = SlowPeer()
    crowded.queue.put(bytes(HIGH_WATER))
    crowded.queue.put(b"x")
    assert crowded.queue.congested
    crowded.turns.release()
    await crowded.queue.drain()
    assert crowded.taken == [HIGH_WATER]
    await asyncio.sleep(600)
    assert crowded.given_up == []
    crowded.queue.drop()


async def test_a_queue_over_sixteen_times_the_hard_limit_is_dropped() -> None:
    peer = SlowPeer()
    # The queue counts the bytes of one object repeatedly and makes no copies.
    frame = bytes(HARD_LIMIT)
    peer.queue.put(frame)
    assert not peer.queue.full
    for _ in range(15):
        peer.queue.put(frame)
    assert (peer.given_up, peer.queue.full) == ([], True)
    peer.queue.put(b"x")
    assert peer.given_up == ["the peer left too many bytes unread"]
    assert not peer.queue.full
    await asyncio.sleep(0)


@pytest.mark.parametrize(("seconds", "taken"), [(3.0, [1, 2]), (0.5, [])])
async def test_flush_writes_queued_frames_in_time_or_drops_them(
    virtual_time: VirtualTime, seconds: float, taken: list[int]
) -> None:
    peer = SlowPeer()
    peer.queue.put(b"x")
    peer.queue.put(b"xx")
    loop = asyncio.get_running_loop()
    for later in (1.0, 2.0):
        loop.call_later(later, peer.turns.release)
    begun = virtual_time.now
    await peer.queue.flush(seconds)
    assert virtual_time.now - begun == pytest.approx(min(seconds, 2.0))
    await asyncio.sleep(5)
    assert peer.taken == taken


async def test_a_dropped_queue_writes_no_frames_until_new_frames_are_queued() -> None:
    peer = SlowPeer()
    peer.queue.put(b"x")
    peer.queue.put(b"xx")
    await asyncio.sleep(0)
    peer.queue.drop()
    peer.queue.put(b"xxx")
    for _ in range(3):
        peer.turns.release()
    await turns()
    assert peer.taken == [3]


@pytest.mark.parametrize(
    ("left", "congested"), [(HIGH_WATER // 2, False), (HIGH_WATER // 2 + 1, True)]
)
async def test_senders_resume_at_half_of_the_high_water_mark(left: int, congested: bool) -> None:
    peer = SlowPeer()
    peer.queue.put(bytes(HIGH_WATER))
    assert not peer.queue.congested
    peer.queue.put(bytes(left))
    assert peer.queue.congested
    peer.turns.release()
    await turns()
    assert peer.queue.congested is congested
    peer.queue.drop()
    assert not peer.queue.congested
    await peer.queue.drain()


async def test_a_failed_write_drops_the_remaining_frames_and_is_reported() -> None:
    failures: list[Exception] = []

    async def fail(frame: bytes) -> None:
        raise OSError("gone")

    queue = WriteQueue(fail, failed=failures.append, given_up=lambda why: None)
    for _ in range(3):
        queue.put(bytes(HIGH_WATER))
    await queue.drain()
    assert [str(one) for one in failures] == ["gone"]
    assert (queue.congested, queue.full) == (False, False)


async def test_a_single_frame_may_exceed_the_queue_limit() -> None:
    peer = SlowPeer()

    class Huge(bytes):
        def __len__(self) -> int:
            return 16 * HARD_LIMIT + 1

    peer.queue.put(Huge())
    assert peer.given_up == []
    peer.queue.put(b"x")  # a second frame exceeds the limit
    assert peer.given_up == ["the peer left too many bytes unread"]
    await asyncio.sleep(0)
