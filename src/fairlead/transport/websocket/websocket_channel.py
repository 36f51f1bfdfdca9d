"""Channels on an open WebSocket, for clients and servers: reading, writing and closing."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Raw
from msgspec.structs import replace

from ...errors import ChannelClosed, RemoteProtocolError
from ...limits import MESSAGES_PER_TURN
from ...protocol.envelope import TransportContext
from ...protocol.json_edit import RawMembers, members_of
from ...wire import Decoder, Message, Notification, RequestId, encode, encode_success, to_json
from ...wire.error_codes import INVALID_REQUEST
from .. import timeouts
from ..channel import BufferedDelivery, Deliver, SharedStream
from ..drain_waiter import DrainWaiter
from ..line_channel import HARD_LIMIT, HIGH_WATER, closed_again

__all__ = [
    "FLOOD",
    "SUBPROTOCOL",
    "WebSocketChannel",
    "WebSocketClientChannel",
    "WebSocketClosed",
    "WebSocketConnection",
    "WriteQueue",
    "describe",
    "to_jsonrpc",
]

FLOOD = 16  # times the hard limit above which a peer that does not read is disconnected
STALLED = 60.0  # seconds without a completed write after which a slow peer is disconnected


class WriteQueue:
    """A queue that a task writes out while it is not empty.

    Above the high-water mark well-behaved senders wait. Above the hard limit the owner should stop
    reading, because responses could accumulate for a peer that does not read. Responses to earlier
    requests may still be queued. The peer is disconnected if the queue exceeds `FLOOD` times the
    hard limit, or if no frame was written for `STALLED` seconds.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        failed: Callable[[Exception], None],
        given_up: Callable[[str], None],
    ) -> None:
        """`failed` is called with the exception if `send` raises.

        `given_up` is called if the peer reads too slowly; its argument is the reason for the close
        frame.
        """
        self.congested = False
        self._send = send
        self._failed = failed
        self._given_up = given_up
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._size = 0  # bytes queued, including the frame that is being sent
        self._sent = 0  # number of frames sent
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._drained = DrainWaiter()

    @property
    def full(self) -> bool:
        return self._size > HARD_LIMIT

    def put(self, frame: bytes) -> None:
        """Queue a frame."""
        self._queue.append(frame)
        self._size += len(frame)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())
        if self._size <= HIGH_WATER:
            return
        if not self.congested:
            self.congested = True
            self._watch()
        # A single frame may be larger than the limit.
        if self._size > FLOOD * HARD_LIMIT and len(self._queue) > 1:
            self.drop()
            self._given_up("the peer left too many bytes unread")

    async def drain(self) -> None:
        """Wait until the queue is short again, or dropped."""
        while self.congested:
            await self._drained.wait()

    async def flush(self, seconds: float) -> None:
        """Write queued frames for up to `seconds`, and drop the rest."""
        if self._writer is not None:
            await asyncio.wait((self._writer,), timeout=seconds)
        self.drop()

    def drop(self) -> None:
        """Drop all queued frames."""
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None
        self._queue.clear()
        self._size = 0
        self._relieved()

    async def _write(self) -> None:
        try:
            while self._queue:
                frame = self._queue.popleft()
                await self._send(frame)
                self._size -= len(frame)
                self._sent += 1
                if self.congested and self._size <= HIGH_WATER // 2:
                    self._relieved()
            self._writer = None
        # `send` belongs to a library or an ASGI server, so any exception is possible.
        except Exception as exc:
            self._writer = None
            self.drop()
            self._failed(exc)

    def _relieved(self) -> None:
        self.congested = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drained.wake()

    def _watch(self) -> None:
        self._timer = self._loop.call_later(STALLED, self._look, self._sent)

    def _look(self, sent: int) -> None:
        if sent == self._sent:
            self.drop()
            self._given_up("the peer does not read")
        else:
            self._watch()


SUBPROTOCOL = "mcp"
LINGER = 1.0  # seconds to write queued frames, and again to wait for the peer's close frame

log = logging.getLogger("fairlead.transport")

_NAMES = {
    1000: "normal",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1005: "no code given",
    1006: "dropped without a close frame",
    1007: "invalid data",
    1008: "policy violation",
    1009: "message too big",
    1011: "internal error",
    1012: "restarting",
    1013: "try again later",
    1014: "bad gateway",
}


class WebSocketClosed(Exception):
    """The end of a WebSocket, with `code` and `reason` of RFC 6455; 1006 if it broke."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class WebSocketConnection(Protocol):
    """An open WebSocket of a library or an ASGI server."""

    @property
    def open(self) -> bool:
        """Return True if frames can still be sent."""
        ...

    async def receive(self) -> str | bytes:
        """Return the next text or binary frame.

        Raises:
            WebSocketClosed: The connection is closed.
        """
        ...

    async def send(self, frame: bytes) -> None:
        """Send a text frame; wait while the peer reads slowly.

        Raises:
            WebSocketClosed: The connection is closed.
        """

    async def close(self, code: int, reason: str) -> None:
        """Perform the closing handshake, which may take a while. Safe to call more than once."""

    def abort(self) -> None:
        """Drop the connection, if this side owns it."""


class WebSocketChannel(BufferedDelivery, SharedStream):
    """A `Channel` on a `WebSocketConnection`; subclasses select the accepted frames."""

    def __init__(self, context: TransportContext, socket: WebSocketConnection) -> None:
        super().__init__()
        self.context = context
        self.decoder = Decoder()
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._outbox = WriteQueue(
            socket.send, failed=self._unsent, given_up=lambda why: self.close_with(1008, why)
        )
        self._end: ChannelClosed | None = None  # raised by `send`
        # the error that `run` raises, if the channel ended without `close`
        self._broken: ChannelClosed | None = None
        self.farewell = (1000, "")  # code and reason of the close frame that `close` sends
        self._reader: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    # Channel

    async def run(self, deliver: Deliver) -> None:
        self.begin(deliver)
        if self._broken is not None:
            raise self._broken
        if self._closing is not None:
            return
        reader = self._reader = self._loop.create_task(self._read())
        try:
            await asyncio.wait((reader,))
        finally:
            reader.cancel()
        if self._broken is not None:
            raise self._broken

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self.write(encode(message))

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        self.write(encode_success(request_id, result))

    @property
    def congested(self) -> bool:
        return self._outbox.congested

    async def drain(self) -> None:
        await self._outbox.drain()
        if self._end is not None:
            raise closed_again(self._end)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._shut())
        await asyncio.wait((self._closing,))

    # Used by both ends

    def arrived(self, data: str | bytes) -> None:
        """Process a received frame."""
        self.take(data.encode() if isinstance(data, str) else data)

    def take(self, frame: bytes) -> None:
        """Decode a frame and deliver it."""
        try:
            item = self.decoder.decode(frame)
        except RemoteProtocolError as exc:
            self.unread(frame, exc)
        else:
            self.hand_over(item)

    def unread(self, frame: bytes, error: RemoteProtocolError) -> None:
        """Deliver the error of an invalid frame; the peer layer answers or ignores it."""
        error.excerpt = frame[:200].decode("utf-8", "replace")
        error.size, error.frame = len(frame), frame
        self.hand_over(error)

    def check_open(self) -> None:
        """Raise `ChannelClosed` if no frame can be sent."""
        if self._end is not None:
            raise closed_again(self._end)
        if not self._socket.open:
            raise ChannelClosed("WebSocket not open", delivered=False)

    def write(self, frame: bytes) -> None:
        """Queue a frame.

        Raises:
            ChannelClosed: The frame certainly cannot be delivered.
        """
        self.check_open()
        self._outbox.put(frame)

    def close_with(self, code: int, reason: str) -> None:
        """End the channel and drop all queued frames; `close` then sends this code and reason."""
        self.farewell = code, reason
        self._ended(WebSocketClosed(code, reason))
        if self._reader is not None:
            self._reader.cancel()

    async def wait_closed(self) -> None:
        """Wait until the channel has been closed."""
        await self._closed.wait()

    # Private

    async def _read(self) -> None:
        try:
            turn = MESSAGES_PER_TURN.value
            for count in itertools.count(1):
                # Each frame may cause a response, so stop reading from a peer that does not read.
                if self._outbox.full:
                    await self._outbox.drain()
                self.arrived(await self._socket.receive())
                if count % turn == 0:
                    # Frames that arrived in one packet are received without waiting.
                    await asyncio.sleep(0)
        except WebSocketClosed as exc:
            self._ended(exc)
        # A defect in `arrived` would otherwise leave an open socket that is never read.
        except Exception:
            log.exception("reading from a WebSocket failed")
            self.close_with(1011, "internal error")

    def _ended(self, gone: WebSocketClosed) -> None:
        if self._closing is not None or self._broken is not None:
            # This side has closed the connection.
            return
        self.context = replace(self.context, connected=False, close_code=gone.code)
        self._over(describe(gone.code, gone.reason))
        self._outbox.drop()
        self._broken = ChannelClosed(describe(gone.code, gone.reason))
        self._broken.__cause__ = gone.__cause__

    def _unsent(self, error: Exception) -> None:
        if isinstance(error, WebSocketClosed):
            # The reader will report the cause in more detail.
            self._over(describe(error.code, error.reason))
        else:
            log.error("writing to a WebSocket failed", exc_info=error)
            self.close_with(1011, "internal error")

    def _over(self, reason: str = "") -> None:
        """Reject all further sends."""
        if self._end is None:
            self._end = ChannelClosed(reason, delivered=False)

    async def _shut(self) -> None:
        """Write the queued frames, perform the closing handshake, and drop the connection."""
        self._over()
        try:
            await self._outbox.flush(LINGER)
            try:
                async with timeouts.timeout(LINGER):
                    await self._socket.close(*self.farewell)
            except (WebSocketClosed, TimeoutError, OSError) as exc:
                log.debug("WebSocket closing handshake failed: %s", exc)
        finally:
            self._socket.abort()
            if self._reader is not None:
                self._reader.cancel()
            self._closed.set()


class WebSocketClientChannel(WebSocketChannel):
    """A WebSocket channel that ignores objects that are neither JSON-RPC nor a response.

    An example is `{"type": "ping"}`, which some servers send.
    """

    def unread(self, frame: bytes, error: RemoteProtocolError) -> None:
        members = members_of(frame) if error.code == INVALID_REQUEST else None
        if members is None or "jsonrpc" in members or error.request_id is not None:
            super().unread(frame, error)
        elif (told := _bare_notification(members)) is not None:
            self.hand_over(told)


def describe(code: int, reason: str = "") -> str:
    """Return a readable description of how a WebSocket was closed."""
    name = f" ({_NAMES[code]})" if code in _NAMES else ""
    return f"WebSocket closed with {code}{name}" + (f": {reason}" if reason else "")


def to_jsonrpc(members: RawMembers, *names: str) -> bytes:
    """Return a JSON-RPC frame with the given members."""
    return to_json({"jsonrpc": "2.0", **{n: members[n] for n in names if n in members}})


def _bare_notification(members: RawMembers) -> Notification | None:
    """Return the notification in a frame that lacks the `jsonrpc` member, or None."""
    if "id" in members or "method" not in members:
        return None
    try:
        message = Decoder().decode(to_jsonrpc(members, "method", "params"))
    except RemoteProtocolError:
        return None
    return message if isinstance(message, Notification) else None
