"""Era verdicts on disk, so that the next process need not probe the same servers.

A verdict that turns out wrong is removed, and the server is probed.
"""

import time

from msgspec import Struct

from .dated_records import DatedRecords
from .tool_cache import CacheStore

__all__ = ["CachedEraStore"]

# seconds; limited, because a server may support the stateless era after an update
LIFETIME = 7 * 24 * 3600.0


class _Verdict(Struct, array_like=True):
    stateless: bool
    saved: float  # seconds since the epoch


class CachedEraStore:
    """An `EraStore` on top of any `CacheStore`."""

    def __init__(self, store: CacheStore) -> None:
        self._records = DatedRecords(store, "eras", _Verdict, LIFETIME)

    def load(self) -> dict[str, bool]:
        return {server: verdict.stateless for server, verdict in self._records.read().items()}

    def save(self, server: str, stateless: bool | None) -> None:
        verdict = None if stateless is None else _Verdict(stateless, time.time())
        self._records.save(server, verdict)
