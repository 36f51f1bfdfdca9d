"""Requests of the peer that are under way: how many, which, and until when."""

import asyncio
from typing import Any, Protocol

from ..wire import RequestId

__all__ = ["DelegatedRequest", "InFlight"]


MAX_LASTING = 64


class DelegatedRequest(Protocol):
    """A request that somebody answers without a task of ours."""

    def cancel(self, reason: str) -> None:
        """Nobody waits for the answer any more."""


class InFlight:
    """What is being done for the peer.

    The tables stay the same objects for as long as the connection lives: others keep them at hand.
    """

    def __init__(self, most: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.most = most  # at once
        self.running: dict[RequestId, asyncio.Task[None]] = {}
        self.leaving: set[asyncio.Task[None]] = set()  # cancelled by the peer, cleaning up
        self.taken: dict[RequestId, DelegatedRequest] = {}
        self.lasting: set[asyncio.Task[None]] = set()  # some of them, which only listen
        self.awaited: asyncio.Future[None] | None = None  # somebody waits until none is taken

    @property
    def is_full(self) -> bool:
        """Who only listens takes nobody's place, as long as it is not done in masses."""
        busy = len(self.running) + len(self.leaving) + len(self.taken)
        return busy >= self.most and busy - min(len(self.lasting), MAX_LASTING) >= self.most

    def mark_long_lived(self, task: asyncio.Task[None]) -> None:
        """This one is answered when it ends."""
        self.lasting.add(task)
        task.add_done_callback(self.lasting.discard)

    def everything(self) -> set[object]:
        return {*self.running.values(), *self.taken.values(), *self.leaving}

    def has_task(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a request is handled by this task, or was until the peer cancelled it."""
        return task in self.leaving or task in self.running.values()

    def cancel_tasks(self, current: asyncio.Task[Any] | None) -> None:
        """Cancel all but the current one, each once: a second time would end its clean-up."""
        for task in (*self.running.values(), *self.leaving):
            if task is not current and not task.cancelling():
                task.cancel()

    async def finish(self, seconds: float) -> None:
        """Give it some time to get done."""
        deadline = self._loop.time() + seconds
        while (left := deadline - self._loop.time()) > 0:
            # One that was cancelled before its first step is done, but never left the table.
            working = {t for t in (*self.running.values(), *self.leaving) if not t.done()}
            if not working and not self.taken:
                return
            if self.taken:
                self.awaited = self._loop.create_future()
                await asyncio.wait({*working, self.awaited}, timeout=left)
            else:
                await asyncio.wait(working, timeout=left)

    def notify_idle_waiter(self) -> None:
        """Something is not taken over any more: tell whoever waits for the last of it."""
        awaited = self.awaited
        if awaited is not None and not self.taken and not awaited.done():
            awaited.set_result(None)
