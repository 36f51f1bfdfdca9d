"""Era verdicts on disk: a server that was asked once need not be asked by the next process.

One small file in the cache folder, replaced as a whole. What cannot be read, is of another version
or too old counts for nothing; a verdict that turns out wrong is removed, and the server is asked.
"""

import logging
import time

import msgspec
from msgspec import Struct

from .tool_cache import CacheStore

__all__ = ["CachedEraStore"]

VERSION = 1
LIFETIME = 7 * 24 * 3600.0  # seconds; a server may learn the newer era meanwhile
LIMIT = 1000  # servers; those that were asked longest ago go first
MAX_BYTES = 256 << 10
KEY = "eras"

log = logging.getLogger("fairlead.manager")


class _Verdict(Struct, array_like=True):
    stateless: bool
    saved: float  # seconds since the epoch


class _File(Struct):
    version: int
    eras: dict[str, _Verdict]


class CachedEraStore:
    """An `EraStore` on top of any `CacheStore`."""

    def __init__(self, store: CacheStore) -> None:
        self._store = store

    def load(self) -> dict[str, bool]:
        return {server: verdict.stateless for server, verdict in self._read().items()}

    def save(self, server: str, stateless: bool | None) -> None:
        eras = self._read()  # another process may have written meanwhile
        eras.pop(server, None)
        if stateless is not None:
            eras[server] = _Verdict(stateless, time.time())
        newest = sorted(eras.items(), key=lambda one: one[1].saved)[-LIMIT:]
        try:
            self._store.write(KEY, msgspec.json.encode(_File(VERSION, dict(newest))))
        except Exception as exc:  # a store of somebody else may raise anything
            log.debug("era verdicts could not be kept: %s", exc)

    def _read(self) -> dict[str, _Verdict]:
        try:
            raw = self._store.read(KEY)
            if raw is None or len(raw) > MAX_BYTES:
                return {}
            file = msgspec.json.decode(raw, type=_File)
        except Exception as exc:  # unreadable, or a store of somebody else
            log.debug("no era verdicts: %s", exc)
            return {}
        if file.version != VERSION:
            return {}
        now = time.time()
        return {
            server: verdict
            for server, verdict in file.eras.items()
            if 0 <= now - verdict.saved < LIFETIME
        }
