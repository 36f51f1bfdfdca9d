"""Where sessions outlive their process: what has to be known to take one up again.

A session of the handshake era is what client and server told each other at its beginning. Who keeps
that can begin it again behind the client's back, so that a restart goes unnoticed. What was under
way is lost all the same, and so are subscriptions and the level of the log.
"""

import hashlib
from typing import Protocol

import msgspec
from msgspec import Struct

from .....limits import STORED_SESSIONS
from ....client_shares import ClientShares

__all__ = ["MAX_SESSIONS", "MemorySessionStore", "SessionStore", "StoredSession", "key_of"]

MAX_SESSIONS = STORED_SESSIONS.value


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session at rest. Times are seconds since the epoch."""

    key: str  # see `key_of`
    principal: str | None  # for whom it is; None: anonymous
    opening: bytes  # `initialize`, as the client sent it
    revision: str  # that was agreed on
    created: float
    used: float
    client: str = ""  # whose share of a store's room it takes


class SessionStore(Protocol):
    """Keeps sessions; `MemorySessionStore` and `SqliteSessionStore` are two of them."""

    async def save(self, session: StoredSession) -> None:
        """Keep it; if there is no room, a client that has most of them loses its oldest."""

    async def load(self, key: str) -> StoredSession | None:
        """One of those that were kept."""

    async def touch(self, keys: list[str], used: float) -> None:
        """They were in use at that time."""

    async def delete(self, key: str) -> None:
        """It is over."""

    async def expire(self, before: float) -> int:
        """Forget those that were not used since; how many that were."""
        ...


def key_of(path: str, session_id: str) -> str:
    """Under which name a session is kept. Its id is a secret, and means nothing elsewhere."""
    return hashlib.sha256(f"{path}\0{session_id}".encode()).hexdigest()


class MemorySessionStore:
    """Keeps them as long as this object: for several endpoints of one process, and for tests."""

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
