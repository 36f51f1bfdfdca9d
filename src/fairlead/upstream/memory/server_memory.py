"""Facts that were observed about servers, kept from one program run to the next.

A fact is used for thirty days, as long as the server's configuration entry is unchanged. The era of
a server is kept for a week, so that the next process need not probe the server. An era that turns
out to be wrong is removed, and the server is probed again.
"""

import logging
import time
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ...client.server_entry import MCPServerEntry
from .tool_cache import CacheStore, entry_hash

__all__ = ["CachedEraStore", "DatedRecords", "ServerFacts", "ServerMemory"]

VERSION = 1  # version of the file format
LIMIT = 1000  # maximum number of servers; the oldest records are dropped first
MAX_BYTES = 256 << 10  # bytes of the file at most; a larger file is ignored

log = logging.getLogger("fairlead.upstream")


class _Dated(Protocol):
    saved: float  # seconds since the epoch


R = TypeVar("R", bound=_Dated)


class DatedRecords(Generic[R]):
    """Records by server, in a cache. Failures are logged, and without a store nothing is kept."""

    def __init__(self, store: CacheStore | None, key: str, kind: type[R], lifetime: float) -> None:
        """`key` names the file, and the member of the file that contains the records."""
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
        records = self.read()  # read again, because another process may have changed the file
        records.pop(server, None)
        if record is not None:
            records[server] = record
        newest = sorted(records.items(), key=lambda one: one[1].saved)[-LIMIT:]
        try:
            file = {"version": VERSION, self._key: dict(newest)}
            self._store.write(self._key, msgspec.json.encode(file))
        except Exception as exc:  # a store of the host program may raise anything
            log.debug("%s could not be saved in the cache: %s", self._key, exc)


# seconds for which an era is remembered, since a server may support the other after an update
ERA_LIFETIME = 7 * 24 * 3600.0


class _Verdict(Struct, array_like=True):
    stateless: bool
    saved: float  # seconds since the epoch


class CachedEraStore:
    """An `EraStore` on top of any `CacheStore`."""

    def __init__(self, store: CacheStore) -> None:
        self._records = DatedRecords(store, "eras", _Verdict, ERA_LIFETIME)

    def load(self) -> dict[str, bool]:
        return {server: verdict.stateless for server, verdict in self._records.read().items()}

    def save(self, server: str, stateless: bool | None) -> None:
        verdict = None if stateless is None else _Verdict(stateless, time.time())
        self._records.save(server, verdict)


LIFETIME = 30 * 24 * 3600.0  # seconds for which a record is used


class ServerFacts(Struct, frozen=True):
    """Facts about a server beyond its era."""

    is_single: bool = False  # a second process exits during its start, so only one can run
    asks_roots: bool = False  # the server requests the roots of clients
    asks_roots_early: bool = False  # the server requests roots before the first call of a client
    no_handshake: bool = False  # the server refuses `initialize`


class _Record(Struct):
    facts: ServerFacts
    saved: float  # seconds since the epoch


class ServerMemory:
    """Facts about all servers in a `CacheStore`. Without a store nothing is kept."""

    def __init__(self, store: CacheStore | None = None) -> None:
        self._records = DatedRecords(store, "servers", _Record, LIFETIME)

    def load(self, entry: MCPServerEntry) -> ServerFacts:
        """Return the facts about a server. Facts that cannot be read are unknown."""
        record = self._records.read().get(entry_hash(entry))
        return ServerFacts() if record is None else record.facts

    def save(self, entry: MCPServerEntry, facts: ServerFacts) -> None:
        """Save the facts about a server. A failure is only logged."""
        self._records.save(entry_hash(entry), _Record(facts, time.time()))
