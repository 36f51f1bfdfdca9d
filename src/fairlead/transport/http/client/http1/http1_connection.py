"""One HTTP/1.1 connection of a client: a request is written, its answer is read, then the next.

What arrives is parsed by llhttp, which refuses what two readers could understand differently. A
connection on which anything else came than one whole answer to one request is not used again.
"""

import asyncio
from collections.abc import Callable
from socket import MSG_PEEK, socket
from typing import Any

import httptools

from .....errors import ChannelClosed
from .response import HttpResponse

__all__ = ["Http1Connection"]

MAX_HEAD = 64 << 10  # bytes of status line and headers; of trailers, and between pieces of a body
AT_ONCE = 256 << 10  # bytes that are written without looking whether they are taken


class Http1Connection(asyncio.Protocol):
    """A connection, and the parser's callbacks. Its owner gives it one request at a time."""

    idle_since: float  # its owner's note
    # Of the answer that arrives:
    _status: int
    _until_close: bool
    _other: int  # bytes since the last ones of a body

    def __init__(
        self,
        host: str,
        idle: Callable[["Http1Connection"], None],
        lost: Callable[["Http1Connection"], None],
    ) -> None:
        """`idle` is told that the next request may come, `lost` that none may any more."""
        self.heard = False  # anything, since the last request
        self.socket: socket | None = None
        self._host = host
        self._idle, self._lost = idle, lost
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._answer: HttpResponse | None = None
        self._begun: asyncio.Future[None] = self._loop.create_future()  # its head is there
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._problem = ""  # that a callback found
        self._keep = False
        self._unsent = False  # some of the request is still with us
        self._full = False  # what we wrote is not being taken
        self._room: asyncio.Future[None] | None = None
        self._paused = False  # reading

    @property
    def usable(self) -> bool:
        return self._answer is None and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """Nothing waits in the socket that the loop has not seen: neither bytes nor the end."""
        if self.socket is None:
            return True
        try:
            self.socket.recv(1, MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass  # it is closed, or broken
        return False

    async def ask(self, url: str, head: bytes, body: bytes | None) -> HttpResponse:
        """Send a request and wait for the head of its answer. Cancelling closes the connection.

        Raises:
            ChannelClosed: it broke; `delivered` says whether the request may have arrived.
        """
        if self._transport.is_closing():
            raise ChannelClosed(f"{self._host} closed the connection", delivered=False)
        answer = self._answer = HttpResponse(self, self._loop, url)
        begun = self._begun = self._loop.create_future()
        self.heard = self._until_close = False
        self._other = 0
        try:
            if body is None:
                self._transport.write(head)
            elif len(body) <= AT_ONCE:
                self._transport.write(head + body)
            else:
                await self._write(head, memoryview(body))
            await begun
        except BaseException:
            if not begun.cancel() and not begun.cancelled():
                begun.exception()  # seen, if we were cancelled at that very moment
            self.drop()
            raise
        return answer

    async def _write(self, head: bytes, body: memoryview) -> None:
        """Write piece by piece, until all is written or there is an answer to the beginning."""
        self._unsent = True
        self._transport.write(head)
        for start in range(0, len(body), AT_ONCE):
            while self._full and not self._begun.done():
                self._room = self._loop.create_future()
                await self._room
            if self._begun.done():
                return
            self._transport.write(body[start : start + AT_ONCE])
        self._unsent = False

    def drop(self) -> None:
        """Close the connection, whatever is under way."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()

    def resume(self) -> None:
        """There is room for more of the body."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.drop()  # nobody has asked: the next answer would be taken for another's
            return
        self.heard = True
        seen = answer.seen
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._keep = False
            if not answer.complete:
                self._fail(self._improper(self._problem or str(exc)), exc)
                return
        if answer.complete:
            self._finished(answer)
            return
        self._other = 0 if answer.seen > seen else self._other + len(data)
        if self._other > MAX_HEAD:
            self._fail(self._improper(f"over {MAX_HEAD} bytes without any of the body"))
        elif answer.full and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        answer = self._answer
        if answer is not None and self._until_close:
            answer.end()
            self._keep = False
            self._finished(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        if self._unsent:
            # Not all of it was written, so nobody can have acted on it.
            error = ChannelClosed(f"{self._host} closed the connection", delivered=False)
        elif not self.heard:
            error = ChannelClosed(f"{self._host} closed the connection without an answer")
        else:
            why = f": {exc}" if exc is not None else " in the middle of an answer"
            error = ChannelClosed(f"the connection to {self._host} broke{why}")
        self._fail(error, exc)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake_writer()

    # The parser

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.complete:
            raise ValueError("a second answer")
        self._reason = b""
        self._fields = []

    def on_status(self, part: bytes) -> None:
        self._reason += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        answer = self._answer
        status = self._status = self._parser.get_status_code()
        if status < 200 or answer is None:
            return  # the answer is still to come
        fields: dict[bytes, bytes] = {}
        size = 0
        for name, value in self._fields:
            size += len(name) + len(value)
            name = name.lower()
            fields[name] = fields[name] + b", " + value if name in fields else value
        coding = fields.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            self._problem = "a transfer encoding that nobody asked for"
        elif size > MAX_HEAD:
            self._problem = f"headers over {MAX_HEAD} bytes"
        if self._problem:
            raise ValueError(self._problem)
        self._until_close = coding is None and b"content-length" not in fields
        answer.begin(status, self._reason, fields)
        if not self._begun.done():
            self._begun.set_result(None)
        if self._room is not None:
            self._wake_writer()

    def on_body(self, piece: bytes) -> None:
        if self._answer is not None:
            self._answer.take(piece)

    def on_message_complete(self) -> None:
        if self._status >= 200 and self._answer is not None:
            self._keep = self._parser.should_keep_alive()
            self._answer.end()

    # The end of an answer

    def _finished(self, answer: HttpResponse) -> None:
        self._answer = None
        if self._keep and not self._unsent:
            self.resume()
            self._idle(self)
        else:
            self.drop()

    def _fail(self, error: ChannelClosed, cause: BaseException | None = None) -> None:
        error.__cause__ = cause
        answer, self._answer = self._answer, None
        if answer is not None:
            if self._begun.done():
                answer.end(error)
            else:
                self._begun.set_exception(error)
        self._wake_writer()
        self.drop()

    def _improper(self, why: str) -> ChannelClosed:
        return ChannelClosed(f"{self._host} does not speak HTTP properly: {why}")

    def _wake_writer(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
