"""A channel on a WebSocket: what its end is called, and how long closing it may take."""

import asyncio

import pytest

from fairlead.errors import ChannelClosed
from fairlead.protocol.envelope import TransportContext
from fairlead.transport.websocket.websocket_channel import (
    WebSocketChannel,
    WebSocketClosed,
    describe,
)
from fairlead.wire import Notification
from tests.support.virtual_time import VirtualTime


class FakeSocket:
    """A WebSocket that takes frames and a goodbye as slowly as it is told."""

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
async def test_the_end_of_a_socket_is_described_by_its_code_and_reason(
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
async def test_frames_that_are_queued_have_a_second_to_leave(
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
async def test_the_peer_has_a_second_for_its_close_frame(
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
    await reading  # no error: it ended as we wished
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
def test_close_codes_have_names(code: int, name: str) -> None:
    assert describe(code) == f"WebSocket closed with {code} ({name})"
