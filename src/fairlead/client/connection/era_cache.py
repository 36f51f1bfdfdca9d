"""Which era each server was found to speak, so that it is asked only once."""

import hashlib
from collections.abc import Hashable
from typing import Protocol

__all__ = ["EraCache", "EraStore", "known_eras"]


class EraStore(Protocol):
    """Keeps verdicts beyond this process. Neither method raises: everything can be found out."""

    def load(self) -> dict[str, bool]: ...
    def save(self, server: str, stateless: bool | None) -> None:
        """None: what was known is wrong."""


class EraCache:
    """Verdicts by what identifies a server: its command, folder and environment.

    A verdict is kept only when it came from a probe, and dropped when it fails.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._stateless: dict[Hashable, bool] = {}
        self._limit = limit
        self._store: EraStore | None = None
        self._kept: dict[str, bool] | None = None  # what the store has; None: not looked yet

    def keep(self, store: EraStore) -> None:
        """From now on verdicts are remembered from one process to the next."""
        self._store, self._kept = store, None

    def stateless(self, server: Hashable) -> bool | None:
        """What is remembered of a server; None if nothing is."""
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
            # One that is known is not written again: it shall grow old, and be looked at anew.
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
        """Forget everything, and the store, which keeps what it has."""
        self._stateless.clear()
        self._store = self._kept = None

    def _looked_up(self, store: EraStore) -> dict[str, bool]:
        if self._kept is None:
            self._kept = store.load()
        return self._kept


def fingerprint(server: Hashable) -> str:
    """Tells servers apart without saying what they are: there may be secrets in it."""
    return hashlib.sha256(repr(server).encode("utf-8", "surrogatepass")).hexdigest()[:32]


known_eras = EraCache()  # of this process
