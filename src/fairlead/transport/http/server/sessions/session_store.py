"""Stores of sessions that outlive their process.

A session of the handshake era is determined by its handshake. Replaying the stored handshake to the
server restores the session, so that clients do not notice a restart. Requests in progress are lost,
and so are subscriptions and the log level.
"""

import hashlib
from typing import Protocol

import msgspec
from msgspec import Struct

from .....errors import LocalResourceError
from .....limits import STORED_SESSIONS
from ....client_shares import ClientShares

__all__ = [
    "MAX_SESSIONS",
    "MemorySessionStore",
    "SessionStore",
    "SessionStoreBase",
    "StoredSession",
    "key_of",
]

MAX_SESSIONS = STORED_SESSIONS.value


class StoredSession(Struct, frozen=True, kw_only=True):
    """A stored session. Times are seconds since the epoch."""

    key: str  # see `key_of`
    principal: str | None  # the owner; None: anonymous
    opening: bytes  # the `initialize` request of the client
    revision: str  # the negotiated protocol revision
    created: float
    used: float
    client: str = ""  # the client to whose share the session counts when the store is full


class SessionStore(Protocol):
    """Store of sessions, such as `MemorySessionStore` and `SqliteSessionStore`."""

    async def save(self, session: StoredSession) -> None:
        """Store a session; a full store drops the oldest one of the client with most sessions."""

    async def load(self, key: str) -> StoredSession | None:
        """Return a stored session, or None."""

    async def touch(self, keys: list[str], used: float) -> None:
        """Set the time of last use."""

    async def delete(self, key: str) -> None:
        """Delete a session."""

    async def expire(self, before: float) -> int:
        """Delete the sessions not used since `before`; return their number."""
        ...


class SessionStoreBase:
    """Base class of stores, with defaults for optional members."""

    # the resource of this machine that prevents the store from writing; shown by gateways
    shortage: LocalResourceError | None = None


def key_of(path: str, session_id: str) -> str:
    """Return the key of a session: a hash, because a session id grants access to the session."""
    return hashlib.sha256(f"{path}\0{session_id}".encode()).hexdigest()


class MemorySessionStore(SessionStoreBase):
    """Store in memory, for several endpoints of one process and for tests."""

    def __init__(self, *, max_sessions: int = MAX_SESSIONS) -> None:
        self._max = max_sessions
        self._kept: dict[str, StoredSession] = {}
        self._shares: ClientShares[str] = ClientShares(max_sessions, max_sessions, STORED_SESSIONS)

    def __len__(self) -> int:
        return len(self._kept)

    async def save(self, session: StoredSession) -> None:
        await self.delete(session.key)
        self._kept[session.key] = session
        self._shares.add(session.client, session.key)
        while len(self._kept) > self._max and (oldest := self._shares.largest()) is not None:
            STORED_SESSIONS.hit()
            await self.delete(oldest)

    async def load(self, key: str) -> StoredSession | None:
        return self._kept.get(key)

    async def touch(self, keys: list[str], used: float) -> None:
        for key in keys:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept[key] = msgspec.structs.replace(kept, used=used)
                self._shares.touch(key)

    async def delete(self, key: str) -> None:
        self._kept.pop(key, None)
        self._shares.discard(key)

    async def expire(self, before: float) -> int:
        old = [key for key, kept in self._kept.items() if kept.used < before]
        for key in old:
            await self.delete(key)
        return len(old)
