"""Requests of the peer in progress, with their limit and their completion."""

import asyncio
from typing import Any, Protocol

from ..wire import RequestId

__all__ = ["DelegatedRequest", "InFlight"]


# maximum number of long-lived requests that do not count against the limit
MAX_LASTING = 64


class DelegatedRequest(Protocol):
    """A request that is answered without a task of this peer."""

    def cancel(self, reason: str) -> None:
        """Cancel the request, because its response is no longer needed."""


class InFlight:
    """The requests of the peer in progress.

    The tables are the same objects for the lifetime of the connection, because other objects hold
    references to them.
    """

    def __init__(self, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.most = most  # maximum number of concurrent requests
        self.running: dict[RequestId, asyncio.Task[None]] = {}
        # tasks that the peer has cancelled and that still clean up
        self.leaving: set[asyncio.Task[None]] = set()
        self.taken: dict[RequestId, DelegatedRequest] = {}
        # running tasks of requests that only listen for changes
        self.lasting: set[asyncio.Task[None]] = set()
        # resolved when the last delegated request has ended; None if no task waits for that
        self.awaited: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Return True if no further request may start. Some long-lived requests are not counted."""
        busy = len(self.running) + len(self.leaving) + len(self.taken)
        return busy >= self.most and busy - min(len(self.lasting), MAX_LASTING) >= self.most

    def mark_long_lived(self, task: asyncio.Task[None]) -> None:
        """Mark the task of a long-lived request, such as `subscriptions/listen`."""
        self.lasting.add(task)
        task.add_done_callback(self.lasting.discard)

    def everything(self) -> set[object]:
        return {*self.running.values(), *self.taken.values(), *self.leaving}

    def has_task(self, task: asyncio.Task[Any] | None) -> bool:
        """Return True if this task handles a request of the peer, even one that was cancelled."""
        return task in self.leaving or task in self.running.values()

    def cancel_tasks(self, current: asyncio.Task[Any] | None) -> None:
        """Cancel all tasks except the current one, each only once.

        A second cancellation would interrupt the clean-up of a task.
        """
        for task in (*self.running.values(), *self.leaving):
            if task is not current and not task.cancelling():
                task.cancel()

    async def finish(self, seconds: float) -> None:
        """Wait up to `seconds` until all requests are complete."""
        deadline = self._loop.time() + seconds
        while (left := deadline - self._loop.time()) > 0:
            # A task that was cancelled before its first step is done, but still in the table.
            working = {t for t in (*self.running.values(), *self.leaving) if not t.done()}
            if not working and not self.taken:
                return
            if self.taken:
                self.awaited = self._loop.create_future()
                await asyncio.wait({*working, self.awaited}, timeout=left)
            else:
                await asyncio.wait(working, timeout=left)

    def notify_idle_waiter(self) -> None:
        """Wake the task in `finish` after the last delegated request has ended."""
        awaited = self.awaited
        if awaited is not None and not self.taken and not awaited.done():
            awaited.set_result(None)
