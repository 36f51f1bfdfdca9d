"""Protocol class of the fast path, for stateless POSTs and for POSTs in a session.

A stateless POST needs no feature of ASGI, yet ASGI costs about as much as everything else in a
call. Such a POST is answered here once it is complete (`_quick`).

A request in a session is answered here too (`answer_session_post`). This handles 3.5 times as many
calls per second as ASGI with JSON responses, and 2.5 times as many with SSE. To measure it again,
run `python -m bench http-session --against` a build without `answer_session_post`. Remove it if the
gain becomes small, for example with a faster uvicorn, or together with the handshake era.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from functools import cache
from typing import Any

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .....errors import RemoteProtocolError, RpcError
from .....protocol.caller import ANONYMOUS, read_params_head
from .....protocol.envelope import TransportContext
from .....protocol.headers import status_of
from .....protocol.revisions import find_revision
from .....wire import Request
from ..asgi import CLOSE, JSON, HeaderMap
from ..endpoint import HttpEndpoint
from ..guarded_protocol import MAX_HEAD, GuardedProtocol, RequestPhase
from ..http_settings import HttpSettings
from ..refusals import rejection_frame
from ..request_guard import RequestRefusal
from .fastpath_call import FastPathCall, LazyTimer, RequestHead
from .session_call import answer_session_post

__all__ = ["fast_path_protocol"]

MAX_QUICK_HEADERS = 40  # requests with more headers are handled by the ASGI application
# Headers that change the response or need handling that only the ASGI path has.
_UNUSUAL = frozenset({b"origin", b"prefer", b"x-correlation-id", b"content-encoding"})
# values of `Accept` that allow JSON and event streams
_BOTH = (None, b"application/json, text/event-stream", b"*/*")
# maximum number of chunks per body; the fast path gains little for longer bodies
MAX_QUICK_CHUNKS = 16
MAX_KNOWN = 8  # maximum number of heads kept per connection; most differ only in the body length
MAX_KNOWN_BYTES = 4 << 10  # bytes of the longest head that is remembered
_END = b"\r\n\r\n"
_STATELESS = b"io.modelcontextprotocol/"  # prefix of metadata that only stateless requests have


class FastPathProtocol(GuardedProtocol):
    """HTTP protocol that answers complete POSTs without ASGI.

    All other requests take the ASGI path as if they had just arrived: other methods and paths,
    refusals, and requests that arrive while another one is being answered.

    A client sends nearly the same head with every request on a connection, so a head that was
    parsed once is not parsed again. If received data starts with exactly the bytes of a known head,
    and the declared number of bytes follows, the data is one complete request with that head.
    """

    __slots__ = ("_body", "_head", "_known", "_last", "_piece", "patience")
    edges: Mapping[str, HttpEndpoint]  # endpoints by path

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Two timeouts in one timer: until the next heartbeat while a request is being answered,
        # and until the keep-alive timeout between two requests.
        self.patience = LazyTimer(self.loop, self._out_of_patience)
        self._body: list[bytes] | None = None  # body of a request that may take the fast path
        self._head: RequestHead | None = None  # head of that request
        self._piece = b""  # data being parsed, if it starts with a request
        # Parsed heads and the lengths of their bodies, by the bytes of the head.
        self._known: dict[bytes, tuple[RequestHead, int]] | None = None
        # the entry of `_known` that was used last
        self._last: tuple[bytes, RequestHead | None, int] = (b"", None, 0)

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
            # a client that does not read must not accumulate responses
            and not self.flow.write_paused
        ):
            start, head, length = self._last  # most requests have the head of the previous one
            if len(data) - len(start) != length or not data.startswith(start):
                start = data[: data.find(_END) + len(_END)]
                head, length = self._known.get(start, (None, 0))
            end = len(start)
            if head is not None and len(data) - end == length and self._quick(head, data[end:]):
                self._last = start, head, length
                # A blank line before the request may have started the timer for its head.
                if self._timer is not None:
                    self._watch_sender()
                return
        # Data received in the middle of a request must not be remembered as the start of one.
        self._piece = data if self.stage is RequestPhase.BETWEEN else b""
        super().data_received(data)
        self._piece = b""
        if self._body is not None:
            assert self._head is not None
            declared = self._head.headers.get(b"content-length", b"0")
            if int(declared) > self._head.edge.settings.max_body:
                self._usual_way()  # the ASGI path refuses a body over the limit before it arrives

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
            if isinstance(head, RequestRefusal):
                self._refuse_access(edge, head)
                return
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
            # Not used by the fast path, and a stream may keep the connection open for hours.
            self._head = self.headers = self.scope = None  # type: ignore[assignment]
            return
        self._body = held
        self._usual_way()
        super().on_message_complete()

    def _usual_way(self) -> None:
        """Leave the fast path: call uvicorn's callbacks, which were delayed until now."""
        held, self._body = self._body, None
        super().on_headers_complete()
        for chunk in held or ():
            super().on_body(chunk)

    def _refuse_access(self, edge: HttpEndpoint, refusal: RequestRefusal) -> None:
        """Send a refusal and close the connection, because the body is not read."""
        self.deaf = True
        self.stage = RequestPhase.BODY
        self.patience.clear()
        body = rejection_frame(refusal, edge.settings.on_refused)
        others = [field for field in refusal.headers if field not in CLOSE]
        fields = b"".join([b"%b: %b\r\n" % field for field in (*others, *CLOSE)])
        self.transport.write(
            b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b"
            % (STATUS_LINE[refusal.status], JSON, len(body), fields, body)
        )
        self.server_state.total_requests += 1
        self.drop_connection()

    def _read_head(self, edge: HttpEndpoint) -> RequestHead | RequestRefusal | None:
        """Return the parsed head, the refusal of its token, or None if the head is unusual or the
        token cannot be judged at once.

        All checks that need only the headers happen here, before the body is buffered.
        """
        headers = dict(self.headers)
        if len(headers) != len(self.headers) or not _UNUSUAL.isdisjoint(headers):
            return None
        if b"host" not in headers or edge.guard.refuse(headers, self.server) is not None:
            return None
        if not edge.guard.open:
            who = edge.guard.principal(headers)
            if who is None or isinstance(who, RequestRefusal):
                return who
        if headers.get(b"content-type") != JSON or headers.get(b"accept") not in _BOTH:
            return None
        session_id = headers.get(b"mcp-session-id")
        version = headers.get(b"mcp-protocol-version")
        if version is not None and find_revision(version.decode("latin-1")) is None:
            session_id = None
        context = TransportContext(
            transport_type="http",
            headers=HeaderMap(headers),
            path=self.url.decode("latin-1"),
            peer_address=self._client_address(headers),
        )
        return RequestHead(
            edge,
            headers,
            context,
            None if session_id is None else session_id.decode("latin-1"),
            self.parser.should_keep_alive(),
        )

    def _client_address(self, headers: dict[bytes, bytes]) -> str | None:
        """Return the address of the client, which a trusted proxy states in a header."""
        if b"x-forwarded-for" not in headers:
            return self.client[0] if self.client else None
        scope: dict[str, Any] = {
            "type": "http",
            "client": self.client,
            "headers": [*headers.items()],
        }
        # The same middleware as on the ASGI path. It waits only for the application, which is done
        # at once, so the coroutine ends with its first step.
        middleware = _proxy_headers(str(self.config.forwarded_allow_ips))
        with contextlib.suppress(StopIteration):
            middleware(scope, None, None).send(None)
        return scope["client"][0] if scope["client"] else None

    def _remember(self, head: RequestHead, length: int) -> None:
        """Remember the bytes of a head, if the whole request arrived in one chunk."""
        piece = self._piece
        end = piece.find(_END) + len(_END)
        if (
            len(piece) - end == length
            and end <= MAX_KNOWN_BYTES
            and head.keep_alive
            # A stream occupies the connection, so its head is rarely repeated there.
            and head.headers.get(b"mcp-method") != b"subscriptions/listen"
            and head.headers.get(b"content-length") == b"%d" % length
            and b"transfer-encoding" not in head.headers
        ):
            # Dicts keep insertion order, so this drops the oldest head.
            self._known = known = self._known or {}
            if len(known) >= MAX_KNOWN:
                del known[next(iter(known))]
            known[piece[:end]] = head, length

    def _quick(self, head: RequestHead, body: bytes) -> bool:
        """Answer a valid POST and return True; return False if the ASGI path has to handle it."""
        edge = head.edge
        # Verified for every request: a token may have been revoked since the head was remembered.
        who = ANONYMOUS if edge.guard.open else edge.guard.principal(head.headers)
        if who is None or isinstance(who, RequestRefusal):
            return False
        if edge.hides is not None and edge.hides(who):
            return False
        try:
            message = edge.decoder.decode(body)
            if type(message) is not Request:
                return False
            scopes: tuple[str, ...] = ()
            if not edge.guard.open:
                scopes = edge.required_scopes(who, (message,))
                if edge.guard.refuse_scopes(who, scopes) is not None:
                    return False
            if head.session_id is not None and not _may_be_stateless(body):
                return answer_session_post(self, head, message, who, scopes)
            said = read_params_head(message.params)
            if not said.is_self_describing:
                return answer_session_post(self, head, message, who, scopes)
            call = FastPathCall(self, head)
            caller = edge.posts.check(call, message, said, who)
        # The ASGI path repeats the check and sends the error.
        except (RpcError, RemoteProtocolError):
            return False
        self.take_over(call)
        work = edge.posts.begin(call, message, caller, said, status_of, self.begin)
        if work is not None:
            self.begin(work)
        return True

    def take_over(self, call: FastPathCall) -> None:
        """Make `call` the current request of the connection."""
        self.patience.clear()
        if self.timeout_keep_alive_task is not None:
            super()._unset_keepalive_if_required()
        self.cycle = call  # type: ignore[assignment]

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that uvicorn waits for on shutdown."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        # The task was cancelled by a shutdown, so its client would never get a response.
        if task.cancelled() and (call := self._under_way()) is not None:
            call.give_up()

    def _under_way(self) -> FastPathCall | None:
        """Return the call being answered here; pipelined requests may wait for it."""
        for cycle in (*self._earlier, self.cycle):
            if isinstance(cycle, FastPathCall) and not cycle.response_complete:
                return cycle
        return None

    def fast_path_complete(self) -> None:
        """Complete a call as uvicorn does, but without starting its keep-alive timer."""
        if self.pipeline or self._earlier or self.flow.read_paused or self.lingers:
            self.patience.clear()
            self.on_response_complete()
        else:
            # `patience` replaces uvicorn's timer, which would be created anew for every call.
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


@cache
def _proxy_headers(trusted: str) -> Any:
    async def application(*_: object) -> None:
        pass

    return ProxyHeadersMiddleware(application, trusted)


def _may_be_stateless(body: bytes) -> bool:
    """Return True if the params must be parsed to find out whether a request is stateless."""
    # The prefix may be written with escapes: `\u0069o.` or, as PHP writes slashes, `\/`.
    return _STATELESS in body or b"\\u" in body or b"\\/" in body


def fast_path_protocol(
    edges: Mapping[str, HttpEndpoint], settings: HttpSettings
) -> type[HttpToolsProtocol]:
    """Return a protocol class that serves these endpoints by path."""
    plain = settings.error_status == "spec" and settings.sse_dialect == "standard"
    limits = {"body_timeout": settings.body_timeout}
    if not (settings.fast_path and plain):
        return type("Guarded", (GuardedProtocol,), limits)
    return type("Lane", (FastPathProtocol,), {"edges": edges, **limits})
