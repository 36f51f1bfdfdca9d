"""Where sessions outlive their process: what has to be known to take one up again.

A session of the handshake era is what client and server told each other at its beginning. Who keeps
that can begin it again behind the client's back, so that a restart goes unnoticed. What was under
way is lost all the same, and so are subscriptions and the level of the log.
"""

import hashlib
from collections import OrderedDict
from typing import Protocol

import msgspec
from msgspec import Struct

__all__ = ["MAX_SESSIONS", "MemorySessionStore", "SessionStore", "StoredSession", "key_of"]

MAX_SESSIONS = 10_000


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session at rest. Times are seconds since the epoch."""

    key: str  # see `key_of`
    principal: str | None  # for whom it is; None: anonymous
    opening: bytes  # `initialize`, as the client sent it
    revision: str  # that was agreed on
    created: float
    used: float


class SessionStore(Protocol):
    """Keeps sessions; `MemorySessionStore` and `SqliteSessionStore` are two of them."""

    async def save(self, session: StoredSession) -> None:
        """Keep it; if there is no room, those go that were not used for longest."""

    async def load(self, key: str) -> StoredSession | None:
        """One of those that were kept."""

    async def touch(self, keys: list[str], used: float) -> None:
        """They were in use at that time."""

    async def delete(self, key: str) -> None:
        """It is over."""

    async def expire(self, before: float) -> int:
        """Forget those that were not used since; how many that were."""


def key_of(path: str, session_id: str) -> str:
    """Under which name a session is kept. Its id is a secret, and means nothing elsewhere."""
    return hashlib.sha256(f"{path}\0{session_id}".encode()).hexdigest()


class MemorySessionStore:
    """Keeps them as long as this object: for several endpoints of one process, and for tests."""

    def __init__(self, *, max_sessions: int = MAX_SESSIONS) -> None:
        self._max = max_sessions
        self._kept: OrderedDict[str, StoredSession] = OrderedDict()  # longest unused first

    def __len__(self) -> int:
        return len(self._kept)

    async def save(self, session: StoredSession) -> None:
        self._kept[session.key] = session
        self._kept.move_to_end(session.key)
        while len(self._kept) > self._max:
            self._kept.popitem(last=False)

    async def load(self, key: str) -> StoredSession | None:
        return self._kept.get(key)

    async def touch(self, keys: list[str], used: float) -> None:
        for key in keys:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept[key] = msgspec.structs.replace(kept, used=used)
                self._kept.move_to_end(key)

    async def delete(self, key: str) -> None:
        self._kept.pop(key, None)

    async def expire(self, before: float) -> int:
        old = [key for key, kept in self._kept.items() if kept.used < before]
        for key in old:
            del self._kept[key]
        return len(old)
