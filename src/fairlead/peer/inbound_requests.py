"""What the peer asks: each request has one outcome, which is delivered once.

This is the only place where a task per inbound request is started.
"""

import asyncio
from collections.abc import Callable, Container

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

# Answers at once what needs no task, or returns None to have one started.
InlineHandler = Callable[[Exchange], Answer]

# Hears that the peer cancels a request; what it then does is up to it: the callable cancels.
OnCancelled = Callable[[Notification, Callable[[str], object]], None]

_ANSWERS = (Raw, bytes, type(None))


class InboundRequests:
    """Finds somebody to answer a request: inline, by being taken over, or in a task."""

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
        """`edge` is the way back to whoever asks. `on_question` hears of tasks in which a person
        or a model of ours is asked; only clients are.
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
        self._opening: asyncio.Task[None] | None = None  # answers `initialize`
        self.responses = Responses(line)
        self.delegated = DelegatedRequests(line, self.responses, self._queue, self._begin)

    def receive_request(self, event: RequestReceived) -> None:
        """Take in a request."""
        exchange = Exchange(
            event.message,
            event.caller,
            event.head,
            self._direction,
            self._channel.context,
            self._edge,
        )
        if self._on_question is not None:
            # Only channels over HTTP can tell which request of ours made the server ask.
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
            opening = None  # these need no handshake
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
        """Handle one request. First outcome wins and is delivered once.

        A request that was sent right behind `initialize` waits until that is answered: interceptors
        may need time for it, and until then a relay does not know its client.
        """
        try:
            if opening is not None:
                await asyncio.wait((opening,))
            answer = await self._handler(exchange)
            if type(answer) not in _ANSWERS and not isinstance(answer, bytes | Raw | None):
                raise TypeError(f"the answer is {type(answer).__name__}, not bytes")
            if not self._is_let_go and self._conversation.mark_answered(request_id):
                channel = self._channel
                if len(self._running) > FEW:
                    channel.join_writes()
                self.responses.succeed(request_id, b"{}" if answer is None else answer)
                if channel.congested:
                    await channel.drain()
        except ChannelClosed as exc:
            if self._line.end is None and not self._is_let_go:  # else it was this connection
                self.responses.fail(request_id, error_response(exchange, exc))
        except Exception as exc:
            refusal = error_response(exchange, exc)
            if not self._is_let_go:
                self.responses.fail(request_id, refusal)
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if self._is_let_go or task is None or task.cancelling():
                raise
            self.responses.fail(request_id, error_response(exchange, _not_ours(exc)))
        finally:
            # After a cancellation the id may belong to another request, and after the end of the
            # connection nothing is running any more.
            if not self._leaving or self._running.get(request_id) is asyncio.current_task():
                self._running.pop(request_id, None)
            if self._queued:
                self._queue.next()

    @property
    def _is_let_go(self) -> bool:
        """Whether the peer has cancelled the request of this task: its id may be another's now."""
        return bool(self._leaving) and asyncio.current_task() in self._leaving

    # What is not wanted any more

    def cancelled(self, event: RequestCancelled) -> None:
        """Take in that the peer does not wait for a request any more."""
        cancel = self._let_go(event.request_id)
        if self._on_cancelled is None:
            cancel(event.reason)
        else:
            self._on_cancelled(event.message, cancel)
        self._channel.finish(event.request_id)

    def _let_go(self, request_id: RequestId) -> Callable[[str], object]:
        """A request of the peer is not its business any more; returns what ends it."""
        self.responses.members.pop(request_id, None)
        task = self._running.pop(request_id, None)
        if task is not None:
            # A stateless peer may use the id again at once, while this one still cleans up.
            self._leaving.add(task)
            task.add_done_callback(self._left)
            return lambda why: task.cancel(why or None)  # whoever passed it on tells why
        cancel = self.delegated.release(request_id)
        if cancel is None:
            self._queue.drop(request_id)
            return lambda _: None
        return cancel

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        self._queue.next()  # if it never began, it could not see to that itself

    def drop_all(self) -> None:
        """Nobody is there any more; the current task goes on, if it is one of ours."""
        self._queue.clear()
        self._work.cancel_tasks(asyncio.current_task())
        self.delegated.drop()


def _not_ours(error: asyncio.CancelledError) -> Exception:
    """Something that the handler waited for was cancelled, but not the request."""
    failed = RuntimeError("what it waited for was cancelled")
    failed.__cause__ = error
    return failed


async def _nobody(exchange: Exchange) -> Answer:
    raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
