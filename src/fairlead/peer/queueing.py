"""Requests of the peer that wait for their turn."""

import logging
from collections import deque
from collections.abc import Callable

from ..interceptor import Exchange
from ..limits import IN_FLIGHT, QUEUED_REQUEST_BYTES, QUEUED_REQUESTS
from ..wire import RequestId, failure
from ..wire.codes import INTERNAL_ERROR
from ..wire.messages import size_of
from .line import Line

__all__ = ["Queue"]

MAX_QUEUED = QUEUED_REQUESTS.value
MAX_QUEUED_BYTES = QUEUED_REQUEST_BYTES.value

log = logging.getLogger("fairlead.peer")


class Queue:
    """First come, first served, as soon as fewer are under way; bounded, also in bytes."""

    def __init__(self, line: Line, begin: Callable[[Exchange, RequestId], None]) -> None:
        self._line = line
        self._begin = begin
        self._size = 0
        self.waiting: deque[Exchange] = deque()  # always this one: others look whether it is empty

    def put(self, exchange: Exchange) -> None:
        """Let a request wait, or refuse it if too many do."""
        IN_FLIGHT.hit()
        size = _size(exchange)
        if len(self.waiting) >= MAX_QUEUED or self._size + size > MAX_QUEUED_BYTES:
            (QUEUED_REQUESTS if len(self.waiting) >= MAX_QUEUED else QUEUED_REQUEST_BYTES).hit()
            line = self._line
            line.conversation.settled(exchange.request_id)
            why = f"Too many requests: {line.work.most} are under way. Try again later"
            log.warning("refused %s: too many requests are under way", exchange.method)
            line.send_quietly(failure(exchange.request_id, INTERNAL_ERROR, why))
            return
        self.waiting.append(exchange)
        self._size += size

    def next(self) -> None:
        """Begin with one that waits, if there is room for it now."""
        if self.waiting and self._line.end is None and not self._line.work.is_full:
            exchange = self.waiting.popleft()
            self._size -= _size(exchange)
            self._begin(exchange, exchange.request_id)

    def drop(self, request_id: RequestId) -> None:
        """The peer does not want it any more, if it waits at all."""
        for exchange in self.waiting:
            if exchange.request_id == request_id:
                self.waiting.remove(exchange)
                self._size -= _size(exchange)
                return

    def clear(self) -> None:
        self.waiting.clear()
        self._size = 0


def _size(exchange: Exchange) -> int:
    return size_of(exchange.message)
