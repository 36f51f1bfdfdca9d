"""Requests from the peer, each of which is answered once, unless it is cancelled.

This is the only module that starts a task per inbound request.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable
from typing import cast

from msgspec import Raw

from ..errors import ChannelClosed, LocalProtocolError, RemoteProtocolError, RpcError
from ..interceptor import Answer, Exchange, Handler, ReplyPath
from ..interceptor.exchange import ReplyPathBase
from ..limits import IN_FLIGHT, QUEUED_REQUEST_BYTES, QUEUED_REQUESTS
from ..observe.log_filter import ABOUT
from ..protocol.conversation.conversation_events import RequestCancelled, RequestReceived
from ..protocol.methods import QUESTIONS
from ..transport.bounded_queue import BoundedQueue
from ..wire import Failure, Notification, RequestId, Success, failure
from ..wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from ..wire.messages import size_of
from .connection_state import FEW, ConnectionState, DelegatedRequest, InFlight

__all__ = ["Delegate", "InboundRequests", "InlineHandler", "OnCancelled", "error_response"]

log = logging.getLogger("fairlead.peer")


class Responses:
    """Sender of responses, which may have members other than result and error."""

    def __init__(self, line: ConnectionState) -> None:
        self._line = line
        self._channel = line.channel
        self._conversation = line.conversation
        # members to add to responses that are not sent yet, by request id
        self.members: dict[RequestId, dict[str, Raw]] = {}

    def add_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Store members to be added to the response to a request."""
        if self._conversation.is_unanswered(request_id):
            self.members[request_id] = members

    def succeed(self, request_id: RequestId, result: bytes | Raw) -> None:
        """Send the result of a request that the conversation has already marked as answered."""
        if self.members and (members := self.members.pop(request_id, None)) is not None:
            self._channel.send(Success(request_id, Raw(bytes(result)), members))
        else:
            self._channel.send_success(request_id, result)

    def fail(self, request_id: RequestId, error: RpcError) -> None:
        """Send an error response, unless the request was answered before."""
        if self._conversation.mark_answered(request_id):
            members = self.members.pop(request_id, None)
            # The original bytes are sent, so that unknown members of the error are preserved.
            if error.raw is not None:
                raw = Raw(error.raw)
                answer = Failure(request_id, error.code, error.message, raw, members)
            else:
                answer = failure(request_id, error.code, error.message, error.data)
            self._line.send_quietly(answer)


def error_response(exchange: Exchange, error: Exception) -> RpcError:
    """Return the error response for a failed request, and log details that the response omits."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, LocalProtocolError | RemoteProtocolError):
        return RpcError(error.code, str(error))
    if isinstance(error, ChannelClosed):  # another connection, which the handler used, was closed
        log.warning("%s failed: %s", exchange.method, error)
    else:
        about = {ABOUT: exchange.message.params}
        log.error("%s failed", exchange.method, exc_info=error, extra=about)
    return RpcError(INTERNAL_ERROR, "Internal error")


# maximum number of long-lived requests that do not count against the limit
MAX_LASTING = 64
MAX_QUEUED = QUEUED_REQUESTS.value
MAX_QUEUED_BYTES = QUEUED_REQUEST_BYTES.value


def is_full(work: InFlight) -> bool:
    """Return True if no further request may start. Some long-lived requests are not counted."""
    busy = len(work.running) + len(work.leaving) + len(work.taken)
    return busy >= work.most and busy - min(len(work.lasting), MAX_LASTING) >= work.most


class Backlog(BoundedQueue[Exchange]):
    """Queue of requests that start in order as soon as others end; limited in items and bytes."""

    def __init__(self, line: ConnectionState, begin: Callable[[Exchange, RequestId], None]) -> None:
        super().__init__(lambda exchange: size_of(exchange.message), MAX_QUEUED, MAX_QUEUED_BYTES)
        self._line = line
        self._begin = begin

    def put(self, exchange: Exchange) -> None:
        """Queue a request, or refuse it if the queue is full."""
        IN_FLIGHT.hit()
        if self.fits(exchange):
            self.enqueue(exchange)
            return
        (QUEUED_REQUESTS if self.count >= self.max_items else QUEUED_REQUEST_BYTES).hit()
        line = self._line
        line.conversation.mark_answered(exchange.request_id)
        why = f"Too many requests: {line.work.most} are in progress. Try again later"
        log.warning("refused %s: too many requests are in progress", exchange.method)
        line.send_quietly(failure(exchange.request_id, INTERNAL_ERROR, why))

    def release(self) -> None:
        """Drop the reference to the function that starts requests."""
        self._begin = _ignore_request

    def next(self) -> None:
        """Start the oldest queued request, if the limit allows it."""
        if self.items and self._line.end is None and not is_full(self._line.work):
            exchange = self.pop()
            self._begin(exchange, exchange.request_id)

    def drop(self, request_id: RequestId) -> None:
        """Remove a request that the peer has cancelled, if it is queued."""
        for exchange in self.items:
            if exchange.request_id == request_id:
                self.remove(exchange)
                return


MAX_LET_GO = 256  # maximum number of cancelled requests whose delegate was not notified yet

# Takes over a request to answer it with `DelegatedRequests.answer`, or returns None to have a
# task started.
# The returned object is compared by identity, because another request may reuse the id.
Delegate = Callable[[Exchange], DelegatedRequest | None]


def _ignore_request(exchange: Exchange, request_id: RequestId) -> None:
    """Do nothing, because the connection has ended."""


class DelegatedRequests:
    """Delegated requests: their responses, cancellation and conversion to tasks."""

    def __init__(
        self,
        line: ConnectionState,
        replies: Responses,
        queue: Backlog,
        begin: Callable[[Exchange, RequestId], None],
    ) -> None:
        """`begin` starts a task for a request."""
        self._line = line
        self._channel = line.channel
        self._conversation = line.conversation
        self._work = line.work
        self._taken = line.work.taken
        self._replies = replies
        self._members = replies.members
        self._queue = queue
        self._queued = queue.items
        self._begin = begin
        # number of tasks started in this loop iteration, which delegates must not overtake
        self.behind = 0
        # Requests that the peer cancelled and whose `cancel` was not called yet; only the latest.
        self._let_go_of: list[DelegatedRequest] = []

    def answer(
        self, taken: DelegatedRequest, request_id: RequestId, outcome: bytes | Raw | RpcError
    ) -> None:
        """Answer a delegated request. Later outcomes are ignored."""
        if self._taken.get(request_id) is not taken:
            return  # the request was cancelled, and its id may belong to another request
        del self._taken[request_id]
        if isinstance(outcome, RpcError):
            self._replies.fail(request_id, outcome)
        elif self._conversation.mark_answered(request_id):
            if len(self._taken) > FEW:
                self._channel.join_writes()
            try:
                # Without extra members the channel is called directly, which saves one call.
                if self._members:
                    self._replies.succeed(request_id, outcome)
                else:
                    self._channel.send_success(request_id, outcome)
            except ChannelClosed:
                pass  # the channel reports its end to the owner task
        if self._queued or self._work.awaited is not None:
            self._one_less()

    def undelegate(self, taken: DelegatedRequest, exchange: Exchange) -> None:
        """Start a task for a request that was delegated."""
        if self._taken.get(exchange.request_id) is taken and self._line.end is None:
            del self._taken[exchange.request_id]
            self._begin(exchange, exchange.request_id)
            self._work.notify_idle_waiter()

    def preserve_order(self) -> None:
        """Start a task for each further request of this loop iteration.

        A task runs in the next iteration, and delegated requests would overtake it.
        """
        self.behind += 1
        self._line.loop.call_soon(self._went_ahead)

    def _went_ahead(self) -> None:
        self.behind -= 1

    def release(self, request_id: RequestId) -> Callable[[str], None] | None:
        """Release a request, if it is delegated; return the function that cancels it, or None."""
        taken = self._taken.pop(request_id, None)
        if taken is None:
            return None
        self._let_go_of.append(taken)
        del self._let_go_of[:-MAX_LET_GO]
        self._one_less()

        def cancel(why: str) -> None:
            if taken in self._let_go_of:
                self._let_go_of.remove(taken)
            taken.cancel(why or "cancelled by the caller")

        return cancel

    def drop(self) -> None:
        """Cancel all delegated requests, because the connection has ended."""
        gone = (*self._taken.values(), *self._let_go_of)
        self._taken.clear()
        for one in gone:
            one.cancel("the client disconnected")
        self._let_go_of.clear()

    def stop(self) -> None:
        """Drop the reference to the function that starts requests."""
        self._begin = _ignore_request

    def _one_less(self) -> None:
        if self._queued:
            self._queue.next()
        self._work.notify_idle_waiter()


# Answers a request immediately, or returns None to have a task started.
InlineHandler = Callable[[Exchange], Answer]

# Called when the peer cancels a request, with the notification and the function that cancels.
OnCancelled = Callable[[Notification, Callable[[str], object]], None]

_NO_EDGE = cast(ReplyPath, ReplyPathBase())  # reply path of an ended connection
_ANSWERS = (Raw, bytes, type(None))


class InboundRequests:
    """Router of inbound requests to the inline handler, to a delegate or to a task."""

    def __init__(
        self,
        line: ConnectionState,
        edge: ReplyPath,
        *,
        handler: Handler | None,
        inline: InlineHandler | None,
        inline_methods: Container[str],
        take: Delegate | None,
        on_cancelled: OnCancelled | None,
        on_question: Callable[[asyncio.Task[None]], None] | None,
    ) -> None:
        """`edge` is the path for messages back to the caller. `on_question` is called with each
        task that requests input from a user or a model; only clients have such tasks.
        """
        self._line = line
        self._channel = line.channel
        self._conversation = line.conversation
        self._direction = line.direction
        self._work = line.work
        self._running = line.work.running
        self._leaving = line.work.leaving
        self._edge = edge
        self._handler = handler or _nobody
        self._inline = inline
        self._inline_methods = inline_methods
        self._take = take
        self._on_cancelled = on_cancelled
        self._on_question = on_question
        self._queue = Backlog(line, self._begin)
        self._queued = self._queue.items
        self._opening: asyncio.Task[None] | None = None  # the task that answers `initialize`
        self.responses = Responses(line)
        self.delegated = DelegatedRequests(line, self.responses, self._queue, self._begin)

    def receive_request(self, event: RequestReceived) -> None:
        """Process a request."""
        exchange = Exchange(
            event.message,
            event.caller,
            event.head,
            self._direction,
            self._channel.context,
            self._edge,
        )
        if self._on_question is not None:
            # Only HTTP channels know which outbound request caused a request of the server.
            exchange.related = self._channel.related_request_id
        request_id = event.message.id
        if event.message.method in self._inline_methods and self._inline is not None:
            try:
                answer = self._inline(exchange)
            except RpcError as exc:
                self.responses.fail(request_id, exc)
                return
            if answer is not None:
                if self._conversation.mark_answered(request_id):
                    self._channel.send_success(request_id, answer)
                return
        if is_full(self._work):
            self._queue.put(exchange)
            return
        # A delegate responds without a task and could overtake requests whose task has not started.
        if self._take is not None and not self.delegated.behind:
            taken = self._take(exchange)
            if taken is not None:
                self._work.taken[request_id] = taken
                return
        self._begin(exchange, request_id)

    def _begin(self, exchange: Exchange, request_id: RequestId) -> None:
        if self._take is not None:
            self.delegated.preserve_order()
        method, opening = exchange.message.method, self._opening
        if opening is not None and (exchange.caller.stateless or method == "ping"):
            opening = None  # stateless requests and pings do not need a handshake
        task = self._line.loop.create_task(self._serve(exchange, request_id, opening))
        self._running[request_id] = task
        if method == "initialize":
            self._opening = task
            task.add_done_callback(self._opened)
        if method == "subscriptions/listen":
            self._work.mark_long_lived(task)
        if self._on_question is not None and method in QUESTIONS:
            self._on_question(task)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None

    async def _serve(
        self, exchange: Exchange, request_id: RequestId, opening: "asyncio.Task[None] | None"
    ) -> None:
        """Handle one request, and send its first outcome.

        A request that directly follows `initialize` waits until `initialize` is answered:
        interceptors may delay `initialize`, and a relay needs it to identify its client.
        """
        try:
            if opening is not None:
                await asyncio.wait((opening,))
            answer = await self._handler(exchange)
            if type(answer) not in _ANSWERS and not isinstance(answer, bytes | Raw | None):
                raise TypeError(f"the handler returned {type(answer).__name__}, expected bytes")
            if not self._is_let_go and self._conversation.mark_answered(request_id):
                channel = self._channel
                if len(self._running) > FEW:
                    channel.join_writes()
                self.responses.succeed(request_id, b"{}" if answer is None else answer)
                if channel.congested:
                    await channel.drain()
        except ChannelClosed as exc:
            # Otherwise this connection is closed, and no response can be sent.
            if self._line.end is None and not self._is_let_go:
                self.responses.fail(request_id, error_response(exchange, exc))
        except Exception as exc:
            refusal = error_response(exchange, exc)
            if not self._is_let_go:
                self.responses.fail(request_id, refusal)
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            # The task itself was not cancelled, but an operation that the handler awaited was.
            if self._is_let_go or task is None or task.cancelling():
                raise
            self.responses.fail(request_id, error_response(exchange, _not_ours(exc)))
        finally:
            # After a cancellation the id may belong to another request,
            # and after the end of the connection the table is empty.
            if not self._leaving or self._running.get(request_id) is asyncio.current_task():
                self._running.pop(request_id, None)
            if self._queued:
                self._queue.next()

    @property
    def _is_let_go(self) -> bool:
        """Return True if the peer has cancelled the request of the current task."""
        return bool(self._leaving) and asyncio.current_task() in self._leaving

    # Cancellation

    def cancelled(self, event: RequestCancelled) -> None:
        """Cancel a request on behalf of the peer."""
        cancel = self._let_go(event.request_id)
        if self._on_cancelled is None:
            cancel(event.reason)
        else:
            self._on_cancelled(event.message, cancel)
        self._channel.finish(event.request_id)

    def restart(self, request: RequestReceived, cancelled: Iterable[RequestId]) -> None:
        """Cancel the requests of the old conversation, and serve the `initialize` of the new."""
        for request_id in cancelled:
            self._let_go(request_id)("the client began a new conversation")
            self._channel.finish(request_id)
        self.receive_request(request)

    def _let_go(self, request_id: RequestId) -> Callable[[str], object]:
        """Remove a request of the peer from the tables and return the function that cancels it."""
        self.responses.members.pop(request_id, None)
        task = self._running.pop(request_id, None)
        if task is not None:
            # A stateless peer may reuse the id at once, while this task still cleans up.
            self._leaving.add(task)
            task.add_done_callback(self._left)
            # The reason is forwarded if the handler has sent the request to another server.
            return lambda why: task.cancel(why or None)
        cancel = self.delegated.release(request_id)
        if cancel is None:
            self._queue.drop(request_id)
            return lambda _: None
        return cancel

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        # A task that is cancelled before its first step never runs the `finally` of `_serve`.
        self._queue.next()

    def drop_all(self) -> None:
        """Cancel all requests except that of the current task, after the connection has ended."""
        self._queue.clear()
        self._work.cancel_tasks(asyncio.current_task())
        self.delegated.drop()

    def release(self) -> None:
        """Drop the references to the peer and to this object after the connection has ended."""
        self._edge = _NO_EDGE
        self._queue.release()
        self.delegated.stop()


def _not_ours(error: asyncio.CancelledError) -> Exception:
    """Return the error for a handler that raised CancelledError although it was not cancelled."""
    failed = RuntimeError("an awaited operation was cancelled")
    failed.__cause__ = error
    return failed


async def _nobody(exchange: Exchange) -> Answer:
    raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
