"""A bounded memory of exchanges, and readers that hear of each as it ends.

Most of what is remembered is never looked at. So secrets are taken out when somebody looks, and not
before: nothing leaves here with them.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...observe.redactor import Redactor
from ...protocol.envelope import Direction
from ..moment import Moment
from .record import HANGS, Kind, Record, State

__all__ = ["Journal", "Reader"]

OVERHEAD: Final = 600  # bytes that a record costs beside its messages
MAX_NAMES: Final = 1000
SHOWN: Final = 500  # characters of a text, cut when nothing secret is in it any more
LOOKED_AT: Final = 4096  # characters of it in which secrets are looked for, before that
MAX_READERS: Final = 64
LOOK_EVERY: Final = 1.0  # seconds between looks for calls that hang, while somebody reads

_LASTING: Final = ("subscriptions/listen",)  # it is answered when it ends


class Journal:
    """The last exchanges, at most so many and so large.

    journal = Journal()
    relay = Relay(entry, interceptors=[Journaling(journal)])
    async for record in journal.follow():
        print(record.method, record.state)
    """

    def __init__(
        self,
        *,
        max_entries: int = 5000,
        max_bytes: int = 32 << 20,
        longest: int = 64 << 10,
        hangs_after: float = 30.0,
        redactor: Redactor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Params and results over `longest` bytes are not kept, only how long they were.

        A request without an answer after `hangs_after` seconds is flagged.
        """
        self.dropped = 0  # records that made room for others
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._longest = longest
        self._hangs_after = hangs_after
        self._redactor = redactor or Redactor()
        self._clock = clock
        self._kept: deque[_Kept] = deque()  # their numbers follow each other
        self._bytes = 0
        self._next = 1
        self._open: dict[int, _Kept] = {}  # what is not answered yet
        self._names: dict[str, str] = {}  # as they come, and as they are shown
        self._readers: set[Reader] = set()

    # Filling it

    def begin(
        self,
        direction: Direction,
        kind: Kind,
        method: str,
        *,
        target: str | None = None,
        params: Raw | bytes | UnsetType | None = None,
        session: str | None = None,
        request_id: Any = None,
        text: str | None = None,
        when: Moment | None = None,
    ) -> Record:
        """Something has begun to pass, now or at a moment not before the last; `end` it."""
        number = self._next
        self._next = number + 1
        record = Record(
            id=number,
            at=time.time() if when is None else when.wall,
            dir=direction,
            kind=kind,
            method=method if len(method) <= SHOWN else self._clean(method),
            target=target if target is None or len(target) <= SHOWN else self._clean(target),
            session=session,
            request_id=request_id if type(request_id) is int else self._bounded(request_id),
            text=None if text is None else self._redactor.text(text)[:SHOWN],
        )
        kept = _Kept(record, self._clock() if when is None else when.steady)
        if params is not None and not isinstance(params, UnsetType):
            size = record.size = len(memoryview(params))
            if size <= self._longest:
                kept.size += size
                # A part would hold on to the whole message, which may be far longer.
                record.params = params.copy() if type(params) is Raw else Raw(params)
        if text is not None:
            kept.size += len(record.text or "")
        self._kept.append(kept)
        self._open[number] = kept
        self._bytes += kept.size
        if self._bytes > self._max_bytes or len(self._kept) > self._max_entries:
            self._make_room()
        return record

    def end(
        self,
        record: Record,
        state: State,
        *,
        result: Raw | bytes | UnsetType | None = None,
        code: int | None = None,
        error: str | None = None,
        did: list[str] | None = None,
        when: Moment | None = None,
    ) -> None:
        """It has its outcome, now or since then. Only the first one counts."""
        kept = self._open.pop(record.id, None)
        if kept is None:
            return
        if kept.clean:  # whoever was shown it must not see in it what is not clean yet
            kept.record = msgspec.structs.replace(kept.record)
        record = kept.record
        record.state = state
        if record.kind == "request":
            now = self._clock() if when is None else when.steady
            record.duration = int((now - kept.since) * 1e6 + 0.5) / 1e6
        if code is not None:
            record.code = code
        if error is not None:
            record.error = error if len(error) <= SHOWN else self._cut(error)
        if did:
            record.did = tuple(did)
        kept.clean = False
        if result is not None and not isinstance(result, UnsetType):
            size = len(memoryview(result))
            record.size += size
            if size <= self._longest:
                kept.size += size
                record.result = result.copy() if type(result) is Raw else Raw(result)
                if record.id >= self._kept[0].record.id:
                    self._bytes += size
                    if self._bytes > self._max_bytes:
                        self._make_room()
        if self._readers:
            self._publish(kept)

    def flag(self, record: Record, what: str) -> None:
        """Something is odd about it."""
        if what not in record.flags:
            record.flags = (*record.flags, what)

    def look_over(self) -> None:
        """Flag what hangs, once, and tell readers."""
        before = self._clock() - self._hangs_after
        for kept in list(self._open.values()):
            if kept.since > before:
                break  # the others are younger
            record = kept.record
            if record.kind != "request" or record.method in _LASTING:
                continue
            if HANGS not in record.flags:
                self.flag(record, HANGS)
                self._publish(kept)

    # Reading it

    @property
    def pending(self) -> int:
        """Requests that are not answered yet."""
        return sum(kept.record.kind == "request" for kept in self._open.values())

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    def records(self, after: int = 0) -> list[Record]:
        """What is remembered, the oldest first; those with an id above `after`."""
        return [self._shown(kept) for kept in self._kept if kept.record.id > after]

    def get(self, number: int) -> Record | None:
        place = number - self._kept[0].record.id if self._kept else -1
        return self._shown(self._kept[place]) if 0 <= place < len(self._kept) else None

    def follow(self, *, room: int = 1000) -> "Reader":
        """What ends from now on, or hangs. Who reads slower than that loses the oldest.

        Raises:
            RuntimeError: there are too many readers.
        """
        if len(self._readers) >= MAX_READERS:
            raise RuntimeError(f"there are {MAX_READERS} readers already")
        reader = Reader(self, room)
        self._readers.add(reader)
        return reader

    def leave(self, reader: "Reader") -> None:
        self._readers.discard(reader)

    # Inside

    def _publish(self, kept: "_Kept") -> None:
        if self._readers:
            now = msgspec.structs.replace(self._shown(kept))  # it may change before it is read
            for reader in self._readers:
                reader.put(now)

    def _shown(self, kept: "_Kept") -> Record:
        """A record, for others to see."""
        record = kept.record
        if not kept.clean:
            kept.clean = True
            record.method = self._clean(record.method)
            if record.target is not None:
                record.target = self._clean(record.target)
            record.request_id = self._short(record.request_id)
            record.params = self._without_secrets(record.params)
            record.result = self._without_secrets(record.result)
            if record.error is not None:
                record.error = self._redactor.text(record.error)
            record.did = tuple(self._redactor.text(one) for one in record.did)
        return record

    def _without_secrets(self, part: Raw | UnsetType) -> Raw | UnsetType:
        if isinstance(part, UnsetType):
            return part
        raw = bytes(part)
        clean = self._redactor.message(raw)
        return part if clean is raw else Raw(clean)

    def _clean(self, name: str) -> str:
        """A name that somebody chose: the same few come again and again."""
        clean = self._names.get(name)
        if clean is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            clean = self._cut(name)
            if len(name) <= SHOWN:
                self._names[name] = clean
        return clean

    def _bounded(self, request_id: Any) -> Any:
        """An id as it is kept; nearly all are short."""
        is_short = isinstance(request_id, str) and len(request_id) <= SHOWN
        return request_id if is_short else self._short(request_id)

    def _short(self, request_id: Any) -> Any:
        if isinstance(request_id, str):
            return self._cut(request_id)
        if isinstance(request_id, int | None):
            return request_id
        return self._cut(str(request_id))  # of no type that an id may have

    def _cut(self, text: str) -> str:
        return self._redactor.text(text[:LOOKED_AT])[:SHOWN]

    def _make_room(self) -> None:
        while len(self._kept) > 1 and (
            self._bytes > self._max_bytes or len(self._kept) > self._max_entries
        ):
            self._bytes -= self._kept.popleft().size
            self.dropped += 1
        while len(self._open) > self._max_entries:  # forgotten by whoever began them
            del self._open[next(iter(self._open))]


class _Kept(Struct, gc=False):
    """A record in memory: since when, and how much room it takes."""

    record: Record
    since: float
    size: int = OVERHEAD
    clean: bool = False  # nothing secret is in it any more


class Reader:
    """One who follows; an async iterator that ends with `close`."""

    def __init__(self, journal: Journal, room: int) -> None:
        self.lost = 0  # records that came while we were too slow
        self._journal = journal
        self._queue: deque[Record] = deque(maxlen=room)
        self._news = asyncio.Event()
        self.closed = False

    def put(self, record: Record) -> None:
        if len(self._queue) == self._queue.maxlen:
            self.lost += 1
        self._queue.append(record)
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._journal.leave(self)
        self._news.set()

    async def wait(self, timeout: float) -> list[Record]:
        """What has come; waits for something at most so long."""
        limit = asyncio.get_running_loop().time() + timeout
        while not self._queue and not self.closed:
            left = limit - asyncio.get_running_loop().time()
            if left <= 0:
                break
            self._news.clear()
            try:
                async with asyncio.timeout(min(left, LOOK_EVERY)):
                    await self._news.wait()
            except TimeoutError:
                self._journal.look_over()
        found = list(self._queue)
        self._queue.clear()
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        while not self._queue:
            if self.closed:
                raise StopAsyncIteration
            self._news.clear()
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._news.wait()
            except TimeoutError:
                self._journal.look_over()
        return self._queue.popleft()
