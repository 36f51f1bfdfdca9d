"""Requests of the peer that are delegated: answered without a task of this peer."""

from collections.abc import Callable

from msgspec import Raw

from ..errors import ChannelClosed, RpcError
from ..interceptor import Exchange
from ..wire import RequestId
from .backlog import Backlog, ignore_request
from .connection_state import FEW, ConnectionState
from .inbound_in_flight import DelegatedRequest
from .responses import Responses

__all__ = ["Delegate", "DelegatedRequests"]

MAX_LET_GO = 256  # maximum number of cancelled requests whose delegate was not notified yet

# Takes over a request, to answer it with `DelegatedRequests.answer`, or returns None to have a task
# started. The returned object is compared by identity, because another request may reuse the id.
Delegate = Callable[[Exchange], DelegatedRequest | None]


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
        # number of tasks started in this turn of the loop, which delegates must not overtake
        self.behind = 0
        # Requests that the peer has cancelled, but whose `cancel` was not called yet. Only the
        # latest are kept.
        self._let_go_of: list[DelegatedRequest] = []

    def answer(
        self, taken: DelegatedRequest, request_id: RequestId, outcome: bytes | Raw | RpcError
    ) -> None:
        """Answer a delegated request. The first outcome wins."""
        if self._taken.get(request_id) is not taken:
            return  # the request was cancelled, and its id may belong to another request
        del self._taken[request_id]
        if isinstance(outcome, RpcError):
            self._replies.fail(request_id, outcome)
        elif self._conversation.mark_answered(request_id):
            if len(self._taken) > FEW:
                self._channel.join_writes()
            try:
                # Without extra members the channel is called directly, which saves a call per
                # response.
                if self._members:
                    self._replies.succeed(request_id, outcome)
                else:
                    self._channel.send_success(request_id, outcome)
            except ChannelClosed:
                pass  # the owner task learns of it from the channel
        if self._queued or self._work.awaited is not None:
            self._one_less()

    def undelegate(self, taken: DelegatedRequest, exchange: Exchange) -> None:
        """Start a task for a request that was delegated."""
        if self._taken.get(exchange.request_id) is taken and self._line.end is None:
            del self._taken[exchange.request_id]
            self._begin(exchange, exchange.request_id)
            self._work.notify_idle_waiter()

    def preserve_order(self) -> None:
        """Let all further requests of this turn of the loop have a task.

        A request with a task is handled in the next turn; delegated requests would overtake it.
        """
        self.behind += 1
        self._line.loop.call_soon(self._went_ahead)

    def _went_ahead(self) -> None:
        self.behind -= 1

    def release(self, request_id: RequestId) -> Callable[[str], None] | None:
        """Release a cancelled delegated request; return the function that cancels it."""
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
            one.cancel("the client has gone")
        self._let_go_of.clear()

    def stop(self) -> None:
        """Drop the reference to the function that starts requests."""
        self._begin = ignore_request

    def _one_less(self) -> None:
        if self._queued:
            self._queue.next()
        self._work.notify_idle_waiter()
