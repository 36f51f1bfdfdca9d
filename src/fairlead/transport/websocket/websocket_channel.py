"""A channel on an open WebSocket, whoever opened it: frames in and out, and how it ends."""

import asyncio
import itertools
import logging
from typing import Protocol

from msgspec import Raw
from msgspec.structs import replace

from ...errors import ChannelClosed, RemoteProtocolError
from ...limits import MESSAGES_PER_TURN
from ...protocol.envelope import TransportContext
from ...wire import Decoder, Message, RequestId, encode, encode_success
from ..channel import Deliver, Incoming, SharedStream
from .write_queue import WriteQueue

__all__ = ["SUBPROTOCOL", "WebSocketChannel", "WebSocketClosed", "WebSocketConnection", "describe"]

SUBPROTOCOL = "mcp"
LINGER = 1.0  # seconds for what is queued to leave, and again for the peer's close frame

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
    """A socket is closed: `code` and `reason` of RFC 6455, 1006 if it just broke."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class WebSocketConnection(Protocol):
    """An open WebSocket, as a library or an ASGI server has it."""

    @property
    def open(self) -> bool:
        """Whether frames can still be sent."""
        ...

    async def receive(self) -> str | bytes:
        """The next text or binary frame. Raises `WebSocketClosed`."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send a text frame; waits while the peer reads slowly. Raises `WebSocketClosed`."""

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye; may take long. More than once is harmless."""

    def abort(self) -> None:
        """Drop the connection, where that is ours to do."""


class WebSocketChannel(SharedStream):
    """A `Channel` on a `WebSocketConnection`. Subclasses decide what it reads and skips."""

    def __init__(self, context: TransportContext, socket: WebSocketConnection) -> None:
        self.context = context
        self.decoder = Decoder()
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._outbox = WriteQueue(
            socket.send, failed=self._unsent, given_up=lambda why: self.close_with(1008, why)
        )
        self._deliver: Deliver | None = None
        self._early: list[Incoming] = []  # before anybody ran us
        self._end: ChannelClosed | None = None  # nothing can be sent any more
        self._broken: ChannelClosed | None = None  # nothing will arrive any more, not by our wish
        self._farewell = (1000, "")
        self._reader: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    # Channel

    async def run(self, deliver: Deliver) -> None:
        self._deliver = deliver
        early, self._early = self._early, []
        for item in early:
            deliver(item)
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
            raise self._refused(self._end)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._shut())
        await asyncio.wait((self._closing,))

    # What the ends use

    def arrived(self, data: str | bytes) -> None:
        """A frame came."""
        self.take(data.encode() if isinstance(data, str) else data)

    def take(self, frame: bytes) -> None:
        """Read a frame and hand it over."""
        try:
            item = self.decoder.decode(frame)
        except RemoteProtocolError as exc:
            self.unread(frame, exc)
        else:
            self.hand_over(item)

    def unread(self, frame: bytes, error: RemoteProtocolError) -> None:
        """A frame is no message: the peer layer answers or skips it."""
        error.excerpt = frame[:200].decode("utf-8", "replace")
        error.size, error.frame = len(frame), frame
        self.hand_over(error)

    def hand_over(self, item: Incoming) -> None:
        if self._deliver is None:
            self._early.append(item)
        else:
            self._deliver(item)

    def check_open(self) -> None:
        """Raises `ChannelClosed` if nothing can be sent."""
        if self._end is not None:
            raise self._refused(self._end)
        if not self._socket.open:
            raise ChannelClosed("WebSocket not open", delivered=False)

    def write(self, frame: bytes) -> None:
        """Queue a frame. Raises `ChannelClosed` if it certainly cannot be delivered."""
        self.check_open()
        self._outbox.put(frame)

    def set_close_reason(self, code: int, reason: str) -> None:
        """What to say when we close."""
        self._farewell = code, reason

    def close_with(self, code: int, reason: str) -> None:
        """End it from our side, with everything that is still queued."""
        self.set_close_reason(code, reason)
        self._ended(WebSocketClosed(code, reason))
        if self._reader is not None:
            self._reader.cancel()

    async def wait_closed(self) -> None:
        """Wait until somebody has closed it, and that is done."""
        await self._closed.wait()

    # Private

    async def _read(self) -> None:
        try:
            turn = MESSAGES_PER_TURN.value
            for count in itertools.count(1):
                if self._outbox.full:
                    await self._outbox.drain()
                self.arrived(await self._socket.receive())
                if count % turn == 0:
                    # Frames that came in one packet are received without waiting.
                    await asyncio.sleep(0)
        except WebSocketClosed as exc:
            self._ended(exc)
        except Exception:
            log.exception("a WebSocket could not be read")
            self.close_with(1011, "internal error")

    def _ended(self, gone: WebSocketClosed) -> None:
        if self._closing is not None or self._broken is not None:
            return  # as we wished
        self.context = replace(self.context, connected=False, close_code=gone.code)
        self._over(describe(gone.code, gone.reason))
        self._outbox.drop()
        self._broken = ChannelClosed(describe(gone.code, gone.reason))
        self._broken.__cause__ = gone.__cause__

    def _unsent(self, error: Exception) -> None:
        if isinstance(error, WebSocketClosed):
            self._over(describe(error.code, error.reason))  # the reader learns more about why
        else:
            log.error("a WebSocket could not be written", exc_info=error)
            self.close_with(1011, "internal error")

    def _over(self, reason: str = "") -> None:
        """From now on nothing can be sent."""
        if self._end is None:
            self._end = ChannelClosed(reason, delivered=False)

    async def _shut(self) -> None:
        """Let what is queued leave, say goodbye, and drop whatever does not end by itself."""
        self._over()
        try:
            await self._outbox.flush(LINGER)
            try:
                async with asyncio.timeout(LINGER):
                    await self._socket.close(*self._farewell)
            except (WebSocketClosed, TimeoutError, OSError) as exc:
                log.debug("no proper end of a WebSocket: %s", exc)
        finally:
            self._socket.abort()
            if self._reader is not None:
                self._reader.cancel()
            self._closed.set()

    @staticmethod
    def _refused(end: ChannelClosed) -> ChannelClosed:
        return ChannelClosed(end.reason, delivered=False, public=end.public)


def describe(code: int, reason: str = "") -> str:
    """How a WebSocket ended, for people."""
    name = f" ({_NAMES[code]})" if code in _NAMES else ""
    return f"WebSocket closed with {code}{name}" + (f": {reason}" if reason else "")
