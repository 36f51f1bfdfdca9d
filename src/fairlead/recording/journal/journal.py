"""Journal of exchanges in bounded memory, and readers that receive each exchange when it ends.

Most entries are never read. Secrets are therefore removed when an entry is read, not when the
message is forwarded.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

from msgspec import UNSET, Raw, UnsetType

from ...limits import JOURNAL_READERS
from ...observe.log_filter import follow_secrets
from ...observe.timestamps import Timestamp
from ...protocol.envelope import Direction
from ...redaction.redact_messages import Redactor
from ...transport import timeouts
from .journal_record import HANGS, ExchangeKind, ExchangeState, JournalRecord
from .pending_entry import OVERHEAD, PendingEntry
from .tool_error import is_tool_error

__all__ = ["Journal", "JournalReader"]

MAX_NAMES: Final = 1000  # maximum number of redacted names that are cached
SHOWN: Final = 500  # maximum length of a stored text in characters, counted after redaction
LOOKED_AT: Final = 4096  # number of characters at the start of a text that are searched for secrets
MAX_READERS: Final = JOURNAL_READERS.value
# Seconds between two checks for hanging calls; checks run only while there are readers.
LOOK_EVERY: Final = 1.0

_TOOL: Final = "tools/call"
# Methods whose response is sent only when the subscription ends.
_LASTING: Final = ("subscriptions/listen",)


class Journal:
    """The latest exchanges, limited in number and size.

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
        """Set the limits. If params or a result exceed `longest` bytes, only their size is kept.

        A request that has no response after `hangs_after` seconds is flagged.
        """
        self.dropped = 0  # number of records that were evicted
        self._max_entries = max_entries = max(max_entries, 1)
        self._max_bytes = max_bytes
        self._longest = longest
        # Params up to this size need not be shortened by `_bound`.
        self._unbounded = min(longest, SHOWN)
        self._hangs_after = hangs_after
        self._redactor = redactor or follow_secrets(Redactor())
        self.clock = clock
        # The ids of the entries are consecutive, so `get` can compute a position.
        self._kept: deque[PendingEntry] = deque(maxlen=max_entries)
        self._bytes = 0
        self._next = 1
        self._open: dict[int, PendingEntry] = {}  # requests that have no response yet
        self._names: dict[str, str] = {}  # redacted names, by original name
        self._readers: set[JournalReader] = set()

    # Recording

    def begin(
        self,
        direction: Direction,
        kind: ExchangeKind,
        method: str,
        target: str | None = None,
        params: Raw | bytes | UnsetType | None = None,
        session: str | None = None,
        request_id: Any = None,
        *,
        text: str | None = None,
        when: Timestamp | None = None,
    ) -> PendingEntry:
        """Register an exchange that starts now or at `when`. Call `end` with its outcome later."""
        # Copied, because a slice would keep the whole message in memory.
        raw = b"" if params is None or params is UNSET else bytes(params)
        at = time.time() if when is None else when.wall
        since = self.clock() if when is None else when.steady
        entry = PendingEntry(
            0, at, since, direction, kind, method, target, session, request_id, raw, len(raw)
        )
        self._bound(entry)
        if text is not None:
            entry.text = self._redactor.text(text)[:SHOWN]
        self.keep(entry)
        return entry

    def keep(self, entry: PendingEntry) -> None:
        """Register an exchange whose target, if any, is part of its params."""
        size = len(entry.params)
        if size > self._unbounded or len(entry.method) > SHOWN or type(entry.request_id) is not int:
            self._bound(entry)
            size = len(entry.params)
        entry.id = number = self._next
        self._next = number + 1
        kept = self._kept
        if len(kept) == self._max_entries:
            self._forget(kept[0])  # the deque evicts it in the next statement
        kept.append(entry)
        self._open[number] = entry
        self._bytes += OVERHEAD + size
        if self._bytes > self._max_bytes:
            self._make_room()

    def end(
        self,
        entry: PendingEntry,
        state: ExchangeState,
        result: Raw | bytes | UnsetType | None = None,
        did: list[str] | None = None,
        *,
        code: int | None = None,
        error: str | None = None,
        when: Timestamp | None = None,
    ) -> None:
        """Set the outcome of an exchange; later outcomes are ignored.

        A state "ok" becomes "failed" if a tool result reports an error.
        """
        # Entries that were evicted or have ended are not in this dict any longer.
        if self._open.pop(entry.id, None) is None:
            return
        entry.state = state
        entry.until = self.clock() if when is None else when.steady
        entry.clean = False
        if did:
            entry.did = tuple(did)
        if result is not None and result is not UNSET:
            raw = bytes(result)
            size = len(raw)
            entry.size += size
            if size <= self._longest:
                entry.result = raw
                if entry.id >= self._kept[0].id:
                    self._bytes += size
                    if self._bytes > self._max_bytes:
                        self._make_room()
            elif state == "ok" and entry.method == _TOOL and is_tool_error(raw):
                entry.state = "failed"
        if error is not None:
            entry.code = code
            entry.error = error if len(error) <= SHOWN else self._cut(error)
        if self._readers:
            self._publish(entry)

    def flag(self, entry: PendingEntry, what: str) -> None:
        """Add a flag to an exchange."""
        if what not in entry.flags:
            entry.flags = (*entry.flags, what)

    def flag_hanging(self) -> None:
        """Flag each request that hangs, once, and notify readers."""
        before = self.clock() - self._hangs_after
        # Copied, because `_publish` may change the dict.
        for entry in list(self._open.values()):
            if entry.since > before:
                break  # entries are ordered by their start
            if entry.kind != "request" or entry.method in _LASTING:
                continue
            if HANGS not in entry.flags:
                self.flag(entry, HANGS)
                self._publish(entry)

    # Reading

    @property
    def pending(self) -> int:
        """Number of requests without a response."""
        return sum(entry.kind == "request" for entry in self._open.values())

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    def records(self, after: int = 0) -> list[JournalRecord]:
        """Return the records with an id above `after`, oldest first."""
        return [self._shown(entry) for entry in self._kept if entry.id > after]

    def get(self, number: int) -> JournalRecord | None:
        place = number - self._kept[0].id if self._kept else -1
        return self._shown(self._kept[place]) if 0 <= place < len(self._kept) else None

    def follow(self, *, room: int = 1000) -> "JournalReader":
        """Return a reader for exchanges that end or hang from now on. A slow reader loses the
        oldest records.

        Raises:
            RuntimeError: There are too many readers.
        """
        if len(self._readers) >= MAX_READERS:
            JOURNAL_READERS.hit()
            raise RuntimeError(f"too many readers: the limit is {MAX_READERS}")
        reader = JournalReader(self, room)
        self._readers.add(reader)
        return reader

    def leave(self, reader: "JournalReader") -> None:
        self._readers.discard(reader)

    # Private

    def _publish(self, entry: PendingEntry) -> None:
        if self._readers:
            now = self._shown(entry)
            for reader in self._readers:
                reader.put(now)

    def _shown(self, entry: PendingEntry) -> JournalRecord:
        """Return a record without secrets. Redaction happens on the first call."""
        if not entry.clean:
            # Set before redaction, which replaces the original values and must happen only once.
            entry.clean = True
            entry.method = self._clean(entry.method)
            if entry.target is not None:
                entry.target = self._clean(entry.target)
            entry.request_id = self._short(entry.request_id)
            before = len(entry.params) + len(entry.result)
            if entry.params:
                entry.params = self._redactor.message(entry.params)
            if entry.result:
                if entry.state == "ok" and entry.method == _TOOL and is_tool_error(entry.result):
                    entry.state = "failed"
                entry.result = self._redactor.message(entry.result)
            if entry.id >= self._kept[0].id:
                self._bytes += len(entry.params) + len(entry.result) - before
            if entry.error is not None:
                entry.error = self._redactor.text(entry.error)
            entry.did = tuple(self._redactor.text(one) for one in entry.did)
        return entry.record()

    def _clean(self, name: str) -> str:
        """Redact a name. Names occur repeatedly, so the results are cached."""
        clean = self._names.get(name)
        if clean is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            clean = self._cut(name)
            if len(name) <= SHOWN:
                self._names[name] = clean
        return clean

    def _bound(self, entry: PendingEntry) -> None:
        """Limit the length of values from the peer, and convert ids of invalid types to strings."""
        if len(entry.method) > SHOWN:
            entry.method = self._clean(entry.method)
        if entry.target is not None and len(entry.target) > SHOWN:
            entry.target = self._clean(entry.target)
        request_id = entry.request_id
        if not isinstance(request_id, str) or len(request_id) > SHOWN:
            entry.request_id = self._short(request_id)
        if len(entry.params) > self._longest:
            entry.params = b""

    def _short(self, request_id: Any) -> Any:
        if isinstance(request_id, str):
            return self._cut(request_id)
        if isinstance(request_id, int | None):
            return request_id
        return self._cut(str(request_id))  # The id has a type that JSON-RPC does not allow.

    def _cut(self, text: str) -> str:
        return self._redactor.text(text[:LOOKED_AT])[:SHOWN]

    def _make_room(self) -> None:
        while len(self._kept) > 1 and self._bytes > self._max_bytes:
            self._forget(self._kept.popleft())

    def _forget(self, entry: PendingEntry) -> None:
        self._bytes -= OVERHEAD + len(entry.params) + len(entry.result)
        self.dropped += 1
        if len(self._open) >= self._max_entries:
            # Dropped, because the caller of the oldest open entry has probably forgotten `end`.
            del self._open[next(iter(self._open))]


class JournalReader:
    """Reader of a journal: an async iterator that ends with `close`."""

    def __init__(self, journal: Journal, room: int) -> None:
        self.lost = 0  # number of records dropped because this reader was too slow
        self._journal = journal
        self._queue: deque[JournalRecord] = deque(maxlen=room)
        self._news = asyncio.Event()
        self.closed = False

    def put(self, record: JournalRecord) -> None:
        if len(self._queue) == self._queue.maxlen:
            self.lost += 1
        self._queue.append(record)
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._journal.leave(self)
        self._news.set()

    async def wait(self, timeout: float) -> list[JournalRecord]:
        """Return the queued records; if there are none, wait for one at most `timeout` seconds."""
        limit = asyncio.get_running_loop().time() + timeout
        while not self._queue and not self.closed:
            left = limit - asyncio.get_running_loop().time()
            if left <= 0:
                break
            # The wait has a timeout, because readers must check for hanging calls.
            await self._wait_for_news(min(left, LOOK_EVERY))
        found = list(self._queue)
        self._queue.clear()
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> JournalRecord:
        while not self._queue:
            if self.closed:
                raise StopAsyncIteration
            await self._wait_for_news(LOOK_EVERY)
        return self._queue.popleft()

    async def _wait_for_news(self, seconds: float) -> None:
        self._news.clear()
        try:
            async with timeouts.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            self._journal.flag_hanging()
