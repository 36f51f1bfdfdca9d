"""Requests of the peer that somebody takes over: they are answered without a task of ours."""

from collections import deque
from collections.abc import Callable

from msgspec import Raw

from ..errors import ChannelClosed, RpcError
from ..interceptor import Exchange
from ..wire import RequestId
from .backlog import Backlog
from .connection_state import FEW, ConnectionState
from .inbound_in_flight import DelegatedRequest
from .responses import Responses

__all__ = ["Delegate", "DelegatedRequests"]

MAX_LET_GO = 256  # cancelled by the peer, and remembered until that was passed on

# Takes a request over, to answer it with `DelegatedRequests.answer`; or returns None to have a
# task started. What it returns is known by who it is: an id may be used again by a request that is
# not its own.
Delegate = Callable[[Exchange], DelegatedRequest | None]


class DelegatedRequests:
    """Answers requests that were taken over, gives them back, and lets go of them."""

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
        self.behind = 0  # requests that must not be overtaken
        # Cancelled by the peer, but nobody has passed that on; the last ones.
        self._let_go_of: deque[DelegatedRequest] = deque(maxlen=MAX_LET_GO)

    def answer(
        self, taken: DelegatedRequest, request_id: RequestId, outcome: bytes | Raw | RpcError
    ) -> None:
        """Answer a request that was taken over. First outcome wins."""
        if self._taken.get(request_id) is not taken:
            return  # cancelled, and perhaps the id has another owner by now
        del self._taken[request_id]
        if isinstance(outcome, RpcError):
            self._replies.fail(request_id, outcome)
        elif self._conversation.mark_answered(request_id):
            if len(self._taken) > FEW:
                self._channel.join_writes()
            try:
                if self._members:
                    self._replies.succeed(request_id, outcome)
                else:
                    self._channel.send_success(request_id, outcome)
            except ChannelClosed:
                pass  # the owner hears of it from the channel
        if self._queued or self._work.awaited is not None:
            self._one_less()

    def undelegate(self, taken: DelegatedRequest, exchange: Exchange) -> None:
        """A request that was taken over needs a task after all."""
        if self._taken.get(exchange.request_id) is taken and self._line.end is None:
            del self._taken[exchange.request_id]
            self._begin(exchange, exchange.request_id)
            self._work.notify_idle_waiter()

    def preserve_order(self) -> None:
        """A request is on its way only in the next turn of the loop: those that come until then
        have a task too, so that they stay behind it."""
        self.behind += 1
        self._line.loop.call_soon(self._went_ahead)

    def _went_ahead(self) -> None:
        self.behind -= 1

    def release(self, request_id: RequestId) -> Callable[[str], None] | None:
        """The peer has cancelled a request; returns what ends it, if it was taken over."""
        taken = self._taken.pop(request_id, None)
        if taken is None:
            return None
        self._let_go_of.append(taken)
        self._one_less()

        def cancel(why: str) -> None:
            if taken in self._let_go_of:
                self._let_go_of.remove(taken)
            taken.cancel(why or "cancelled by the caller")

        return cancel

    def drop(self) -> None:
        """Nobody is there any more who waits for answers."""
        gone = (*self._taken.values(), *self._let_go_of)
        self._taken.clear()
        for one in gone:
            one.cancel("the client has gone")
        self._let_go_of.clear()

    def _one_less(self) -> None:
        if self._queued:
            self._queue.next()
        self._work.notify_idle_waiter()
