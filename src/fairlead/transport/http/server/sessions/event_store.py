"""What was sent on streams that a client may take up again (handshake era).

An event id names its stream and its number there: `p3_7` is the seventh event of the third POST,
`g_2` the second that belonged to no request. So a client that comes back hears the rest of exactly
that stream.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Protocol

from .....limits import EVENT_BYTES

__all__ = ["EventStore", "MemoryEventStore", "event_id", "read_event_id"]

MAX_EVENTS = 1024  # of one stream
MAX_STREAMS = 64  # of one session
MAX_BYTES = 4 << 20  # of one session
MAX_AGE = 600.0  # seconds


def event_id(stream: str, number: int) -> str:
    return f"{stream}_{number}"


def read_event_id(text: str) -> tuple[str, int] | None:
    """The stream and the number in it; None for an id that is not ours."""
    stream, _, number = text.rpartition("_")
    if not stream or len(number) > 18 or not number.isascii() or not number.isdigit():
        return None
    return stream, int(number)


class EventStore(Protocol):
    """Keeps events for clients that come back. Another process may be the one they come back to."""

    def append(self, session: str, stream: str, number: int, message: bytes) -> None:
        """Keep an event. Returns at once; a remote store writes in the background."""

    async def after(self, session: str, stream: str, number: int) -> list[tuple[int, bytes]] | None:
        """What followed an event on its stream; None if that stream is not known any more."""

    def forget(self, session: str) -> None:
        """The session is over."""


def _share(sizes: Iterable[int], total: int) -> int:
    """Return how much each may have so that all together have no more than `total`."""
    ascending = sorted(sizes)
    for index, size in enumerate(ascending):
        others = len(ascending) - index
        if size * others > total:
            return total // others
        total -= size
    return ascending[-1]


class _Stream:
    __slots__ = ("events", "first", "touched")

    touched: float

    def __init__(self, first: int) -> None:
        self.events: deque[bytes] = deque()
        self.first = first  # the number of the oldest one kept


class _Session:
    __slots__ = ("owner", "size", "streams")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.streams: OrderedDict[str, _Stream] = OrderedDict()
        self.size = 0


class MemoryEventStore:
    """Keeps the newest events of each session in this process, within bounds."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        max_total: int = EVENT_BYTES.value,
        owner_of: Callable[[str], str] = lambda session: session,
    ) -> None:
        """`owner_of` names the client of a session; clients share `max_total` fairly."""
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # least recently used first
        self._max_bytes = max_bytes
        self._max_total = max_total
        self._owner_of = owner_of
        self._owned: dict[str, int] = {}  # bytes kept, by owner
        self.size = 0  # bytes kept, of all sessions

    def append(self, session: str, stream: str, number: int, message: bytes) -> None:
        kept = self._sessions.get(session)
        if kept is None:
            kept = self._sessions[session] = _Session(self._owner_of(session))
        self._sessions.move_to_end(session)
        events = kept.streams.get(stream)
        if events is None:
            events = kept.streams[stream] = _Stream(number)
        now = events.touched = time.monotonic()
        kept.streams.move_to_end(stream)
        events.events.append(message)
        self._grow(kept, len(message))
        if len(events.events) > MAX_EVENTS:
            self._drop_oldest(kept, events)
        while len(kept.streams) > 1:
            oldest = next(iter(kept.streams.values()))
            old = now - oldest.touched > MAX_AGE
            if not (old or len(kept.streams) > MAX_STREAMS or kept.size > self._max_bytes):
                break
            self._drop_stream(kept)
        while kept.size > self._max_bytes and len(events.events) > 1:
            self._drop_oldest(kept, events)
        if self.size > self._max_total:
            self._make_room()

    async def after(self, session: str, stream: str, number: int) -> list[tuple[int, bytes]] | None:
        kept = self._sessions.get(session)
        events = None if kept is None else kept.streams.get(stream)
        if events is None or number + 1 < events.first:
            return None
        start = number + 1 - events.first
        return [
            (events.first + index, message)
            for index, message in enumerate(events.events)
            if index >= start
        ]

    def forget(self, session: str) -> None:
        kept = self._sessions.pop(session, None)
        if kept is not None:
            self._grow(kept, -kept.size)

    def _make_room(self) -> None:
        """Forget the oldest sessions of the clients that keep most.

        More is freed than is needed, because this looks at every session.
        """
        EVENT_BYTES.hit()
        target = self._max_total * 7 // 8
        share = _share(self._owned.values(), target)
        newest = next(reversed(self._sessions))
        for session, kept in list(self._sessions.items()):
            if session != newest and self._owned.get(kept.owner, 0) > share:
                self.forget(session)

    def _grow(self, kept: _Session, size: int) -> None:
        kept.size += size
        self.size += size
        left = self._owned.get(kept.owner, 0) + size
        if left:
            self._owned[kept.owner] = left
        else:
            self._owned.pop(kept.owner, None)

    def _drop_oldest(self, kept: _Session, events: _Stream) -> None:
        self._grow(kept, -len(events.events.popleft()))
        events.first += 1

    def _drop_stream(self, kept: _Session) -> None:
        _, events = kept.streams.popitem(last=False)
        self._grow(kept, -sum(map(len, events.events)))
