"""Facts about servers that were found by experience, kept from one program run to the next.

They apply only to the same entry, as written in its file, and for thirty days.
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
LIMIT = 1000  # servers; the oldest records are dropped first
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
    """Facts about all servers in a `CacheStore`. Without a store nothing is kept."""

    def __init__(self, store: CacheStore | None = None) -> None:
        self._store = store

    def load(self, entry: MCPServerEntry) -> ServerFacts:
        """Return the facts about a server; unreadable ones count as unknown."""
        record = self._read().get(entry_hash(entry))
        return ServerFacts() if record is None else record.facts

    def save(self, entry: MCPServerEntry, facts: ServerFacts) -> None:
        """Save the facts about a server. A failure is only logged."""
        if self._store is None:
            return
        servers = self._read()  # another process may have written to it
        servers[entry_hash(entry)] = _Record(facts, time.time())
        newest = sorted(servers.items(), key=lambda one: one[1].saved)[-LIMIT:]
        try:
            self._store.write(KEY, msgspec.json.encode(_File(VERSION, dict(newest))))
        except Exception as exc:  # a store of the host program may raise anything
            log.debug("facts about servers could not be saved: %s", exc)

    def _read(self) -> dict[str, _Record]:
        if self._store is None:
            return {}
        try:
            raw = self._store.read(KEY)
            if raw is None or len(raw) > MAX_BYTES:
                return {}
            file = msgspec.json.decode(raw, type=_File)
        except Exception as exc:  # an unreadable file, or a store of the host program
            log.debug("facts about servers could not be read: %s", exc)
            return {}
        if file.version != VERSION:
            return {}
        now = time.time()
        # A negative age means that the clock was set back.
        return {key: one for key, one in file.servers.items() if 0 <= now - one.saved < LIFETIME}
