"""Calls of the fast path: POSTs that are answered on their connection without ASGI."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from msgspec import Struct
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from .....protocol.envelope import TransportContext
from ..asgi import JSON, STOPPED, STREAM, TEXT, Headers, Heartbeat
from ..endpoint import HttpEndpoint

__all__ = ["FastPathCall", "FastPathConnection", "LazyTimer", "RequestHead"]


class LazyTimer:
    """A timer that calls `act` a number of seconds after it was last set, unless it was cleared."""

    __slots__ = ("_act", "_due", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop = loop
        self._act = act
        self._due = 0.0  # on the loop's clock; 0 means not set
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._due > 0.0

    def set(self, seconds: float) -> None:
        """Set the timer to expire in `seconds`, instead of any earlier setting."""
        due = self._due = self._loop.time() + seconds
        handle = self._handle
        if handle is None:
            self._handle = self._loop.call_at(due, self._fire)
        # A handle that expires earlier stays: `_fire` reschedules it.
        elif handle.when() > due:
            handle.cancel()
            self._handle = self._loop.call_at(due, self._fire)

    def clear(self) -> None:
        """Clear the timer. The handle stays scheduled and does nothing when it expires."""
        self._due = 0.0

    def stop(self) -> None:
        """Cancel the handle, so that the loop no longer references the owner."""
        self._due = 0.0
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        due = self._due
        if not due:
            return
        if due > self._loop.time() + 0.001:  # the resolution of the loop's clock
            self._handle = self._loop.call_at(due, self._fire)
        else:
            self._due = 0.0
            self._act()


class RequestHead(Struct, frozen=True, gc=False):
    """Checked request line and headers of a POST, shared by identical requests."""

    edge: HttpEndpoint
    headers: dict[bytes, bytes]
    context: TransportContext
    session_id: str | None  # None without a session, or if the protocol version is unknown
    keep_alive: bool


class FastPathConnection(Protocol):
    """Interface of a connection for the calls that it carries."""

    transport: asyncio.Transport
    flow: FlowControl
    patience: LazyTimer

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that uvicorn waits for on shutdown."""

    def take_over(self, call: "FastPathCall") -> None:
        """Make `call` the current request of the connection."""

    def fast_path_complete(self) -> None:
        """Complete the current call, so that the connection can serve the next request."""

    def drop_connection(self) -> None:
        """Close the connection after the response."""


class FastPathCall:
    """One POST that is answered on the connection itself.

    uvicorn uses it in place of its own request cycle. Attributes that rarely change are class
    attributes, because an object is created for every call.
    """

    gone = False
    # Attributes that uvicorn reads
    response_started = False
    response_complete = False
    disconnected = False

    _left: Callable[[], object] | None = None
    _beat: Heartbeat | None = None
    _every = 0.0

    def __init__(self, connection: FastPathConnection, head: RequestHead) -> None:
        self._connection = connection
        self._head = head
        self.keep_alive = head.keep_alive

    @property
    def headers(self) -> dict[bytes, bytes]:
        return self._head.headers

    @property
    def context(self) -> TransportContext:
        return self._head.context

    @property
    def message_event(self) -> "FastPathCall":
        """The event that uvicorn sets when the connection is lost: this object itself."""
        return self

    def set(self) -> None:
        if not self.response_complete:
            self.gone = True
            # Break a reference cycle through the exchange, which the garbage collector ignores.
            left, self._left, self._beat = self._left, None, None
            if left is not None:
                left()

    def answer_now(
        self, status: int, body: bytes, kind: bytes = JSON, headers: Headers = ()
    ) -> None:
        """Send the complete response in one write."""
        if self.gone or self.response_complete:
            return
        extra = b"".join([b"%b: %b\r\n" % field for field in headers])
        if not self.keep_alive:
            extra += b"connection: close\r\n"
        if body:
            extra = b"content-type: %b\r\n%b" % (kind, extra)
        self._connection.transport.write(
            b"%bcontent-length: %d\r\n%b\r\n%b" % (STATUS_LINE[status], len(body), extra, body)
        )
        self._complete()

    async def answer(
        self, status: int, body: bytes = b"", kind: bytes = JSON, headers: Headers = ()
    ) -> None:
        self.answer_now(status, body, kind, headers)

    # A heartbeat runs in its own task, so the response may already be complete.

    async def open_stream(self) -> None:
        if not (self.gone or self.response_complete):
            self.response_started = True
            fields = b"".join([b"%b: %b\r\n" % field for field in STREAM])
            head = b"%b%btransfer-encoding: chunked\r\n\r\n" % (STATUS_LINE[200], fields)
            self._connection.transport.write(head)

    async def write(self, chunk: bytes) -> None:
        flow = self._connection.flow
        if flow.write_paused and not self.gone:
            await flow.drain()
        if self._connection.transport.is_closing():
            # A handler that writes in a tight loop must let the loop report the disconnect.
            await asyncio.sleep(0)
        if not (self.gone or self.response_complete):
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    async def end(self) -> None:
        if not (self.gone or self.response_complete):
            self._connection.transport.write(b"0\r\n\r\n")
            self._complete()

    def give_up(self) -> None:
        """End the response early, because the server is shutting down."""
        self.keep_alive = False
        if not self.response_started:
            # Not 503, because the handler may have been running: clients repeat such requests.
            self.answer_now(500, f"500 Internal Server Error: {STOPPED}\n".encode(), TEXT)
        elif not (self.gone or self.response_complete):
            # Without the final chunk, so that the client sees that the response is incomplete.
            self._connection.transport.close()

    def watch(self, left: Callable[[], object], beat: Heartbeat, every: float) -> None:
        # The client may have disconnected before `watch` was called.
        if self.gone:
            left()
            return
        self._left, self._beat, self._every = left, beat, every
        if every:
            self._connection.patience.set(every)

    def unwatch(self) -> None:
        self._left = self._beat = None
        self._connection.patience.clear()

    def silent(self) -> None:
        """Send a heartbeat after a period without writes."""
        if self._beat is not None:
            connection = self._connection
            connection.patience.set(self._every)
            # With a full write buffer the client has unread data and needs no heartbeat.
            if not connection.flow.write_paused:
                connection.begin(self._beat())

    def _complete(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._connection.drop_connection()
        self._connection.fast_path_complete()
