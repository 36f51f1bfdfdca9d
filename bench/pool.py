"""The servers and clients of a run: opened once, kept warm from row to row, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol, Self, TypeVar, cast

__all__ = ["Pool"]


class _Closing(Protocol):
    def close(self) -> None: ...


_Kept = TypeVar("_Kept", bound=_Closing)


class Pool:
    """What was started, by how it was started."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Closing] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for key in list(self._kept):
            self.drop(key)

    def get(self, key: Hashable, start: Callable[[], _Kept]) -> _Kept:
        """The one already there, or a new one."""
        if key not in self._kept:
            self._kept[key] = start()
        return cast(_Kept, self._kept[key])

    def has(self, key: Hashable) -> bool:
        """Whether one was started with this key, and is not closed."""
        return key in self._kept

    def kept(self, key: Hashable) -> object:
        """The one that was started with this key.

        Raises:
            KeyError: None was, or it is closed.
        """
        return self._kept[key]

    def drop(self, key: Hashable) -> None:
        """Close one, if it was started; the next to ask for it gets a fresh start."""
        if kept := self._kept.pop(key, None):
            kept.close()
