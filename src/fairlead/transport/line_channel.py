"""Messages as lines of JSON over a byte stream: what pipes, sockets and memory have in common."""

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
from .channel import Deliver, SharedStream

__all__ = [
    "HIGH_WATER",
    "ByteSink",
    "ByteSource",
    "LineChannel",
    "ReadPipeProtocol",
    "SocketProtocol",
    "WritePipeProtocol",
]

HIGH_WATER = 1 << 20  # bytes queued for writing before senders are asked to wait
HARD_LIMIT = WRITE_QUEUE.value
JOIN = 32  # messages that are written together, at most
LINGER = 2.0  # seconds that queued bytes may take to leave when we close

log = logging.getLogger("fairlead.transport")


class ByteSource(Protocol):
    """Where bytes come from; asyncio's read transports are one kind."""

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...


class ByteSink(Protocol):
    """Where bytes go; asyncio's write transports are one kind."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class LineChannel(SharedStream):
    """A `Channel` of lines from a `ByteSource` to a `ByteSink`, attached when it is opened."""

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
        self._drained: asyncio.Future[None] | None = None
        self._flushed: asyncio.Future[None] | None = None
        self._reading_stopped = False
        self._early = b""  # arrived before anybody ran us
        self._held: list[bytes | TooLong] = []  # arrived before we stopped reading
        self._joined: list[bytes] | None = None  # written at the end of this turn of the loop
        self._fd: int | None = None
        self._offered = 0  # bytes that were written, or queued
        self._untouched: bool | None = None  # see `untouched`

    # Channel

    async def run(self, deliver: Deliver) -> None:
        self._deliver = deliver
        early, self._early = self._early, b""
        self.received(early)
        if self._source is not None and not self._read_ended.done() and not self._reading_stopped:
            self._source.resume_reading()
        failure = await asyncio.shield(self._read_ended)
        self._reading_stopped = False  # nothing more comes, so the rest is bounded
        held, self._held = self._held, []
        self.take_lines(held + self._splitter.finish())
        if failure is not None:
            raise ChannelClosed(str(failure) or type(failure).__name__) from failure

    def send(self, message: Message, *, reply_to: RequestId | None = None) -> None:
        self.write(encode(message) + b"\n")

    def send_request(self, number: int, method: str, params: Raw) -> None:
        """The same as `send`, for a request that is only passed on."""
        self.write(encode_request(number, method, params, b"\n"))

    def send_success(self, request_id: RequestId, result: bytes | Raw) -> None:
        frame = encode_success(request_id, result, b"\n")
        if self._joined is None or len(self._joined) + 1 >= JOIN:
            self.write(frame)
        else:
            self._joined.append(frame)

    async def drain(self) -> None:
        if self._write_error is not None:
            raise _again(self._write_error)
        if self.congested:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    async def close(self) -> None:
        await self.close_sink()
        if self._source is not None:
            self._source.close()
        self.read_ended(None)

    # What the ends call

    def attach(self, source: ByteSource, sink: ByteSink, fd: int | None = None) -> None:
        """`fd` is the non-blocking descriptor under the sink, where there is one."""
        self._source, self._sink = source, sink
        if fd is not None:
            # A duplicate of our own: the transport may close its own without telling us at once,
            # and the number could belong to somebody else by then. If none is left, it goes
            # without.
            with contextlib.suppress(OSError):
                self._fd = os.dup(fd)
        source.pause_reading()  # until somebody runs us

    def received(self, data: bytes) -> None:
        """Bytes arrived. Never raises: the loop would tear the connection down."""
        if self._deliver is None:
            # asyncio's pipes start to read whatever they are told; this is one chunk, then they
            # obey.
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
            if self._reading_stopped:  # by answers to the lines before
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
        """Whether the other end of a pipe certainly never read anything that we wrote."""
        if self._untouched is None and self._fd is not None and self._offered:
            queued = 0 if self._sink is None else self._sink.get_write_buffer_size()
            return _unread(self._fd) + queued >= self._offered
        return bool(self._untouched)

    def write_ended(self, exc: Exception | None) -> None:
        self._untouched = self.never_read()
        if self._write_error is None:
            self._write_error = ChannelClosed(_why(exc), delivered=False)
        self._drop_descriptor()
        self.resume_writing()
        if self._flushed is not None and not self._flushed.done():
            self._flushed.set_result(None)
        if exc is not None:
            self.read_ended(None)  # a peer that no longer reads has gone

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self._drained is not None:
            if not self._drained.done():
                if self._write_error is not None:
                    self._drained.set_exception(_again(self._write_error))
                    self._drained.exception()  # seen, also when nobody waits
                else:
                    self._drained.set_result(None)
            self._drained = None
        if self._reading_stopped and self._source is not None:
            self._reading_stopped = False
            held, self._held = self._held, []
            if held:
                self.take_lines(held)
            if not self._reading_stopped and not self._read_ended.done():
                self._source.resume_reading()

    # Private

    def write(self, data: bytes) -> None:
        sink = self._sink
        if self._write_error is not None:
            raise _again(self._write_error)
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
        """Write the first message without the transport; return what is left of it.

        If the pipe is broken by now, its reader has certainly read nothing. The transport would
        report the same error later, when that can no longer be told.
        """
        try:
            return data[os.write(fd, data) :]
        except BrokenPipeError:
            self._untouched = True
        except OSError:
            pass  # it is full: the transport waits
        return data

    def _check_flood(self, sink: ByteSink) -> None:
        """Answers that wait for nobody (refusals, lists) could pile up behind a peer that does not
        read. Then we stop reading too, as any pipe would.
        """
        if self._reading_stopped or self._source is None:
            return
        if sink.get_write_buffer_size() > HARD_LIMIT:
            WRITE_QUEUE.hit()
            self._reading_stopped = True
            self._source.pause_reading()

    def join_writes(self) -> None:
        """Several messages are about to be sent: those of this turn of the loop go out together."""
        if self._joined is None:
            self._joined = []
            self._loop.call_soon(self._write_joined)

    def _write_joined(self) -> None:
        if self._joined and self._write_error is None:
            self._push()
        self._joined = None

    def _push(self) -> None:
        """Write what was joined, at once where that is possible.

        uvloop keeps writes until the end of its turn. A peer that got the first answers earlier
        can already send its next requests while we work on the rest.
        """
        assert self._joined is not None
        assert self._sink is not None
        data = b"".join(self._joined)
        self._joined.clear()
        if self._fd is not None and not self._sink.get_write_buffer_size():
            try:
                data = data[os.write(self._fd, data) :]
            except OSError:
                pass  # full, or broken: the transport waits, or finds out
        if data:
            self._sink.write(data)
            if self.congested:
                self._check_flood(self._sink)

    def _drop_descriptor(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    async def close_sink(self, linger: float = LINGER) -> None:
        """End our side of the stream, once what is queued has left or `linger` seconds are over."""
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
            async with asyncio.timeout(linger):
                await asyncio.shield(self._flushed)
        except TimeoutError:
            log.debug("peer did not read %d bytes in time", sink.get_write_buffer_size())
            # `close` alone would wait for ever for a peer that does not read. A transport that is
            # just being lost does not expect to be asked, and must not keep us from going on.
            with contextlib.suppress(Exception):
                sink.abort()


class ReadPipeProtocol(asyncio.Protocol):
    """Feeds a channel from a read-only transport."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel
        # No method that only calls another: two frames of each relayed call, 2 % of its time.
        self.data_received = channel.received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.ReadTransport, transport).pause_reading()

    def eof_received(self) -> None:
        self._channel.read_ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.read_ended(exc)


class WritePipeProtocol(asyncio.Protocol):
    """Tells a channel how its write-only transport is doing."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports are no subclasses of asyncio's.
        cast(asyncio.WriteTransport, transport).set_write_buffer_limits(high=HIGH_WATER)

    def pause_writing(self) -> None:
        self._channel.pause_writing()

    def resume_writing(self) -> None:
        self._channel.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.write_ended(exc)


class SocketProtocol(WritePipeProtocol):
    """Both at once, for sockets."""

    def __init__(self, channel: LineChannel) -> None:
        super().__init__(channel)
        self.data_received = channel.received  # type: ignore[method-assign]

    def eof_received(self) -> bool:
        self._channel.read_ended(None)
        return True  # the peer may still read our answers

    def connection_lost(self, exc: Exception | None) -> None:
        self._channel.read_ended(exc)
        self._channel.write_ended(exc)


def _unread(pipe: int) -> int:
    """How many bytes are in it; none where the system does not say."""
    try:
        from fcntl import ioctl
        from termios import FIONREAD

        return int.from_bytes(ioctl(pipe, FIONREAD, bytes(4)), sys.byteorder)
    except (ImportError, OSError):
        return 0


def _again(error: ChannelClosed) -> ChannelClosed:
    """The same for the next one who hears it: what is raised keeps hold of those who were told."""
    return ChannelClosed(error.reason, delivered=False, public=error.public)


def _why(exc: Exception | None) -> str:
    return "" if exc is None else str(exc) or type(exc).__name__


def _excerpt(line: bytes | TooLong) -> str:
    """How a frame began that was no message: for a person who has to find out what wrote it."""
    start = line.start if isinstance(line, TooLong) else line[:200]
    return start.decode("utf-8", "replace")
