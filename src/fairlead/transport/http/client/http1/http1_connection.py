"""One HTTP/1.1 client connection, which processes one request at a time.

llhttp parses the received bytes and rejects ambiguous messages. A connection is reused only if it
received exactly one complete response to each request.
"""

import asyncio
from collections.abc import Callable
from socket import MSG_PEEK, socket
from typing import Any

import httptools

from .....errors import ChannelClosed
from .response import HttpResponse

__all__ = ["Http1Connection"]

MAX_HEAD = 64 << 10  # bytes of status line and headers, of trailers, and between chunks of a body
AT_ONCE = 256 << 10  # bytes written without waiting for the peer to read them


class Http1Connection(asyncio.Protocol):
    """An HTTP/1.1 connection and the callbacks of its parser; it handles one request at a time."""

    idle_since: float  # time at which the connection became idle; set by the pool
    # State of the response being received:
    _status: int
    _until_close: bool
    _other: int  # bytes received since the last body data

    def __init__(
        self,
        host: str,
        idle: Callable[["Http1Connection"], None],
        lost: Callable[["Http1Connection"], None],
    ) -> None:
        """`idle` is called when another request may be sent, `lost` when the connection closes."""
        self.heard = False  # True if bytes have been received since the last request
        self.socket: socket | None = None
        self._host = host
        self._idle, self._lost = idle, lost
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._transport: Any = None
        self._answer: HttpResponse | None = None
        # completed when the head of the response is received
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._problem = ""  # a violation of HTTP that a parser callback has found
        self._keep = False
        # A connection with an unfinished request cannot be reused, even after a complete response.
        self._unsent = False  # True while part of the request is not written yet
        self._full = False  # the write buffer is full
        self._room: asyncio.Future[None] | None = None
        self._paused = False  # reading is paused

    @property
    def usable(self) -> bool:
        return self._answer is None and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """True if the socket holds neither bytes nor an end of file that the loop has not read."""
        if self.socket is None:
            return True
        try:
            self.socket.recv(1, MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass  # the connection is closed or broken
        return False

    async def ask(self, url: str, head: bytes, body: bytes | None) -> HttpResponse:
        """Send a request and return its response once the head is received.

        Cancelling this closes the connection.

        Raises:
            ChannelClosed: The connection broke; `delivered` is False if the request cannot have
                arrived.
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
                # One write, so that head and body leave in one segment where possible.
                self._transport.write(head + body)
            else:
                await self._write(head, memoryview(body))
            await begun
        except BaseException:
            if not begun.cancel() and not begun.cancelled():
                begun.exception()  # retrieved, so that asyncio does not log it
            self.drop()
            raise
        return answer

    async def _write(self, head: bytes, body: memoryview) -> None:
        """Write the request in chunks until the body is complete or the response begins."""
        self._unsent = True
        self._transport.write(head)
        for start in range(0, len(body), AT_ONCE):
            while self._full and not self._begun.done():
                self._room = self._loop.create_future()
                await self._room
            # A server may reject a body before all of it is sent; the rest would be wasted.
            if self._begun.done():
                return
            self._transport.write(body[start : start + AT_ONCE])
        self._unsent = False

    def drop(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()

    def resume(self) -> None:
        """Resume reading after the reader has consumed part of the body."""
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    # Methods of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            # The data belongs to no request. The next request would take it for its response.
            self.drop()
            return
        self.heard = True
        seen = answer.seen
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            # The parser's state is undefined after an error, so the connection is not reused.
            # A response that was complete before the error remains valid.
            self._keep = False
            if not answer.complete:
                self._fail(self._improper(self._problem or str(exc)), exc)
                return
        if answer.complete:
            self._finished(answer)
            return
        self._other = 0 if answer.seen > seen else self._other + len(data)
        if self._other > MAX_HEAD:
            self._fail(self._improper(f"more than {MAX_HEAD} bytes without body data"))
        elif answer.full and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        answer = self._answer
        # Without Content-Length and chunked encoding, the body ends with the connection
        # (RFC 9112, section 6.3).
        if answer is not None and self._until_close:
            answer.end()
            self._keep = False
            self._finished(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(self)
        if self._unsent:
            # The request was not written completely, so the server cannot have acted on it.
            error = ChannelClosed(f"{self._host} closed the connection", delivered=False)
        elif not self.heard:
            error = ChannelClosed(f"{self._host} closed the connection without a response")
            exc = exc or EOFError()  # a cause, for hints: a server that expects TLS does this
        else:
            why = f": {exc}" if exc is not None else " in the middle of a response"
            error = ChannelClosed(f"the connection to {self._host} broke{why}")
        self._fail(error, exc)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake_writer()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.complete:
            raise ValueError("a second response")
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
            return  # an interim response (1xx), which the final response follows
        fields: dict[bytes, bytes] = {}
        size = 0
        for name, value in self._fields:
            size += len(name) + len(value)
            name = name.lower()
            fields[name] = fields[name] + b", " + value if name in fields else value
        coding = fields.get(b"transfer-encoding")
        # Other codings were not requested with TE, and llhttp does not decode them.
        if coding is not None and coding.lower() != b"chunked":
            self._problem = "a transfer encoding other than chunked"
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

    # End of a response

    def _finished(self, answer: HttpResponse) -> None:
        self._answer = None
        if self._keep and not self._unsent:
            # Paused reading would hide the end of file that makes an idle connection unusable.
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
        return ChannelClosed(f"{self._host} sent an invalid HTTP response: {why}")

    def _wake_writer(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
