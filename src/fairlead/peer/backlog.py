"""The queue of requests of the peer that exceed the limit of concurrent requests."""

import logging
from collections.abc import Callable

from ..interceptor import Exchange
from ..limits import IN_FLIGHT, QUEUED_REQUEST_BYTES, QUEUED_REQUESTS
from ..transport.bounded_queue import BoundedQueue
from ..wire import RequestId, failure
from ..wire.error_codes import INTERNAL_ERROR
from ..wire.messages import size_of
from .connection_state import ConnectionState

__all__ = ["Backlog", "ignore_request"]

MAX_QUEUED = QUEUED_REQUESTS.value
MAX_QUEUED_BYTES = QUEUED_REQUEST_BYTES.value

log = logging.getLogger("fairlead.peer")


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
        self._begin = ignore_request

    def next(self) -> None:
        """Start the oldest queued request, if the limit allows it."""
        if self.items and self._line.end is None and not self._line.work.is_full:
            exchange = self.pop()
            self._begin(exchange, exchange.request_id)

    def drop(self, request_id: RequestId) -> None:
        """Remove a request that the peer has cancelled, if it is queued."""
        for exchange in self.items:
            if exchange.request_id == request_id:
                self.remove(exchange)
                return


def ignore_request(exchange: Exchange, request_id: RequestId) -> None:
    """Do nothing: no request is started after the end of the connection."""
