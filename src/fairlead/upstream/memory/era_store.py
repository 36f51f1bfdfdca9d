"""Era verdicts on disk, so that the next process need not probe the same servers.

One small file in the cache folder, replaced atomically. A file that cannot be read or has another
version is ignored, and so are old verdicts. A verdict that turns out wrong is removed, and the
server is probed.
"""

import logging
import time

import msgspec
from msgspec import Struct

from .tool_cache import CacheStore

__all__ = ["CachedEraStore"]

VERSION = 1
LIFETIME = 7 * 24 * 3600.0  # seconds; the server may support the newer era by then
LIMIT = 1000  # servers; the oldest verdicts are dropped first
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
        eras = self._read()  # another process may have written to it
        eras.pop(server, None)
        if stateless is not None:
            eras[server] = _Verdict(stateless, time.time())
        newest = sorted(eras.items(), key=lambda one: one[1].saved)[-LIMIT:]
        try:
            self._store.write(KEY, msgspec.json.encode(_File(VERSION, dict(newest))))
        except Exception as exc:  # a store of the host program may raise anything
            log.debug("era verdicts could not be saved: %s", exc)

    def _read(self) -> dict[str, _Verdict]:
        try:
            raw = self._store.read(KEY)
            if raw is None or len(raw) > MAX_BYTES:
                return {}
            file = msgspec.json.decode(raw, type=_File)
        except Exception as exc:  # an unreadable file, or a store of the host program
            log.debug("era verdicts could not be read: %s", exc)
            return {}
        if file.version != VERSION:
            return {}
        now = time.time()
        return {
            server: verdict
            for server, verdict in file.eras.items()
            # A negative age means that the clock was set back.
            if 0 <= now - verdict.saved < LIFETIME
        }
