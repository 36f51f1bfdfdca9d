"""A POST that needs no session: everything about it is in itself. One task, no queue, no channel.

The answer is plain JSON, unless something has to be said before it; then it becomes a stream of
events, and the status is 200 whatever follows. So refusals that have a status of their own must
come first.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Coroutine
from typing import Any, cast

from msgspec import Raw

from ....errors import LocalProtocolError, RemoteProtocolError, RpcError, TransportError
from ....interceptor import Answer, Exchange, Handler, ReplyPathBase
from ....observe.log_filter import ABOUT
from ....protocol.caller import Caller, ParamsHead
from ....protocol.envelope import Direction, SessionContext, SessionState
from ....protocol.headers import status_of
from ....wire import (
    Failure,
    Notification,
    Request,
    RequestId,
    Success,
    encode,
    encode_success,
    failure,
)
from ....wire.error_codes import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from ....wire.sse import HEARTBEAT, encode_event
from .asgi import HttpCall

__all__ = [
    "DelegatePost",
    "FragmentReplyPath",
    "InlinePostHandler",
    "PostReplyPath",
    "StatelessPosts",
    "failure_of",
    "mapped_status",
]

log = logging.getLogger("fairlead.transport")

InlinePostHandler = Callable[[Exchange], Answer]
PostOutcome = bytes | Raw | Exception
Start = Callable[[Coroutine[Any, Any, None]], None]
# Takes a request over, and gives the callback its outcome; returns what cancels it, or None.
DelegatePost = Callable[[Exchange, Callable[[PostOutcome], None]], Callable[[str], None] | None]

_ACTIVE = SessionContext(state=SessionState.ACTIVE)

_MAPPED = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}


def mapped_status(code: int) -> int:
    """The status of an error for those who want every error to have one."""
    if code in _MAPPED:
        return _MAPPED[code]
    status = status_of(code)
    return 500 if status == 200 else status


class PostReplyPath(ReplyPathBase):
    """The way back to whoever sent a POST: notifications before the answer, and nothing else."""

    # `__weakref__`, because a subscription looks its session up in a weak dictionary.
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
        self, exchange: Exchange, method: str, params: dict[str, Any] | Raw | None
    ) -> Raw:
        raise LocalProtocolError(
            f"{method} cannot be asked: this client has no session to answer in",
            code=METHOD_NOT_FOUND,
        )

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """The answer will have these members besides its result."""
        self._members = members

    def frame(self, request_id: RequestId, result: bytes | Raw) -> bytes:
        """A successful answer."""
        if self._members is None:
            return encode_success(request_id, result)
        return encode(Success(request_id, Raw(bytes(result)), self._members))

    async def write(self, chunk: bytes) -> None:
        """Add to the stream; the first time, it begins."""
        if not self.opened:
            self.opened = True
            await self._call.open_stream()
        await self._call.write(chunk)

    async def finish(self, code: int, frame: bytes, *, failed: bool) -> None:
        """Send the answer: with a status of its own, unless the stream has begun."""
        if self.opened:
            await self._call.write(encode_event(frame))
            await self._call.end()
        else:
            await self._call.answer(code, frame)

    async def send_heartbeat(self) -> None:
        """Nothing was said for long: keep the connection from being taken for dead."""
        await self.write(HEARTBEAT)


class FragmentReplyPath(PostReplyPath):
    """The same in the fragment dialect: parts of a tool's result come before the whole of it."""

    __slots__ = ()

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        """Send some content blocks of the answer to come."""
        await self.write(encode_event(b'{"content":%b}' % bytes(content), event="result"))

    async def finish(self, code: int, frame: bytes, *, failed: bool) -> None:
        await self.write(encode_event(frame, event="error" if failed else "complete"))
        await self._call.end()


class StatelessPosts:
    """Answers POSTs that stand for themselves."""

    def __init__(
        self,
        handler: Handler,
        *,
        inline: InlinePostHandler | None = None,
        inline_methods: Container[str] = (),
        heartbeat: float = 15.0,
        take: DelegatePost | None = None,
    ) -> None:
        self._take = take
        self._handler = handler
        self._inline = inline
        self._inline_methods = inline_methods
        self._heartbeat = heartbeat

    def try_inline(self, exchange: Exchange) -> bytes | None:
        """The whole answer, if it needs no waiting.

        Raises:
            RpcError: to refuse.
        """
        if exchange.message.method in self._inline_methods and self._inline is not None:
            answer = self._inline(exchange)
            if answer is not None:
                return encode_success(exchange.request_id, answer)
        return None

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
        """Answer one request at once if possible; else return the work that answers it.

        If the client leaves, the work is cancelled. With `start`, which starts a task, the request
        may be answered without one. With `fragments`, the answer is a stream of that dialect.
        """
        edge = FragmentReplyPath(call) if fragments else PostReplyPath(call)
        exchange = Exchange(message, caller, head, Direction.CLIENT_TO_SERVER, call.context, edge)
        code, failed = 200, False
        try:
            frame = self.try_inline(exchange)
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
        """Have the request answered without a task, if possible."""

        def done(outcome: PostOutcome) -> None:
            call.unwatch()
            if isinstance(outcome, TransportError) and not outcome.delivered:
                start(self._finish(call, exchange, edge, status))  # the usual way, from the start
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
        call.watch(lambda: cancel("the client has gone"), edge.send_heartbeat, self._heartbeat)
        return True

    async def _finish(
        self, call: HttpCall, exchange: Exchange, edge: PostReplyPath, status: Callable[[int], int]
    ) -> None:
        code, failed = 200, False
        try:
            frame = await self._run(call, exchange, edge)
        except ClientDisconnected:
            return
        except Exception as exc:
            (frame, code), failed = _failed(cast(Request, exchange.message), exc, status), True
        await edge.finish(code, frame, failed=failed)

    async def _run(self, call: HttpCall, exchange: Exchange, edge: PostReplyPath) -> bytes:
        task = asyncio.current_task()
        assert task is not None

        def left() -> None:
            task.cancel()

        call.watch(left, edge.send_heartbeat, self._heartbeat)
        try:
            answer = await self._handler(exchange)
        except asyncio.CancelledError as exc:
            # Ours, because the client has left; a server that ends cancels us as well.
            if call.gone and task.uncancel() == 0:
                log.debug("%s cancelled: its client has left", exchange.method)
                raise ClientDisconnected from None
            if not task.cancelling():
                raise RuntimeError("what it waited for was cancelled") from exc
            raise
        finally:
            call.unwatch()
        return edge.frame(exchange.request_id, b"{}" if answer is None else answer)


class ClientDisconnected(Exception):
    """Nobody is there to be answered."""


def _failed(message: Request, error: Exception, status: Callable[[int], int]) -> tuple[bytes, int]:
    if isinstance(error, RpcError | LocalProtocolError | RemoteProtocolError):
        return encode(failure_of(message, error)), status(error.code)
    log.error("%s failed", message.method, exc_info=error, extra={ABOUT: message.params})
    answer = failure(message.id, INTERNAL_ERROR, "Internal error")
    return encode(answer), status(INTERNAL_ERROR)


def failure_of(
    message: Request, error: RpcError | LocalProtocolError | RemoteProtocolError
) -> Failure:
    """The answer that refuses a request."""
    if isinstance(error, RpcError):
        if error.raw is not None:
            return Failure(message.id, error.code, error.message, Raw(error.raw))
        return failure(message.id, error.code, error.message, error.data)
    return failure(message.id, error.code or INVALID_REQUEST, str(error))
