"""A cache of server eras, so that each server is probed only once."""

import hashlib
from collections.abc import Hashable
from typing import Protocol

__all__ = ["EraCache", "EraStore", "known_eras"]


class EraStore(Protocol):
    """A persistent store for eras.

    Its methods never raise, because an era can always be probed again.
    """

    def load(self) -> dict[str, bool]: ...
    def save(self, server: str, stateless: bool | None) -> None:
        """Store a server's era; None deletes it."""


class EraCache:
    """Server eras, by the server's command, folder and environment.

    An era is stored only after a probe, and deleted when connecting with it fails.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._stateless: dict[Hashable, bool] = {}
        self._limit = limit
        self._store: EraStore | None = None
        # Contents of the store; None until they are loaded.
        self._kept: dict[str, bool] | None = None

    def keep(self, store: EraStore) -> None:
        """Set a store, so that later processes remember the eras."""
        self._store, self._kept = store, None

    def stateless(self, server: Hashable) -> bool | None:
        """Return True if a server is stateless, False if it has a handshake,
        None if its era is unknown.
        """
        found = self._stateless.get(server)
        if found is None and self._store is not None and server is not None:
            return self._looked_up(self._store).get(fingerprint(server))
        return found

    def remember(self, server: Hashable, stateless: bool) -> None:
        if len(self._stateless) >= self._limit:
            self._stateless.pop(next(iter(self._stateless)))
        self._stateless[server] = stateless
        if self._store is not None:
            kept, key = self._looked_up(self._store), fingerprint(server)
            # A known era is not saved again, because that would renew its expiry in the store, and
            # the server would never be probed again.
            if kept.get(key) != stateless:
                kept[key] = stateless
                self._store.save(key, stateless)

    def forget(self, server: Hashable) -> None:
        self._stateless.pop(server, None)
        if self._store is not None and server is not None:
            key = fingerprint(server)
            if self._looked_up(self._store).pop(key, None) is not None:
                self._store.save(key, None)

    def clear(self) -> None:
        """Forget all eras and detach the store; its contents stay unchanged."""
        self._stateless.clear()
        self._store = self._kept = None

    def _looked_up(self, store: EraStore) -> dict[str, bool]:
        if self._kept is None:
            self._kept = store.load()
        return self._kept


def fingerprint(server: Hashable) -> str:
    """Return a hash that identifies a server. The identity itself may contain secrets."""
    return hashlib.sha256(repr(server).encode("utf-8", "surrogatepass")).hexdigest()[:32]


known_eras = EraCache()  # shared by all clients in this process
