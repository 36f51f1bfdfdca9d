"""Queues with limits in items and bytes, and a queue whose items are processed by a task."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BoundedQueue", "WorkQueue"]

T = TypeVar("T")


class BoundedQueue(Generic[T]):
    """A queue with limits in items and bytes.

    An item without a size is a marker. Markers are neither counted nor dropped.
    """

    def __init__(self, size: Callable[[T], int | None], max_items: int, max_bytes: int) -> None:
        # Never reassigned. Change it only through the methods of this class.
        # A list, because most queues stay empty, and an empty deque needs ten times as much memory.
        self.items: list[T] = []
        self.count = 0  # number of items, without markers
        self.bytes = 0
        self.dropped = 0
        self.max_items = max_items
        self._max_bytes = max_bytes
        self._size = size

    def fits(self, item: T) -> bool:
        """Return True if the limits allow this item as well."""
        size = self.bytes + (self._size(item) or 0)
        return self.count < self.max_items and size <= self._max_bytes

    def enqueue(self, item: T) -> None:
        """Append an item, and drop the oldest items while a limit is exceeded.

        The new item stays.
        """
        self.items.append(item)
        size = self._size(item)
        if size is None:
            return
        self.count += 1
        self.bytes += size
        # One item is always kept, even if it is larger than the limit.
        while self.count > 1 and (self.count > self.max_items or self.bytes > self._max_bytes):
            self.remove(next(one for one in self.items if self._size(one) is not None))
            self.dropped += 1
            self.on_drop()

    def on_drop(self) -> None:
        """Count or log a dropped item. Called for each dropped item; the default does nothing."""

    def pop(self) -> T:
        """Remove and return the oldest item."""
        item = self.items.pop(0)
        self._removed(item)
        return item

    def remove(self, item: T) -> None:
        """Remove an item at any position."""
        self.items.remove(item)
        self._removed(item)

    def clear(self) -> None:
        """Remove all items."""
        self.items.clear()
        self.count = self.bytes = 0

    def _removed(self, item: T) -> None:
        size = self._size(item)
        if size is not None:
            self.count -= 1
            self.bytes -= size


class WorkQueue(BoundedQueue[T]):
    """A bounded queue whose items are processed by its own task, one at a time."""

    def __init__(self, size: Callable[[T], int | None], max_items: int, max_bytes: int) -> None:
        super().__init__(size, max_items, max_bytes)
        self.busy = False  # True while the task exists
        self.paused = False
        self._task: asyncio.Task[None] | None = None

    async def handle(self, item: T) -> None:
        """Process an item. An exception ends the task; the remaining items stay queued."""
        raise NotImplementedError

    def enqueue(self, item: T) -> None:
        super().enqueue(item)
        self.start()

    def start(self) -> None:
        """Start the task, unless it runs or the queue is paused."""
        if self._task is None and not self.paused:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self.busy = True

    async def _run(self) -> None:
        try:
            while self.items and not self.paused:
                await self.handle(self.pop())
        finally:
            # After `close` and `start`, `_task` may be another task.
            if self._task is asyncio.current_task():
                self._task = None
                self.busy = False

    async def flushed(self) -> None:
        """Wait until the task has ended."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    def close(self) -> None:
        """Drop all items and cancel the task, unless it is the caller."""
        self.clear()
        # Reset here, because a task cancelled before its first step never runs its `finally`.
        task, self._task = self._task, None
        self.busy = False
        if task is not None and task is not asyncio.current_task():
            task.cancel()
