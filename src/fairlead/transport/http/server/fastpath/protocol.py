"""The protocol class of the fast path, for stateless POSTs and for POSTs in a session.

A stateless POST needs nothing that ASGI offers, yet passing through ASGI costs about as much as
everything else in a call. Such a POST is answered here once it is complete (`_quick`).

A request in a session is answered here too (`_quick_in_session`): 3.5 times as many calls with JSON
responses and 2.5 times as many with SSE as through ASGI, measured with `python -m bench
http-session --against` a build without it. It may be removed when that comparison shows no clear
gain any more, for example because a newer uvicorn costs less, or together with the handshake era.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .....errors import RemoteProtocolError, RpcError
from .....protocol.caller import read_params_head
from .....protocol.envelope import TransportContext
from .....protocol.headers import status_of
from .....protocol.identity.principal import ANONYMOUS, Principal
from .....protocol.revisions import find_revision
from .....wire import Request
from ....lazy_timer import LazyTimer
from ..asgi import HeaderMap
from ..endpoint import HttpEndpoint
from ..guarded_protocol import MAX_HEAD, GuardedProtocol, RequestPhase
from ..http_settings import HttpSettings
from ..post_router import is_self_describing
from ..request_guard import RequestRefusal
from .fastpath_call import FastPathCall, RequestHead
from .session_call import answer_session_post

__all__ = ["fast_path_protocol"]

MAX_QUICK_HEADERS = 40
_UNUSUAL = frozenset({b"origin", b"prefer", b"x-correlation-id", b"content-encoding"})
MAX_QUICK_CHUNKS = 16  # pieces of a body; a longer one is in no hurry
MAX_KNOWN = 8  # heads of a connection: they differ in the length of the body, and in little else
MAX_KNOWN_BYTES = 4 << 10  # of one
_END = b"\r\n\r\n"
_STATELESS = b"io.modelcontextprotocol/"  # in the names of what a request says about itself


class FastPathProtocol(GuardedProtocol):
    """Answers complete POSTs without the way through ASGI, which costs more than they do.

    Whatever is not plainly one of those takes the usual way, as if nothing had happened: all other
    methods and paths, refusals, requests that come while another is being answered.

    A client that keeps its connection says the same about every request. So a head that was read
    once need not be read again: if a piece of data begins with exactly the same bytes, and just as
    many follow as the head promises, it is one whole request, and nothing else than before can be
    said of its head.
    """

    edges: Mapping[str, HttpEndpoint]  # by path

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # For how long nothing may be said: by us while a request is being answered, by the client
        # between two of them.
        self.patience = LazyTimer(self.loop, self._out_of_patience)
        self._body: list[bytes] | None = None  # of a request that may be quick
        self._head: RequestHead | None = None  # and what its head says
        self._piece = b""  # what is being read, if a request begins with it
        self._known: dict[
            bytes, tuple[RequestHead, int]
        ] = {}  # by their bytes; with the body's length
        self._last: tuple[bytes, RequestHead | None, int] = (b"", None, 0)  # of those

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.patience.stop()

    def data_received(self, data: bytes) -> None:
        cycle = self.cycle
        if (
            self._known
            and self.stage is RequestPhase.BETWEEN
            and (cycle is None or cycle.response_complete)
            and not self.deaf
            and not self.flow.write_paused  # else whoever does not read would pile up answers
        ):
            start, head, length = self._last  # most are like the one before
            if len(data) - len(start) != length or not data.startswith(start):
                start = data[: data.find(_END) + len(_END)]
                head, length = self._known.get(start, (None, 0))
            end = len(start)
            if head is not None and len(data) - end == length and self._quick(head, data[end:]):
                self._last = start, head, length
                if self._timer is not None:  # something blank came before: here is the request
                    self._watch_sender()
                return
        # What begins inside of a request would mean something else where one begins.
        self._piece = data if self.stage is RequestPhase.BETWEEN else b""
        super().data_received(data)
        self._piece = b""
        if self._body is not None and self._is_too_long():
            self._usual_way()  # where that is said at once

    def _is_too_long(self) -> bool:
        assert self._head is not None
        length = self._head.headers.get(b"content-length", b"0")
        return int(length) > self._head.edge.settings.max_body

    def on_headers_complete(self) -> None:
        edge = self.edges.get(self.url.decode("latin-1"))
        if (
            edge is not None
            and self.parser.get_method() == b"POST"
            and not self.busy
            and not self.deaf
            and not self.flow.write_paused
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
            and self.parser.get_http_version() == "1.1"
            and len(self.headers) <= MAX_QUICK_HEADERS
            and self.other_bytes + self.fed <= MAX_HEAD
            and (head := self._read_head(edge)) is not None
        ):
            self._head = head
            self._body = []
            self.stage = RequestPhase.BODY
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
        self.stage = RequestPhase.BETWEEN
        body = held[0] if len(held) == 1 else b"".join(held)
        head = self._head
        assert head is not None
        if len(body) <= head.edge.settings.max_body and self._quick(head, body):
            self._remember(head, len(body))
            return
        self._body = held
        self._usual_way()
        super().on_message_complete()

    def _usual_way(self) -> None:
        """Not for us after all: give uvicorn what it would have heard."""
        held, self._body = self._body, None
        super().on_headers_complete()
        for chunk in held or ():
            super().on_body(chunk)

    def _read_head(self, edge: HttpEndpoint) -> RequestHead | None:
        """Return what the head says, unless it is unusual or the request is to be refused.

        Everything that the headers decide is decided here, before any of the body is kept.
        """
        headers = dict(self.headers)
        if len(headers) != len(self.headers) or not _UNUSUAL.isdisjoint(headers):
            return None
        if b"host" not in headers or edge.guard.refuse(headers, self.server) is not None:
            return None
        if not edge.guard.open and isinstance(_principal(edge, headers), RequestRefusal | None):
            return None
        if headers.get(b"content-type") != b"application/json" or not _takes_both(headers):
            return None
        session_id = headers.get(b"mcp-session-id")
        version = headers.get(b"mcp-protocol-version")
        if version is not None and find_revision(version.decode("latin-1")) is None:
            session_id = None
        context = TransportContext(
            transport_type="http",
            headers=HeaderMap(headers),
            path=self.url.decode("latin-1"),
            peer_address=self.client[0] if self.client else None,
        )
        return RequestHead(
            edge,
            headers,
            context,
            None if session_id is None else session_id.decode("latin-1"),
            self.parser.should_keep_alive(),
        )

    def _remember(self, head: RequestHead, length: int) -> None:
        """A request like this one may come again; if all of it came at once, it is known."""
        piece = self._piece
        end = piece.find(_END) + len(_END)
        if (
            len(piece) - end == length
            and end <= MAX_KNOWN_BYTES
            and head.keep_alive
            and head.headers.get(b"content-length") == b"%d" % length
            and b"transfer-encoding" not in head.headers
        ):
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[piece[:end]] = head, length

    def _quick(self, head: RequestHead, body: bytes) -> bool:
        """Answer this POST, if it is in order."""
        edge = head.edge
        who = ANONYMOUS if edge.guard.open else _principal(edge, head.headers)
        if who is None or isinstance(who, RequestRefusal):
            return False
        if edge.hides is not None and edge.hides(who):
            return False
        try:
            message = edge.decoder.decode(body)
            if type(message) is not Request:
                return False
            if head.session_id is not None and _STATELESS not in body and b"\\u" not in body:
                return answer_session_post(self, head, message, who)
            said = read_params_head(message.params)
            if not is_self_describing(said):
                return answer_session_post(self, head, message, who)
            call = FastPathCall(self, head)
            caller = edge.sessionless_posts.check(call, message, said, who)
        except (RpcError, RemoteProtocolError):
            return False
        self.take_over(call)
        work = edge.posts.begin(call, message, caller, said, status_of, self.begin)
        if work is not None:
            self.begin(work)
        return True

    def take_over(self, call: FastPathCall) -> None:
        """Make this the call that is being answered."""
        self.patience.clear()
        if self.timeout_keep_alive_task is not None:
            super()._unset_keepalive_if_required()
        self.cycle = call  # type: ignore[assignment]

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that uvicorn waits for before it ends."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        # Not because the client has left: it waits for something that will not come.
        if task.cancelled() and (call := self._under_way()) is not None:
            call.give_up()

    def _under_way(self) -> FastPathCall | None:
        """The call that is being answered from here; others may wait behind it for their turn."""
        for cycle in (*self._earlier, self.cycle):
            if isinstance(cycle, FastPathCall) and not cycle.response_complete:
                return cycle
        return None

    def fast_path_complete(self) -> None:
        """A request was answered from here: do what uvicorn does then, but for its timer."""
        if self.pipeline or self._earlier or self.flow.read_paused or self.lingers:
            self.patience.clear()
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.patience.set(self.timeout_keep_alive)

    @property
    def waits_for_next(self) -> bool:
        return self.patience.is_set or super().waits_for_next

    def _unset_keepalive_if_required(self) -> None:
        if not self.busy:
            self.patience.clear()
        super()._unset_keepalive_if_required()

    def _out_of_patience(self) -> None:
        call = self._under_way()
        if call is not None:
            call.silent()
        elif not self.busy:
            self.timeout_keep_alive_handler()


def _principal(
    edge: HttpEndpoint, headers: dict[bytes, bytes]
) -> Principal | RequestRefusal | None:
    """Return the principal that the token names; None if `verify_token` raises."""
    try:
        return edge.guard.principal(headers)
    except Exception:
        return None  # the usual way reports it


def _takes_both(headers: dict[bytes, bytes]) -> bool:
    accept = headers.get(b"accept")
    return accept is None or accept == b"application/json, text/event-stream" or accept == b"*/*"


def fast_path_protocol(
    edges: Mapping[str, HttpEndpoint], settings: HttpSettings
) -> type[HttpToolsProtocol]:
    """The protocol class that serves these endpoints, by path."""
    plain = settings.error_status == "spec" and settings.sse_dialect == "standard"
    limits = {"body_timeout": settings.body_timeout}
    if not (settings.fast_path and plain):
        return type("Guarded", (GuardedProtocol,), limits)
    return type("Lane", (FastPathProtocol,), {"edges": edges, **limits})
