"""POSTs without a session: stateless requests, and single messages of the handshake era.

The response is plain JSON, unless a notification precedes it; then the response is an event stream
with status 200, whatever follows. Errors with their own status must therefore be found first. Each
request uses one task, without a queue or a channel.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine
from typing import Any, cast

from msgspec import Raw, UnsetType

from ....errors import LocalProtocolError, RemoteProtocolError, RpcError, TransportError
from ....interceptor import Answer, Exchange, Handler, ReplyPathBase
from ....observe.log_filter import ABOUT
from ....protocol.caller import Caller, ParamsHead, Principal, stateless_caller
from ....protocol.conversation.conversation import Conversation, ConversationRole
from ....protocol.conversation.conversation_events import RequestReceived, RequestRejected
from ....protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from ....protocol.headers import ParamHeader, check_mirrored, check_params
from ....protocol.methods import REQUESTS
from ....protocol.revisions import Revision
from ....wire import (
    Message,
    Notification,
    Request,
    RequestId,
    Success,
    encode,
    encode_success,
    failure,
)
from ....wire.error_codes import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
)
from ....wire.sse import HEARTBEAT, encode_event
from .asgi import AsgiCall, HttpCall
from .error_status import ErrorStatus
from .http_settings import HttpSettings
from .refusals import MessageRefusals, failure_of
from .request_headers import wants_events

__all__ = ["DelegatePost", "InlinePostHandler", "PostReplyPath", "StatelessPosts"]

log = logging.getLogger("fairlead.transport")

InlinePostHandler = Callable[[Exchange], Answer]
PostOutcome = bytes | Raw | Exception
Start = Callable[[Coroutine[Any, Any, None]], None]
# Takes over a request and calls back with its outcome.
# Returns a function that cancels it, or None if the request is not taken over.
DelegatePost = Callable[[Exchange, Callable[[PostOutcome], None]], Callable[[str], None] | None]

_ACTIVE = SessionContext(state=SessionState.ACTIVE)


class PostReplyPath(ReplyPathBase):
    """Reply path to the client of a POST, on which only notifications precede the response."""

    # `__weakref__`, because subscriptions use reply paths as keys of a weak dictionary.
    __slots__ = ("__weakref__", "_call", "_members", "log_level", "opened")

    def __init__(self, call: HttpCall) -> None:
        self._call = call
        self._members: dict[str, Raw] | None = None
        self.opened = False
        self.log_level: str | None = None

    @property
    def session(self) -> SessionContext:
        return _ACTIVE

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        await self.write(encode_event(encode(notification)))

    async def request_caller(
        self,
        exchange: Exchange,
        method: str,
        params: dict[str, Any] | Raw | None,
        *,
        timeout: float | None = None,
    ) -> Raw:
        raise LocalProtocolError(
            f"{method} cannot be sent: this client has no session for the response",
            code=METHOD_NOT_FOUND,
        )

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Set additional members of the response, next to `result`."""
        self._members = members

    def frame(self, request_id: RequestId, result: bytes | Raw) -> bytes:
        """Encode a successful response."""
        if self._members is None:
            return encode_success(request_id, result)
        return encode(Success(request_id, Raw(bytes(result)), self._members))

    async def write(self, chunk: bytes) -> None:
        """Write to the stream, which is opened by the first call."""
        if not self.opened:
            self.opened = True
            await self._call.open_stream()
        await self._call.write(chunk)

    async def finish(self, code: int, frame: bytes, *, failed: bool) -> None:
        """Send the response; its status is `code` unless the stream is already open."""
        if self.opened:
            await self._call.write(encode_event(frame))
            await self._call.end()
        else:
            await self._call.answer(code, frame)

    async def send_heartbeat(self) -> None:
        """Write a comment, so that proxies do not close a silent connection."""
        await self.write(HEARTBEAT)


class FragmentReplyPath(PostReplyPath):
    """Reply path of the fragment dialect, which sends parts of a result before the response."""

    __slots__ = ()

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        """Send content blocks of the result in progress."""
        await self.write(encode_event(b'{"content":%b}' % bytes(content), event="result"))

    async def finish(self, code: int, frame: bytes, *, failed: bool) -> None:
        await self.write(encode_event(frame, event="error" if failed else "complete"))
        await self._call.end()


class StatelessPosts:
    """Checks and dispatch of POSTs without a session."""

    def __init__(
        self,
        handler: Handler,
        settings: HttpSettings,
        refusals: MessageRefusals,
        status: ErrorStatus,
        *,
        inline: InlinePostHandler | None = None,
        inline_methods: Container[str] = (),
        take: DelegatePost | None = None,
        tool_param_headers: Callable[[str, Principal], tuple[ParamHeader, ...]] | None = None,
        on_notification: Callable[[Notification, Caller, TransportContext], None] | None = None,
    ) -> None:
        """`tool_param_headers` returns the arguments of a tool that are mirrored in headers."""
        self._handler = handler
        self._settings = settings
        self._refusals = refusals
        self._status = status
        self._inline = inline
        self._inline_methods = inline_methods
        self._take = take
        self._tool_param_headers = tool_param_headers
        self._on_notification = on_notification

    async def stateless(
        self,
        call: AsgiCall,
        message: Request | Notification,
        head: ParamsHead,
        principal: Principal,
    ) -> None:
        """Respond to a message that carries its own metadata."""
        try:
            caller = self.check(call, message, head, principal)
        except RpcError as exc:
            await self._refusals.refuse(call, message, exc, self._status.stateless(call)(exc.code))
            return
        if isinstance(message, Notification):
            # A request without an id is dropped, as in a session (`Conversation.receive`).
            if self._on_notification is not None and message.method not in REQUESTS:
                self._on_notification(message, caller, call.context)
            await call.answer(202)
            return
        parts, status = self._in_parts(call, message), self._status.stateless(call)
        work = self.begin(call, message, caller, head, status, fragments=parts)
        if work is not None:
            await work

    def check(
        self,
        call: HttpCall,
        message: Request | Notification,
        head: ParamsHead,
        principal: Principal,
    ) -> Caller:
        """Return the caller of a message that carries its own metadata.

        Raises:
            RpcError: The metadata is invalid, or a header contradicts it.
        """
        assert not isinstance(head.meta, UnsetType)
        try:
            caller = stateless_caller(head.meta, principal)
        except RpcError as exc:
            # A contradicting header takes precedence over an unsupported version.
            if exc.code == UNSUPPORTED_VERSION:
                check_mirrored(message, head, call.headers)
            raise
        check_mirrored(message, head, call.headers)
        if message.method == "tools/call" and self._tool_param_headers is not None:
            name = "" if isinstance(head.name, UnsetType) else head.name
            marks = self._tool_param_headers(name, principal)
            if marks:
                check_params(marks, head.arguments, call.headers)
        return caller

    async def standalone(
        self, call: AsgiCall, message: Message, revision: Revision | None, principal: Principal
    ) -> None:
        """Respond to a handshake-era message without a session (DEC-18)."""
        if isinstance(message, Notification):
            await call.answer(202)
            return
        if not isinstance(message, Request):
            why = RpcError(INVALID_REQUEST, "Unexpected response: the client has no session")
            await self._refusals.refuse(call, message, why, 400)
            return
        # A conversation in the active state, so that the revision's rules apply as in a session.
        conversation = Conversation(ConversationRole.SERVER, assume=revision, principal=principal)
        event = conversation.receive(message)
        if isinstance(event, RequestRejected):
            await call.answer(200, encode(event.answer))
        elif isinstance(event, RequestReceived):
            parts, status = self._in_parts(call, message), self._status.handshake(call)
            work = self.begin(call, message, event.caller, event.head, status, fragments=parts)
            if work is not None:
                await work

    def _in_parts(self, call: AsgiCall, message: Request) -> bool:
        """Return True if the result of a tool is sent in fragments (DEC-06)."""
        return message.method == "tools/call" and (
            b"dialect=fragments" in call.headers.get(b"accept", b"")
            or (self._settings.sse_dialect == "fragments" and wants_events(call))
        )

    def begin(
        self,
        call: HttpCall,
        message: Request,
        caller: Caller,
        head: ParamsHead,
        status: Callable[[int], int],
        start: Start | None = None,
        *,
        fragments: bool = False,
    ) -> Coroutine[Any, Any, None] | None:
        """Respond to a request immediately if possible; else return a coroutine that does.

        The coroutine is cancelled if the client disconnects. With `start`, which starts a task, a
        request may be delegated and needs no coroutine. With `fragments`, the response uses the
        fragment dialect.
        """
        edge = FragmentReplyPath(call) if fragments else PostReplyPath(call)
        exchange = Exchange(message, caller, head, Direction.CLIENT_TO_SERVER, call.context, edge)
        frame: bytes | None = None
        code, failed = 200, False
        try:
            if message.method in self._inline_methods and self._inline is not None:
                answer = self._inline(exchange)
                frame = None if answer is None else encode_success(message.id, answer)
        except Exception as exc:
            (frame, code), failed = _failed(message, exc, status), True
        if frame is None:
            if (
                self._take is not None
                and start is not None
                and self._taken(call, exchange, edge, status, start)
            ):
                return None
            return self._finish(call, exchange, edge, status)
        if fragments:
            return edge.finish(code, frame, failed=failed)
        return call.answer_now(code, frame)

    def _taken(
        self,
        call: HttpCall,
        exchange: Exchange,
        edge: PostReplyPath,
        status: Callable[[int], int],
        start: Start,
    ) -> bool:
        """Delegate the request, so that it needs no task; return False if that is not possible."""

        def done(outcome: PostOutcome) -> None:
            call.unwatch()
            if isinstance(outcome, TransportError) and not outcome.delivered:
                # Not delivered, so it is safe to handle the request from the start in a task.
                start(self._finish(call, exchange, edge, status))
                return
            code = 200
            if isinstance(outcome, Exception):
                frame, code = _failed(cast(Request, exchange.message), outcome, status)
            else:
                frame = edge.frame(exchange.request_id, outcome)
            if edge.opened:
                start(edge.finish(code, frame, failed=isinstance(outcome, Exception)))
            else:
                call.answer_now(code, frame)

        assert self._take is not None
        cancel = self._take(exchange, done)
        if cancel is None:
            return False
        call.watch(
            lambda: cancel("the client disconnected"), edge.send_heartbeat, self._settings.heartbeat
        )
        return True

    async def _finish(
        self, call: HttpCall, exchange: Exchange, edge: PostReplyPath, status: Callable[[int], int]
    ) -> None:
        """Wait for the handler and send its response, unless the client has disconnected."""
        task = asyncio.current_task()
        assert task is not None
        call.watch(task.cancel, edge.send_heartbeat, self._settings.heartbeat)
        code, failed = 200, False
        # A single coroutine, because each suspended coroutine of an idle stream needs 300 bytes.
        try:
            answer = await self._handler(exchange)
            frame = edge.frame(exchange.request_id, b"{}" if answer is None else answer)
        except asyncio.CancelledError as exc:
            # The cancellation comes from `watch`, unless a shutdown has cancelled the task as well.
            if call.gone and task.uncancel() == 0:
                log.debug("%s cancelled: the client disconnected", exchange.method)
                return
            if task.cancelling():
                raise
            # The handler awaited a task that was cancelled elsewhere; this task must still respond.
            (frame, code), failed = _failed(cast(Request, exchange.message), exc, status), True
        except Exception as exc:
            (frame, code), failed = _failed(cast(Request, exchange.message), exc, status), True
        finally:
            call.unwatch()
        await edge.finish(code, frame, failed=failed)


def _failed(
    message: Request, error: BaseException, status: Callable[[int], int]
) -> tuple[bytes, int]:
    if isinstance(error, RpcError | LocalProtocolError | RemoteProtocolError):
        return encode(failure_of(message, error)), status(error.code)
    # The client gets no details, which could contain secrets; the log has them.
    log.error("%s failed", message.method, exc_info=error, extra={ABOUT: message.params})
    answer = failure(message.id, INTERNAL_ERROR, "Internal error")
    return encode(answer), status(INTERNAL_ERROR)
