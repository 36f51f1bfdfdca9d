"""Background tasks owned by an object, which its callers do not wait for."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["BackgroundTasks"]

T = TypeVar("T")


class BackgroundTasks(set[asyncio.Task[Any]]):
    """Set of tasks that run until they are done or their owner is closed."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in a task, and keep a reference until the task is done."""
        task = asyncio.get_running_loop().create_task(work)
        # The event loop keeps only weak references to tasks.
        self.add(task)
        task.add_done_callback(self.discard)
        return task

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        # A copy, because done callbacks remove tasks from the set.
        tasks = list(self)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
