"""Stores of events sent on streams that a client can resume (handshake era).

An event id consists of the name of the stream and the number of the event in it: `p3_7` is the
seventh event of the third POST, `g_2` the second one outside any request. A client that resumes
therefore receives the rest of exactly that stream. The name contains the scopes that the requests
of the POST require, because the client may resume with a token that has fewer scopes.
"""

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import Struct, field

from .....limits import EVENT_BYTES

__all__ = [
    "EventStore",
    "MemoryEventStore",
    "event_id",
    "post_stream_name",
    "read_event_id",
    "stream_scopes",
]

MAX_EVENTS = 1024  # events kept per stream
MAX_STREAMS = 64  # streams kept per session
MAX_BYTES = 4 << 20  # bytes kept per session
MAX_AGE = 600.0  # seconds after which the events of an unused stream are dropped


def event_id(stream: str, number: int) -> str:
    return f"{stream}_{number}"


def post_stream_name(number: int, scopes: Sequence[str] = ()) -> str:
    """Return the name of the stream for a POST whose requests require these scopes."""
    if not scopes:
        return f"p{number}"
    return f"p{number}.{urlsafe_b64encode(' '.join(scopes).encode()).rstrip(b'=').decode()}"


def stream_scopes(name: str) -> tuple[str, ...]:
    """Return the scopes in the name of an existing stream."""
    text = name.partition(".")[2]
    return tuple(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split())


def read_event_id(text: str) -> tuple[str, int] | None:
    """Return the stream name and event number, or None for an invalid id."""
    stream, _, number = text.rpartition("_")
    # Clients choose ids: `int` takes quadratic time, and `isdigit` alone accepts other scripts.
    if not stream or len(number) > 18 or not number.isascii() or not number.isdigit():
        return None
    return stream, int(number)


class EventStore(Protocol):
    """Store of events for clients that resume a stream, possibly in another process."""

    def append(self, session: str, stream: str, number: int, message: bytes) -> None:
        """Store an event. Return immediately; a remote store writes in the background."""

    async def after(self, session: str, stream: str, number: int) -> list[tuple[int, bytes]] | None:
        """Return the events after `number` on a stream; None if the stream is unknown, or if the
        store has dropped some of these events.
        """

    def forget(self, session: str) -> None:
        """Delete the events of a session that has ended."""


def _share(sizes: Iterable[int], total: int) -> int:
    """Return the largest share per owner with which all owners stay within `total`."""
    ascending = sorted(sizes)
    for index, size in enumerate(ascending):
        others = len(ascending) - index
        if size * others > total:
            return total // others
        total -= size
    return ascending[-1]


class _Stream(Struct):
    first: int  # number of the oldest event kept
    touched: float = 0.0
    events: deque[bytes] = field(default_factory=deque)


class _Session(Struct):
    owner: str
    size: int = 0
    streams: OrderedDict[str, _Stream] = field(default_factory=OrderedDict)


class MemoryEventStore:
    """Store of the newest events of each session in memory, with limits."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_BYTES,
        max_total: int = EVENT_BYTES.value,
        owner_of: Callable[[str], str] = lambda session: session,
    ) -> None:
        """`owner_of` returns the client of a session; clients share `max_total` fairly."""
        self._sessions: OrderedDict[str, _Session] = OrderedDict()  # least recently used first
        self._max_bytes = max_bytes
        self._max_total = max_total
        self._owner_of = owner_of
        self._owned: dict[str, int] = {}  # bytes per owner
        self.size = 0  # bytes of all sessions

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
        # The stream in use is kept, whatever its age; its own events are dropped last.
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
        return list(enumerate(events.events, events.first))[start:]

    def forget(self, session: str) -> None:
        kept = self._sessions.pop(session, None)
        if kept is not None:
            self._grow(kept, -kept.size)

    def _make_room(self) -> None:
        """Drop the oldest sessions of the clients that use most of the memory.

        Each call frees more than is needed, because it iterates over all sessions.
        """
        EVENT_BYTES.hit()
        target = self._max_total * 7 // 8
        share = _share(self._owned.values(), target)
        # The session that is being written to must keep the event just added.
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
        # Removed at zero, so that the dict does not grow with every client ever seen.
        else:
            self._owned.pop(kept.owner, None)

    def _drop_oldest(self, kept: _Session, events: _Stream) -> None:
        self._grow(kept, -len(events.events.popleft()))
        events.first += 1

    def _drop_stream(self, kept: _Session) -> None:
        _, events = kept.streams.popitem(last=False)
        self._grow(kept, -sum(map(len, events.events)))
