"""One piece of work that several wait for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["SharedTask"]

T = TypeVar("T")


class SharedTask(Generic[T]):
    """Starts at once, and ends with the last who waits for it, not with the first."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._waiting = 0

    @property
    def over(self) -> bool:
        """Nobody waits for it any more."""
        return self._waiting == 0

    async def join(self) -> T:
        """Its outcome, the same for everybody."""
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self._task.done():
                self._task.cancel()
