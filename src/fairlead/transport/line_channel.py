"""Channels that send messages as lines of JSON over a byte stream: pipes, sockets and memory."""

import asyncio
import contextlib
import logging
import os
import sys
from typing import NoReturn, Protocol, cast

from msgspec import Raw

from ..errors import ChannelClosed, RemoteProtocolError
from ..limits import MESSAGE_BYTES, WRITE_QUEUE
from ..protocol.envelope import TransportContext
from ..wire import (
    MAX_MESSAGE,
    Decoder,
    LineSplitter,
    Message,
    RequestId,
    TooLong,
    answered_by,
    encode,
    encode_request,
    encode_success,
)
from ..wire.error_codes import INVALID_REQUEST
from . import timeouts
from .channel import Deliver, SharedStream
from .drain_waiter import DrainWaiter

__all__ = [
    "HIGH_WATER",
    "ByteSink",
    "ByteSource",
    "LineChannel",
    "ReadPipeProtocol",
    "SocketProtocol",
    "WritePipeProtocol",
    "closed_again",
]

HIGH_WATER = 1 << 20  # bytes queued for writing above which `congested` is set
HARD_LIMIT = WRITE_QUEUE.value
JOIN = 32  # maximum number of messages that are written together
LINGER = 2.0  # seconds in which queued bytes must be written when the channel is closed

log = logging.getLogger("fairlead.transport")


class ByteSource(Protocol):
    """A source of bytes, for example a read transport of asyncio."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class ByteSink(Protocol):
    """A destination of bytes, for example a write transport of asyncio."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class LineChannel(SharedStream):
    """A `Channel` that reads lines from a `ByteSource` and writes lines to a `ByteSink`."""

    def __init__(self, context: TransportContext, *, limit: int = MAX_MESSAGE) -> None:
        self.context = context
        self.congested = False
        self._loop = asyncio.get_running_loop()
        self._splitter = LineSplitter(limit)
        self._limit = limit
        self._decoder = Decoder()
        self._deliver: Deliver | None = None
        self._source: ByteSource | None = None
        self._sink: ByteSink | None = None
        self._read_ended: asyncio.Future[Exception | None] = self._loop.create_future()
        self._write_error: ChannelClosed | None = None
        self._drained = DrainWaiter()
        self._flushed: asyncio.Future[None] | None = None
        self._reading_stopped = False
        self._early = b""  # bytes that arrived before `run` was called
        self._held: list[bytes | TooLong] = []  # lines that arrived before reading was stopped
        # frames to write at the end of this event loop iteration; None if writes are not joined
        self._joined: list[bytes] | None = None
        self._fd: int | None = None
        self._offered = 0  # bytes written or queued
        self._untouched: bool | None = None  # result of `never_read` once writing has ended

    # Channel

    async def run(self, deliver: Deliver) -> None:
        self._deliver = deliver
        early, self._early = self._early, b""
        self.received(early)
        if self._source is not None and not self._read_ended.done() and not self._reading_stopped:
            self._source.resume_reading()
        # Shielded: cancelling `run` must not cancel the future that `read_ended` sets.
        failure = await asyncio.shield(self._read_ended)
        # No further bytes can arrive, so the remaining lines are delivered.
        self._reading_stopped = False
        held, self._held = self._held, []
        self.take_lines(held + self._splitter.finish())
        if failure is not None:
            raise ChannelClosed(_why(failure)) from failure

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self.write(encode(message) + b"\n")

    def send_request(self, number: int, method: str, params: Raw) -> None:
        """Send a request that is only forwarded."""
        self.write(encode_request(number, method, params, b"\n"))

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        frame = encode_success(request_id, result, b"\n")
        if self._joined is None or len(self._joined) + 1 >= JOIN:
            self.write(frame)
        else:
            self._joined.append(frame)

    async def drain(self) -> None:
        if self.congested and self._write_error is None:
            await self._drained.wait()
        if self._write_error is not None:
            raise closed_again(self._write_error)

    async def close(self) -> None:
        await self.close_sink()
        if self._source is not None:
            self._source.close()
        self.read_ended(None)

    # Called by sources, sinks and protocols

    def attach(self, source: ByteSource, sink: ByteSink, fd: int | None = None) -> None:
        """Attach source and sink. `fd` is the non-blocking descriptor of the sink, if any."""
        self._source, self._sink = source, sink
        if fd is not None:
            # A duplicate: the transport may close its descriptor before it notifies this channel,
            # and the number could then belong to another file.
            # Without a free descriptor the channel works without direct writes.
            with contextlib.suppress(OSError):
                self._fd = os.dup(fd)
        source.pause_reading()  # reading stays paused until `run` is called

    def received(self, data: bytes) -> None:
        """Process bytes that arrived. Never raises, because the loop would close the connection."""
        if self._deliver is None:
            # asyncio's read pipes deliver one chunk although they were paused in `connection_made`.
            # Pausing them again takes effect.
            self._early += data
            if self._source is not None:
                self._source.pause_reading()
            return
        lines = self._splitter.feed(data)
        if self._held:
            self._held += lines
        else:
            self.take_lines(lines)

    def take_lines(self, lines: list[bytes | TooLong]) -> None:
        deliver, decode = self._deliver, self._decoder.decode
        if deliver is None:
            return
        for place, line in enumerate(lines):
            # Responses to the preceding lines may have filled the write queue.
            if self._reading_stopped:
                self._held = lines[place:]
                return
            try:
                item = decode(line) if isinstance(line, bytes) else self._too_long(line)
            except RemoteProtocolError as exc:
                exc.excerpt = _excerpt(line)
                exc.frame = line if isinstance(line, bytes) else b""
                exc.size = line.size if isinstance(line, TooLong) else len(line)
                deliver(exc)
            else:
                deliver(item)

    def _too_long(self, line: TooLong) -> NoReturn:
        MESSAGE_BYTES.hit()
        error = RemoteProtocolError(
            f"A message of {line.size} bytes is over the limit of {self._limit}",
            code=INVALID_REQUEST,
        )
        error.answers = answered_by(line.start)
        raise error

    def read_ended(self, exc: Exception | None) -> None:
        if not self._read_ended.done():
            self._read_ended.set_result(exc)

    def never_read(self) -> bool:
        """Return True if the other end of a pipe certainly never read any byte that was written."""
        if self._untouched is None and self._fd is not None and self._offered:
            queued = 0 if self._sink is None else self._sink.get_write_buffer_size()
            return _unread(self._fd) + queued >= self._offered
        return bool(self._untouched)

    def write_ended(self, exc: Exception | None) -> None:
        # Evaluated before the descriptor is closed: the pipe cannot be inspected afterwards.
        self._untouched = self.never_read()
        if self._write_error is None:
            self._write_error = ChannelClosed(_why(exc), delivered=False)
        self._drop_descriptor()
        self.resume_writing()
        if self._flushed is not None and not self._flushed.done():
            self._flushed.set_result(None)
        if exc is not None:
            # A peer that no longer reads is gone, even if its output is still open.
            self.read_ended(None)

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self._drained.wake()
        if self._reading_stopped and self._source is not None:
            self._reading_stopped = False
            held, self._held = self._held, []
            # Held lines are delivered first, to keep the order of messages.
            if held:
                self.take_lines(held)
            if not self._reading_stopped and not self._read_ended.done():
                self._source.resume_reading()

    # Writing

    def write(self, data: bytes) -> None:
        sink = self._sink
        if self._write_error is not None:
            raise closed_again(self._write_error)
        if sink is None:
            raise ChannelClosed("not open", delivered=False)
        if not self._offered and self._fd is not None:
            self._offered = len(data)
            data = self._write_first(self._fd, data)
            if not data:
                return
        else:
            self._offered += len(data)
        if self._joined is not None:
            self._joined.append(data)
            if len(self._joined) >= JOIN:
                self._push()
            return
        sink.write(data)
        if self.congested:
            self._check_flood(sink)

    def _write_first(self, fd: int, data: bytes) -> bytes:
        """Write the first message without the transport and return the unwritten rest.

        If the pipe is broken at this point, its reader has certainly read nothing. The transport
        would report the same error later, when this can no longer be determined.
        """
        try:
            return data[os.write(fd, data) :]
        except BrokenPipeError:
            self._untouched = True
        except OSError:
            pass  # the pipe is full, so the transport writes the data later
        return data

    def _check_flood(self, sink: ByteSink) -> None:
        """Stop reading if the write queue exceeds its hard limit.

        Responses that are sent without `drain()` (errors, lists) could otherwise accumulate without
        a limit for a peer that does not read.
        """
        if self._reading_stopped or self._source is None:
            return
        if sink.get_write_buffer_size() > HARD_LIMIT:
            WRITE_QUEUE.hit()
            self._reading_stopped = True
            self._source.pause_reading()

    def join_writes(self) -> None:
        """Write the messages of this event loop iteration together."""
        if self._joined is None:
            self._joined = []
            self._loop.call_soon(self._write_joined)

    def _write_joined(self) -> None:
        if self._joined and self._write_error is None:
            self._push()
        self._joined = None

    def _push(self) -> None:
        """Write the joined messages, immediately if possible.

        uvloop delays writes to the end of the iteration. A peer that gets the first responses
        earlier can send its next requests while the rest is being processed.
        """
        assert self._joined is not None
        assert self._sink is not None
        data = b"".join(self._joined)
        self._joined.clear()
        # Only with an empty transport buffer: bytes written directly would overtake buffered ones.
        if self._fd is not None and not self._sink.get_write_buffer_size():
            try:
                data = data[os.write(self._fd, data) :]
            except OSError:
                pass  # the pipe is full or broken; the transport waits or reports the error
        if data:
            self._sink.write(data)
            if self.congested:
                self._check_flood(self._sink)

    def _drop_descriptor(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    async def close_sink(self, linger: float = LINGER) -> None:
        """End this side of the stream; wait up to `linger` seconds for queued bytes."""
        sink = self._sink
        if sink is None or (self._write_error is not None and self._flushed is None):
            return
        if self._write_error is None:
            self._write_joined()
            self._drop_descriptor()
            self._write_error = ChannelClosed(delivered=False)
            self._flushed = self._loop.create_future()
            sink.close()
        assert self._flushed is not None
        try:
            async with timeouts.timeout(linger):
                await asyncio.shield(self._flushed)
        except TimeoutError:
            log.debug("peer did not read %d bytes in time", sink.get_write_buffer_size())
            # `close` alone would wait indefinitely for a peer that does not read.
            # A transport that is losing its connection may raise: continue the shutdown.
            with contextlib.suppress(Exception):
                sink.abort()


class ReadPipeProtocol(asyncio.Protocol):
    """A protocol that feeds a channel from a read-only transport."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel
        # Assigned, because a method that only calls another method would cost two frames
        # per relayed call, which is 2 % of its time.
        self.data_received = channel.received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.ReadTransport, transport).pause_reading()

    def eof_received(self) -> None:
        self._channel.read_ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.read_ended(exc)


class WritePipeProtocol(asyncio.Protocol):
    """A protocol that reports the state of a write-only transport to a channel."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, not an isinstance check: uvloop's transports are not subclasses of asyncio's.
        cast(asyncio.WriteTransport, transport).set_write_buffer_limits(high=HIGH_WATER)

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.write_ended(exc)


class SocketProtocol(WritePipeProtocol):
    """A protocol that reads and writes, for sockets."""

    def __init__(self, channel: LineChannel) -> None:
        super().__init__(channel)
        self.data_received = channel.received  # type: ignore[method-assign]

    def eof_received(self) -> bool:
        self._channel.read_ended(None)
        # Keep the transport open: the peer may still read responses.
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.read_ended(exc)
        self._channel.write_ended(exc)


def _unread(pipe: int) -> int:
    """Return the number of bytes in a pipe, or 0 where the system does not report it."""
    try:
        from fcntl import ioctl
        from termios import FIONREAD

        return int.from_bytes(ioctl(pipe, FIONREAD, bytes(4)), sys.byteorder)
    except (ImportError, OSError):
        return 0


def closed_again(error: ChannelClosed) -> ChannelClosed:
    """Return a copy of an error for another caller.

    A raised exception refers to the frames of its caller, so it is not shared.
    """
    return ChannelClosed(error.reason, delivered=False, public=error.public)


def _why(exc: Exception | None) -> str:
    return "" if exc is None else str(exc) or type(exc).__name__


def _excerpt(line: bytes | TooLong) -> str:
    """Return the beginning of an invalid frame, for error messages."""
    start = line.start if isinstance(line, TooLong) else line[:200]
    return start.decode("utf-8", "replace")
