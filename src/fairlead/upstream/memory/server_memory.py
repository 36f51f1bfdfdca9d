"""Facts about servers that were found by experience, kept from one program run to the next.

They apply only to the same entry, as written in its file, and for thirty days.
"""

import time

from msgspec import Struct

from ...client.server_entry import MCPServerEntry
from .dated_records import DatedRecords
from .tool_cache import CacheStore, entry_hash

__all__ = ["ServerFacts", "ServerMemory"]

LIFETIME = 30 * 24 * 3600.0  # seconds


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
        """Return the facts about a server; unreadable ones count as unknown."""
        record = self._records.read().get(entry_hash(entry))
        return ServerFacts() if record is None else record.facts

    def save(self, entry: MCPServerEntry, facts: ServerFacts) -> None:
        """Save the facts about a server. A failure is only logged."""
        self._records.save(entry_hash(entry), _Record(facts, time.time()))
