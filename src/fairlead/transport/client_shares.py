"""Fair shares of a limited number of items (sessions, sockets, streams) among clients.

A client is a principal; an anonymous client is identified by its network address. When all items
are in use, the client that holds the most loses one. A client that opens too many items therefore
loses its own, and a client with few items loses none.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from ..limits import Limit

__all__ = ["ClientShares", "NoShareLeft"]

T = TypeVar("T")

# Maximum number of items examined to find an idle one.
# Examining all items would allow a denial of service.
SAMPLE = 32


class NoShareLeft(Exception):
    """Raised if a limit is reached and no item can be evicted for the client."""


class ClientShares(Generic[T]):
    """The items held by each client. Every operation takes constant time."""

    def __init__(
        self,
        total: int,
        per_client: int,
        limit: Limit,
        *,
        is_idle: Callable[[T], bool] = lambda _: False,
        used: Callable[[T], float] = lambda _: 0.0,
    ) -> None:
        """`limit` counts refusals and evictions. `is_idle` returns True if an item can be evicted
        without harm; `used` returns the time of its last use.
        """
        self._total = total
        self._per_client = per_client
        self._limit = limit
        self._is_idle = is_idle
        self._used = used
        self._owner: dict[T, str] = {}
        self._held: dict[str, OrderedDict[T, None]] = {}  # by client; least recently used first
        # clients by the number of items that they hold
        self._by_size: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._owner)

    def count(self, client: str) -> int:
        """Return the number of items that a client holds."""
        return len(self._held.get(client, ()))

    def add(self, client: str, item: T) -> None:
        """Assign an item to a client. Call `make_room` first."""
        held = self._held.setdefault(client, OrderedDict())
        held[item] = None
        self._owner[item] = client
        self._move(client, len(held) - 1, len(held))

    def discard(self, item: T) -> None:
        """Remove an item from its client. Safe to call more than once."""
        client = self._owner.pop(item, None)
        if client is not None:
            held = self._held[client]
            del held[item]
            self._move(client, len(held) + 1, len(held))
            if not held:
                del self._held[client]

    def touch(self, item: T) -> None:
        """Mark an item as just used."""
        client = self._owner.get(item)
        if client is not None:
            self._held[client].move_to_end(item)

    def make_room(self, client: str) -> T | None:
        """Return the item to evict before `client` gets another item; None if no limit is reached.

        Raises:
            NoShareLeft: A limit is reached, and no item can be evicted for the client.
        """
        own = self.count(client)
        if own < self._per_client and len(self._owner) < self._total:
            return None
        self._limit.hit()
        if own and (own >= self._per_client or self._most <= own + 1):
            victim = self._idle_of(self._held[client])
        else:
            victim = self._of_largest(own)
        if victim is None:
            raise NoShareLeft
        return victim

    def largest(self) -> T | None:
        """Return the least recently used item of the client that holds the most items."""
        if not self._most:
            return None
        return next(iter(self._held[next(iter(self._by_size[self._most]))]))

    def _of_largest(self, own: int) -> T | None:
        """Return an item to evict from the client that holds the most items, or None.

        An idle item is preferred. An item in use is evicted only if its client is above the fair
        share and a client with `own` items is below it.
        """
        if not self._most:
            return None
        largest = self._by_size[self._most]
        if len(largest) == 1:
            victim = self._idle_of(self._held[next(iter(largest))])
        else:
            victim = self._idle_of_several(largest)
        fair = max(1, self._total // (len(self._held) + (own == 0)))
        if victim is None and own < fair < self._most:
            # Evict an item in use: its client is above the fair share, the new client below it.
            return self.largest()
        return victim

    def _idle_of(self, held: "OrderedDict[T, None]") -> T | None:
        for item in list(islice(held, SAMPLE)):
            if self._is_idle(item):
                return item
            # An item in use moves to the end, so that the next search starts after it.
            held.move_to_end(item)
        return None

    def _idle_of_several(self, clients: dict[str, None]) -> T | None:
        found: list[T] = []
        for client in list(islice(clients, SAMPLE)):
            item = next(iter(self._held[client]))
            if self._is_idle(item):
                found.append(item)
            else:
                del clients[client]
                clients[client] = None  # moved to the end, so that the next search starts after it
        return min(found, key=self._used, default=None)

    def _move(self, client: str, before: int, after: int) -> None:
        if before:
            same = self._by_size[before]
            del same[client]
            if not same:
                del self._by_size[before]
        if after:
            self._by_size.setdefault(after, {})[client] = None
        if after > self._most or (before == self._most and before not in self._by_size):
            self._most = after
