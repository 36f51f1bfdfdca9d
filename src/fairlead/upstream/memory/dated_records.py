"""Records about servers in one small file of a cache, which is replaced atomically.

A file that cannot be read or has another version is ignored, and so are old records.
"""

import logging
import time
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from .tool_cache import CacheStore

__all__ = ["DatedRecords"]

VERSION = 1
LIMIT = 1000  # servers; the oldest records are dropped first
MAX_BYTES = 256 << 10

log = logging.getLogger("fairlead.upstream")


class _Dated(Protocol):
    saved: float  # seconds since the epoch


R = TypeVar("R", bound=_Dated)


class DatedRecords(Generic[R]):
    """Records by server, in a cache. Failures are logged, and without a store nothing is kept."""

    def __init__(self, store: CacheStore | None, key: str, kind: type[R], lifetime: float) -> None:
        """`key` is the name of the file, and of the member in it that contains the records."""
        self._store = store
        self._key = key
        self._type: Any = dict[str, int | dict[str, kind]]  # type: ignore[valid-type]
        self._lifetime = lifetime

    def read(self) -> dict[str, R]:
        if self._store is None:
            return {}
        try:
            raw = self._store.read(self._key)
            if raw is None or len(raw) > MAX_BYTES:
                return {}
            file = msgspec.json.decode(raw, type=self._type)
            records: dict[str, R] = file[self._key] if file["version"] == VERSION else {}
            now = time.time()
            # A negative age means that the clock was set back.
            return {
                key: one for key, one in records.items() if 0 <= now - one.saved < self._lifetime
            }
        # the file may be unreadable, and a store of the host program may raise anything
        except Exception as exc:
            log.debug("%s could not be read from the cache: %s", self._key, exc)
            return {}

    def save(self, server: str, record: R | None) -> None:
        """Replace the record of a server; None removes it."""
        if self._store is None:
            return
        records = self.read()  # read again, because another process may have written to the file
        records.pop(server, None)
        if record is not None:
            records[server] = record
        newest = sorted(records.items(), key=lambda one: one[1].saved)[-LIMIT:]
        try:
            file = {"version": VERSION, self._key: dict(newest)}
            self._store.write(self._key, msgspec.json.encode(file))
        except Exception as exc:  # a store of the host program may raise anything
            log.debug("%s could not be saved in the cache: %s", self._key, exc)
