"""A task whose result several callers wait for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["SharedTask"]

T = TypeVar("T")


class SharedTask(Generic[T]):
    """A task that starts immediately and is cancelled when its last waiting caller is cancelled."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._waiting = 0

    @property
    def over(self) -> bool:
        """Return True if no caller waits."""
        return self._waiting == 0

    async def join(self) -> T:
        """Wait for the result, which is the same for all callers."""
        self._waiting += 1
        try:
            # Shielded, because cancelling one caller must not affect the others.
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self._task.done():
                self._task.cancel()
