"""A fast lane for what most requests are.

A stateless POST needs nothing of what ASGI offers, yet the way through it costs about as much as
everything else in a call. So such a POST, once it is complete, is answered from here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ...errors import RemoteProtocolError, RpcError
from ...protocol.caller import read_head
from ...protocol.headers import status_of
from ...wire import Request
from .asgi import JSON, STREAM, Beat, Headers
from .connection import MAX_HEAD, GuardedProtocol, Stage
from .edge import HttpEdge, describes_itself
from .guard import Refusal
from .sessions import HttpSession
from .settings import HttpSettings
from .streams import Stream

__all__ = ["lane_for"]

MAX_QUICK_HEADERS = 40
_UNUSUAL = frozenset({b"origin", b"prefer", b"x-correlation-id", b"content-encoding"})
MAX_QUICK_CHUNKS = 16  # pieces of a body; a longer one is in no hurry


class LaneCall:
    """One stateless POST that was read and is answered on the connection itself.

    For uvicorn it stands where the request's cycle stands otherwise.
    """

    __slots__ = (
        "_connection",
        "_left",
        "_timer",
        "chunked",
        "client",
        "disconnected",
        "extra",
        "gone",
        "headers",
        "keep_alive",
        "message_event",
        "response_complete",
        "server",
    )

    def __init__(self, connection: "FastProtocol", headers: dict[bytes, bytes]) -> None:
        self._connection = connection
        self._left: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.headers = headers
        self.server = connection.server
        self.client = connection.client[0] if connection.client else None
        self.extra: tuple[tuple[bytes, bytes], ...] = ()
        self.gone = False
        # What uvicorn looks at
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True
        self.message_event = self

    def set(self) -> None:
        """The connection is lost: uvicorn says so by setting an event of the cycle."""
        if not self.response_complete:
            self.gone = True
            if self._left is not None:
                self._left()

    def answer_now(
        self, status: int, body: bytes, kind: bytes = JSON, headers: Headers = ()
    ) -> None:
        """The whole answer, in one write."""
        if self.gone:
            return
        extra = b"".join([b"%b: %b\r\n" % field for field in (*headers, *self.extra)])
        if not self.keep_alive:
            extra += b"connection: close\r\n"
        self._connection.transport.write(
            b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b"
            % (STATUS_LINE[status], kind, len(body), extra, body)
        )
        self._complete()

    async def answer(
        self, status: int, body: bytes = b"", kind: bytes = JSON, headers: Headers = ()
    ) -> None:
        self.answer_now(status, body, kind, headers)

    async def open_stream(self, headers: Headers = ()) -> None:
        if not self.gone:
            fields = b"".join([b"%b: %b\r\n" % f for f in (*STREAM, *headers, *self.extra)])
            head = b"%b%btransfer-encoding: chunked\r\n\r\n" % (STATUS_LINE[200], fields)
            self._connection.transport.write(head)

    async def write(self, chunk: bytes) -> None:
        flow = self._connection.flow
        if flow.write_paused and not self.gone:
            await flow.drain()
        if self._connection.transport.is_closing():
            await asyncio.sleep(0)  # so that whoever talks without a pause hears of it
        if not self.gone:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

    async def end(self) -> None:
        if not self.gone:
            self._connection.transport.write(b"0\r\n\r\n")
            self._complete()

    def watch(self, left: Callable[[], None], beat: Beat, every: float) -> None:
        self._left = left
        if every:
            self._timer = self._connection.loop.call_later(every, self._beat, beat, every)

    def _beat(self, beat: Beat, every: float) -> None:
        loop = self._connection.loop
        if not self._connection.flow.write_paused:
            self._connection.begin(beat())
        self._timer = loop.call_later(every, self._beat, beat, every)

    def unwatch(self) -> None:
        self._left = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _complete(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._connection.transport.close()
        self._connection.on_response_complete()


class FastProtocol(GuardedProtocol):
    """Answers complete stateless POSTs without the way through ASGI, which costs more than they do.

    Whatever is not plainly one of those takes the usual way, as if nothing had happened: all other
    methods and paths, sessions, refusals, requests that come while another is being answered.
    """

    edges: Mapping[str, HttpEdge]  # by path

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.edge: HttpEdge  # the one that this request is for
        self._body: list[bytes] | None = None  # of a request that may be quick

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._body is not None and self._is_too_long():
            self._usual_way()  # where that is said at once

    def _is_too_long(self) -> bool:
        length = dict(self.headers).get(b"content-length", b"0")
        return int(length) > self.edge.settings.max_body

    def on_headers_complete(self) -> None:
        edge = self.edges.get(self.url.decode("latin-1"))
        if (
            edge is not None
            and self.parser.get_method() == b"POST"
            and not self.busy
            and not self.deaf
            and not self.flow.write_paused  # else whoever does not read would pile up answers
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and self.parser.get_http_version() == "1.1"
            and len(self.headers) <= MAX_QUICK_HEADERS
            and self.other_bytes + self.fed <= MAX_HEAD
        ):
            self.edge = edge
            self._body = []
            self.stage = Stage.BODY
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        held = self._body
        if held is None:
            super().on_body(body)
            return
        self.body_bytes += len(body)
        held.append(body)
        if len(held) > MAX_QUICK_CHUNKS:
            self._usual_way()

    def on_message_complete(self) -> None:
        held, self._body = self._body, None
        if held is None:
            super().on_message_complete()
            return
        self.stage = Stage.BETWEEN
        body = held[0] if len(held) == 1 else b"".join(held)
        if not self._quick(body):
            self._body = held
            self._usual_way()
            super().on_message_complete()

    def _usual_way(self) -> None:
        """Not for us after all: give uvicorn what it would have heard."""
        held, self._body = self._body, None
        super().on_headers_complete()
        for chunk in held or ():
            super().on_body(chunk)

    def _quick(self, body: bytes) -> bool:
        """Answer this POST, if it is one of the stateless era and in order."""
        edge, headers = self.edge, dict(self.headers)
        if len(headers) != len(self.headers) or not _UNUSUAL.isdisjoint(headers):
            return False
        if b"host" not in headers or len(body) > edge.settings.max_body:
            return False
        if headers.get(b"content-type") != b"application/json" or not _takes_both(headers):
            return False
        call = LaneCall(self, headers)
        who = edge.admit(call, "POST")
        if isinstance(who, Refusal):
            return False
        try:
            message = edge.decoder.decode(body)
            if not isinstance(message, Request):
                return False
            head = read_head(message.params)
            if not describes_itself(head):
                return self._quick_in_session(call, message, who)
            caller = edge.check_stateless(call, message, head, who)
        except (RpcError, RemoteProtocolError):
            return False
        self._take_over(call)
        edge.posts.begin(call, message, caller, head, status_of, self.begin)
        return True

    def _quick_in_session(self, call: LaneCall, message: Request, who: str | None) -> bool:
        session = self.edge.session_for(call, message, who)
        if session is None:
            return False
        self._take_over(call)
        stream = session.open_stream([message])
        stream.attach(call)
        if self.edge.settings.answers == "sse":
            session.take(message)
            self.begin(self.edge.answer_in_session(call, session, stream))
        else:
            _Waiting(self, call, session, stream)
            session.take(message)
        return True

    def _take_over(self, call: LaneCall) -> None:
        call.keep_alive = self.parser.should_keep_alive()
        self.cycle = call  # type: ignore[assignment]
        self._unset_keepalive_if_required()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that uvicorn waits for before it ends."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


class _Waiting:
    """An answer in a session for which no task waits: it is written when it is there.

    If something else comes first, or nothing for long, a task carries the stream.
    """

    __slots__ = ("_call", "_connection", "_session", "_stream")

    def __init__(
        self, connection: FastProtocol, call: LaneCall, session: HttpSession, stream: Stream
    ) -> None:
        self._connection = connection
        self._call = call
        self._session = session
        self._stream = stream
        stream.on_wake = self._woken
        call.watch(self._left, self._beat, connection.edge.settings.heartbeat)

    def _woken(self) -> None:
        stream, call = self._stream, self._call
        if stream.carrier is not call:
            self._over()  # the client came back for it on another connection
        elif stream.done and not stream.chatty:
            self._over()
            frames = stream.take()
            stream.detach(call)
            if frames:
                call.answer_now(200, frames[-1][1])
            else:
                call.answer_now(202, b"")  # cancelled: there is nothing to say
        elif stream.done or stream.chatty or stream.leaving:
            self._carry()

    def _carry(self, *, late: bool = False) -> None:
        self._over()
        edge = self._connection.edge
        work = edge.answer_in_session(self._call, self._session, self._stream, late=late)
        self._connection.begin(work)

    async def _beat(self) -> None:
        self._carry(late=True)

    def _left(self) -> None:
        self._over()
        self._stream.detach(self._call)

    def _over(self) -> None:
        self._stream.on_wake = None
        self._call.unwatch()


def _takes_both(headers: dict[bytes, bytes]) -> bool:
    accept = headers.get(b"accept")
    return accept is None or accept == b"application/json, text/event-stream" or accept == b"*/*"


def lane_for(edges: Mapping[str, HttpEdge], settings: HttpSettings) -> type[HttpToolsProtocol]:
    """The protocol class that serves these endpoints, by path."""
    plain = settings.error_status == "spec" and settings.sse_dialect == "standard"
    if not (settings.fast_lane and plain):
        return GuardedProtocol
    return type("Lane", (FastProtocol,), {"edges": edges})
