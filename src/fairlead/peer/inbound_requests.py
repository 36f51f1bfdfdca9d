"""Requests of the peer: each has one outcome, which is sent once.

This is the only module that starts a task per inbound request.
"""

import asyncio
from collections.abc import Callable, Container, Iterable

from msgspec import Raw

from ..errors import ChannelClosed, RpcError
from ..interceptor import Answer, Exchange, Handler, ReplyPath
from ..protocol.conversation.conversation_events import RequestCancelled, RequestReceived
from ..protocol.methods import is_question
from ..wire import Notification, RequestId
from ..wire.error_codes import METHOD_NOT_FOUND
from .backlog import Backlog
from .connection_state import FEW, ConnectionState
from .responses import Responses, error_response
from .taskless_requests import Delegate, DelegatedRequests

__all__ = ["InboundRequests", "InlineHandler", "OnCancelled"]

# Answers a request immediately, or returns None to have a task started.
InlineHandler = Callable[[Exchange], Answer]

# Called when the peer cancels a request, with the notification and a function that performs the
# cancellation.
OnCancelled = Callable[[Notification, Callable[[str], object]], None]

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
        if self._work.is_full:
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
        if self._on_question is not None and is_question(method):
            self._on_question(task)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None

    async def _serve(
        self, exchange: Exchange, request_id: RequestId, opening: "asyncio.Task[None] | None"
    ) -> None:
        """Handle one request. The first outcome wins and is sent once.

        A request that was sent directly after `initialize` waits for its response: interceptors may
        need time for it, and a relay does not know its client before.
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
            # Not cancelled itself: an operation that the handler awaited was cancelled.
            if self._is_let_go or task is None or task.cancelling():
                raise
            self.responses.fail(request_id, error_response(exchange, _not_ours(exc)))
        finally:
            # After a cancellation the id may belong to another request, and after the end of the
            # connection the table is empty.
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
        """Cancel all requests after the connection has ended, except that of the current task."""
        self._queue.clear()
        self._work.cancel_tasks(asyncio.current_task())
        self.delegated.drop()


def _not_ours(error: asyncio.CancelledError) -> Exception:
    """Return the error for a handler that raised CancelledError although it was not cancelled."""
    failed = RuntimeError("an awaited operation was cancelled")
    failed.__cause__ = error
    return failed


async def _nobody(exchange: Exchange) -> Answer:
    raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
