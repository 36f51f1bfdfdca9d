"""Limit on the number of child processes that start at the same time, with priorities."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum

from .local_shortage import LocalShortage

__all__ = ["StartLimiter", "StartPriority"]

PATIENCE = 1.5  # seconds after which a start without a response releases its slot


class StartPriority(IntEnum):
    """Priority of the start of a process; lower values start first."""

    CALL = 0  # a client or an agent waits for the server
    RECONNECT = 1
    START_UP = 2


class StartLimiter:
    """Limit of two concurrent starts per core, because more starts would slow each other down.

    A slot is released at the first response of its server, or after 1.5 seconds.
    """

    def __init__(self, count: int | None = None) -> None:
        self._free = count or 2 * (os.cpu_count() or 1)
        self._waiting: dict[asyncio.Future[None], Callable[[], StartPriority]] = {}  # in order
        self.shortage = LocalShortage()  # delays all starts while it lasts

    @asynccontextmanager
    async def starting(
        self, priority: Callable[[], StartPriority] = lambda: StartPriority.CALL
    ) -> AsyncIterator[None]:
        """Hold a slot during a start; the block ends with the first response.

        `priority` is called whenever a slot is released, because a call may arrive for a server
        that waits.
        """
        await self.shortage.wait()
        await self._acquire(priority)
        held = True

        def release() -> None:
            nonlocal held
            # Both the timer and the end of the block call this function.
            if held:
                held = False
                self._release()

        timer = asyncio.get_running_loop().call_later(PATIENCE, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    async def _acquire(self, priority: Callable[[], StartPriority]) -> None:
        # A new start must not overtake those that wait.
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = priority
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None and not turn.cancelled():
                # The slot was granted in the same iteration of the loop as the cancellation.
                self._release()
            raise

    def _release(self) -> None:
        self._free += 1
        while self._free and self._waiting:
            # `min` returns the first of equal values, so starts with the same priority keep their
            # order.
            turn = min(self._waiting, key=lambda one: self._waiting[one]())
            del self._waiting[turn]
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
