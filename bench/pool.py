"""Servers and clients of a run, kept warm from row to row and closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, Self, TypeVar, cast

__all__ = ["Pool"]


class _Closing(Protocol):
    def close(self) -> None: ...


_Kept = TypeVar("_Kept", bound=_Closing)


class Pool:
    """The running processes by key."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Closing] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for key in list(self._kept):
            self.drop(key)

    def get(self, key: Hashable, start: Callable[[], _Kept]) -> _Kept:
        """Return the existing process, or start one."""
        if key not in self._kept:
            self._kept[key] = start()
        return cast(_Kept, self._kept[key])

    def has(self, key: Hashable) -> bool:
        """Return True if a process with this key is running."""
        return key in self._kept

    def kept(self, key: Hashable) -> object:
        """Return the running process with this key.

        Raises:
            KeyError: No process with this key is running.
        """
        return self._kept[key]

    def drop(self, key: Hashable) -> None:
        """Close a process, if it is running; the next `get` starts a new one."""
        if kept := self._kept.pop(key, None):
            kept.close()
