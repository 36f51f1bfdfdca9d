"""Facts about servers that were found out by trying, kept from one program to the next.

They count only for the same entry, as it is written in its file, and for thirty days.
"""

import logging
import time

import msgspec
from msgspec import Struct

from ...client.server_entry import MCPServerEntry
from .server_facts import ServerFacts
from .tool_cache import CacheStore, entry_hash

__all__ = ["ServerMemory"]

VERSION = 1
LIFETIME = 30 * 24 * 3600.0  # seconds
LIMIT = 1000  # servers; those that were saved longest ago go first
MAX_BYTES = 256 << 10
KEY = "servers"

log = logging.getLogger("fairlead.upstream")


class _Record(Struct):
    facts: ServerFacts
    saved: float  # seconds since the epoch


class _File(Struct):
    version: int
    servers: dict[str, _Record]


class ServerMemory:
    """Facts about all servers, on top of a `CacheStore`; without one nothing is kept."""

    def __init__(self, store: CacheStore | None = None) -> None:
        self._store = store

    def load(self, entry: MCPServerEntry) -> ServerFacts:
        """Return what is known about a server; what cannot be read counts as unknown."""
        record = self._read().get(entry_hash(entry))
        return ServerFacts() if record is None else record.facts

    def save(self, entry: MCPServerEntry, facts: ServerFacts) -> None:
        """Keep what is known about a server, as far as that works."""
        if self._store is None:
            return
        servers = self._read()  # another process may have written meanwhile
        servers[entry_hash(entry)] = _Record(facts, time.time())
        newest = sorted(servers.items(), key=lambda one: one[1].saved)[-LIMIT:]
        try:
            self._store.write(KEY, msgspec.json.encode(_File(VERSION, dict(newest))))
        except Exception as exc:  # a store of the host program may raise anything
            log.debug("facts about servers could not be kept: %s", exc)

    def _read(self) -> dict[str, _Record]:
        if self._store is None:
            return {}
        try:
            raw = self._store.read(KEY)
            if raw is None or len(raw) > MAX_BYTES:
                return {}
            file = msgspec.json.decode(raw, type=_File)
        except Exception as exc:  # unreadable, or a store of the host program
            log.debug("no facts about servers: %s", exc)
            return {}
        if file.version != VERSION:
            return {}
        now = time.time()
        return {key: one for key, one in file.servers.items() if 0 <= now - one.saved < LIFETIME}
