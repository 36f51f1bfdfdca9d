"""uvicorn's HTTP protocol with limits that an ASGI application cannot set.

Connections of clients that are too slow or send too much are closed. Ambiguous HTTP is refused, so
that a proxy in front of the server cannot interpret a request differently.
"""

import asyncio
from collections.abc import Iterable
from enum import Enum
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from ....limits import BODY_RATE, BODY_TIMEOUT
from .asgi import BODY_TIMED

__all__ = ["GuardedProtocol", "RequestPhase"]

MAX_HEAD = 64 << 10  # bytes of request line and headers, of trailers, and between chunks of a body
HEAD_TIME = 10.0  # seconds to receive a complete head
STALLED = 60.0  # seconds in which a slow client must read at least `LEAST_TAKEN` bytes
LINGER = 1.0  # seconds in which a client that is still sending can read its response
LEAST_TAKEN = 16 << 10  # bytes that a slow client must read in `STALLED` seconds


class RequestPhase(Enum):
    """Phase of the request that a client is sending."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class _Pipeline(list[Any]):
    """Queue of pipelined requests: a list, because an empty one is smaller than a deque."""

    def appendleft(self, item: Any) -> None:
        self.insert(0, item)


class _LightFlowControl(FlowControl):
    """Flow control that creates an `asyncio.Event` only when needed, to save memory."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = False
        self.write_paused = False
        self._writable: asyncio.Event | None = None

    async def drain(self) -> None:
        if self.write_paused:
            self._writable = self._writable or asyncio.Event()
            await self._writable.wait()

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None


class GuardedProtocol(HttpToolsProtocol):
    """HTTP/1.1 server connection with limits on slow clients and large requests."""

    # With slots, the attributes of uvicorn fit into a dict whose keys all connections share.
    __slots__ = (
        "_begun",
        "_body_from",
        "_earlier",
        "_handed_over",
        "_stall_timer",
        "_timed",
        "_timer",
        "_unsent",
        "body_bytes",
        "deaf",
        "fed",
        "lingers",
        "other_bytes",
        "stage",
    )
    body_timeout: float = BODY_TIMEOUT.value
    fed: int  # bytes passed to the parser in the current call
    _unsent: int  # size of the write buffer at the last check of a slow reader

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline = _Pipeline()  # type: ignore[assignment]
        self.stage = RequestPhase.BETWEEN
        self.body_bytes = 0
        self.other_bytes = 0  # bytes of this request since its last body data, without `fed`
        self._begun = 0  # number of requests begun
        self._handed_over = 0  # number of the last request that has a cycle
        self._body_from = 0  # value of `body_bytes` when the current request began
        self.lingers = False  # the write side is closed; the client may still read the response
        self.deaf = False  # the connection is closed or closing; received data is ignored
        # Unfinished cycles before the last one (pipelining). A tuple: nearly always empty.
        self._earlier: tuple[Any, ...] = ()
        # limits the time until the client sends data
        self._timer: asyncio.TimerHandle | None = None
        self._timed: RequestPhase | None = None  # the phase for which `_timer` was started
        # limits the time until the client reads data
        self._stall_timer: asyncio.TimerHandle | None = None

    # Receiving

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _LightFlowControl(transport)
        self._watch_sender()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._timer)
        self._stop(self._stall_timer)
        # uvicorn reports the disconnect to the last request only.
        self._disconnect(self._earlier)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.deaf:
            self._unset_keepalive_if_required()
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        self.fed = len(data)
        stage, begun, body = self.stage, self._begun, self.body_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._should_upgrade():
                self._stop(self._timer)
                self.handle_websocket_upgrade()
            else:
                self._decline_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(400, b"invalid HTTP request")
            return
        if self.deaf:
            return
        if self.stage is not RequestPhase.BETWEEN:
            # Count only data that certainly belongs to this request: a chunk may contain several.
            if self._begun - begun == (stage is RequestPhase.BETWEEN) and self.body_bytes == body:
                self.other_bytes += self.fed
                if self.other_bytes > MAX_HEAD:
                    self._refuse_head()
                    return
            elif self.stage is RequestPhase.BODY:
                self.other_bytes = 0
        if self.stage is not self._timed or self._timer is None:
            self._watch_sender()

    def on_message_begin(self) -> None:
        self.stage = RequestPhase.HEAD
        self._begun += 1
        self.other_bytes = 0
        self._timed = None
        self._body_from = self.body_bytes
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # The parser reports trailers too. They are dropped, because header checks did not see them.
        if self.stage is RequestPhase.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self.deaf or (self.parser.should_upgrade() and not self._should_upgrade()):
            return  # `_decline_upgrade` parses the request again without the upgrade
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in self.headers])
        if size > MAX_HEAD:
            self._refuse_head()
            return
        if not self._names_one_host():
            self._refuse(400, b"expected exactly one Host header")
            return
        before = self.cycle
        super().on_headers_complete()
        self.stage = RequestPhase.BODY
        if self.cycle is before:
            return
        self._handed_over = self._begun
        # The timer of this class replaces the timeout of `AsgiCall.body`.
        self.scope[BODY_TIMED] = True  # type: ignore[literal-required]
        # uvicorn closes a cycle's transport at once, which could discard the response.
        self.cycle.transport = _ResponseTransport(self)  # type: ignore[assignment]  # writes and closes
        if before is not None and not before.response_complete:
            self._earlier = (*self._earlier, before)
        if self.scope["http_version"] != "1.1":
            # uvicorn creates the cycle itself and offers no hook for another class.
            self.cycle.__class__ = _UnchunkedCycle

    def on_body(self, body: bytes) -> None:
        self.body_bytes += len(body)
        if self.cycle is not None and not self.deaf:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() or self.deaf:
            return
        self.stage = RequestPhase.BETWEEN
        if self.cycle is not None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._earlier:
            self._earlier = tuple(one for one in self._earlier if not one.response_complete)
        if self.lingers:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()

    def _names_one_host(self) -> bool:
        """Return True if there is exactly one `Host` header, as RFC 9112, section 3.2, requires."""
        hosts = [value for name, value in self.headers if name == b"host"]
        return len(hosts) == 1 or (not hosts and self.parser.get_http_version() != "1.1")

    # Upgrades

    def _should_upgrade(self) -> bool:
        # RFC 6455, section 4.1: the method of a WebSocket handshake is GET.
        return self.parser.get_method() == b"GET" and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        # uvicorn sends no response to a request that is not a handshake at all.
        protocol: Any = self.transport.get_protocol()
        # Implementations without the attribute send their own response.
        if protocol is not self and not getattr(protocol, "handshake_initiated", True):
            self._write_refusal(400, b"invalid WebSocket handshake")

    def _decline_upgrade(self, rest: bytes) -> None:
        """Ignore an unsupported upgrade, as RFC 9110 requires (section 7.8).

        The parser treats the following data as the other protocol, so the request is parsed again
        without the upgrade. Java's client offers `h2c` with every first request, including its
        body.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(405, b"this server is not a proxy")
            return
        version = self.parser.get_http_version().encode()
        fields = [
            b"%b: %b\r\n" % (name, value)
            for name, value in self.headers
            if name not in (b"upgrade", b"connection", b"http2-settings")
        ]
        if not self.parser.should_keep_alive():
            fields.append(b"connection: close\r\n")
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.stage = RequestPhase.BETWEEN
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(fields))
        self._feed(head + rest)

    @staticmethod
    def _disconnect(cycles: Iterable[Any]) -> None:
        for cycle in cycles:
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    # Timeouts of slow clients

    def _watch_sender(self) -> None:
        """Restart the timer for the data that the client has to send next."""
        self._stop(self._timer)
        self._timer, self._timed = None, self.stage
        if self.stage is RequestPhase.BODY:
            if self.body_timeout:
                began = self.loop.time(), self._body_from
                self._timer = self.loop.call_later(self.body_timeout, self._look_at_sender, *began)
        elif self.stage is RequestPhase.HEAD or not (self.busy or self.waits_for_next):
            self._timer = self.loop.call_later(HEAD_TIME, self._too_slow)

    def _too_slow(self) -> None:
        # A client may wait for the response before it sends the next request.
        if self.busy:
            self._timer = self.loop.call_later(HEAD_TIME, self._too_slow)
        else:
            self.transport.close()

    def _look_at_sender(self, began: float, before: int) -> None:
        """Respond with 408 if a body takes longer than its size so far allows."""
        now, sent = self.loop.time(), self.body_bytes
        if self.flow.read_paused:  # paused by the server, so the time does not count
            began, before = now, sent
        due = began + self.body_timeout + (sent - before) / BODY_RATE.value
        if now < due:
            self._timer = self.loop.call_later(due - now, self._look_at_sender, began, before)
            return
        BODY_TIMEOUT.hit()
        if self._handed_over == self._begun and self.cycle.response_complete:
            self.deaf = True
            self.transport.close()  # the response is already sent
        else:
            self._refuse(408, b"the body did not arrive in time")

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall_timer is None:
            self._unsent = self.transport.get_write_buffer_size()
            self._stall_timer = self.loop.call_later(STALLED, self._look_at_reader)

    def resume_writing(self) -> None:
        self._stop(self._stall_timer)
        self._stall_timer = None
        super().resume_writing()

    def _look_at_reader(self) -> None:
        left = self.transport.get_write_buffer_size()
        # A slow reader is tolerated as long as it reads a minimum in each period.
        if left > self._unsent - LEAST_TAKEN:
            self.transport.abort()
            return
        self._unsent = left
        self._stall_timer = self.loop.call_later(STALLED, self._look_at_reader)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()

    # Closing

    @property
    def waits_for_next(self) -> bool:
        """True if the keep-alive timeout is running."""
        return self.timeout_keep_alive_task is not None

    @property
    def busy(self) -> bool:
        """True if a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse_head(self) -> None:
        self._refuse(431, b"the request line and headers are over %d bytes" % MAX_HEAD)

    def _refuse(self, status: int, why: bytes) -> None:
        """Refuse a request and close the connection; send no refusal during another response."""
        self.deaf = True
        if not self.busy:
            self._write_refusal(status, why)
        # The refused request follows the one being answered, whose response ends the connection.
        elif self.stage is not RequestPhase.BODY:
            self.cycle.keep_alive = False
        elif self._earlier or self.cycle.response_started:
            self.transport.close()
        else:
            self._write_refusal(status, why)

    def _write_refusal(self, status: int, why: bytes) -> None:
        if not (self.transport.is_closing() or self.lingers):
            said = STATUS_LINE[status].removeprefix(b"HTTP/1.1 ").strip() + b": " + why + b"\n"
            self.transport.write(
                b"%bcontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%b" % (STATUS_LINE[status], len(said), said)
            )
            self.drop_connection()

    def drop_connection(self) -> None:
        """Close the connection after the written data.

        Closing a socket that still receives data resets the connection, and the client may lose the
        response. In the middle of a request only the write side is closed first; received data is
        dropped until the client closes its side, for `LINGER` seconds at most.
        """
        transport = self.transport
        between = self.stage is RequestPhase.BETWEEN or transport.get_protocol() is not self
        if between or transport.is_closing() or not transport.can_write_eof():
            transport.close()
            return
        self.deaf = self.lingers = True
        self._stop(self._timer)
        # A write after `write_eof` would raise.
        self._disconnect([*self._earlier, self.cycle])
        transport.write_eof()
        # A paused socket would not report that the client has closed its side.
        self.flow.resume_reading()
        self._timer = self.loop.call_later(LINGER, transport.close)


class _ResponseTransport:
    """Transport of a request cycle; closing it gives the client time to read the response."""

    __slots__ = ("_connection", "_transport")

    def __init__(self, connection: GuardedProtocol) -> None:
        self._connection = connection
        self._transport = connection.transport

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._connection.drop_connection()


class _UnchunkedCycle(RequestResponseCycle):
    """Request cycle for HTTP/1.0, where a response without a length ends with the connection.

    RFC 9112, section 6.1: "A server MUST NOT send a response containing Transfer-Encoding unless
    the corresponding request indicates HTTP/1.1".
    """

    endless = False

    async def send(self, message: Any) -> None:
        names = [name.lower() for name, _ in message.get("headers", ())]
        if not self.endless and (self.response_started or b"content-length" in names):
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if not self.endless:
            self.endless = self.response_started = True
            fields = b"".join([b"%b: %b\r\n" % field for field in message["headers"]])
            start = STATUS_LINE[message["status"]]
            self.transport.write(b"%b%bconnection: close\r\n\r\n" % (start, fields))
            return
        if self.scope["method"] != "HEAD":
            self.transport.write(message["body"])
        if not message.get("more_body"):
            self.response_complete = True
            self.message_event.set()
            self.transport.close()
            self.on_response()
