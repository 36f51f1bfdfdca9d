"""Tasks of a gateway that no request waits for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["BackgroundTasks"]

T = TypeVar("T")


class BackgroundTasks:
    """Runs tasks until they are done, or until the gateway is closed."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in a task that is kept until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
