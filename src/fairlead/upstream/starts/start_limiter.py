"""How many child processes may be starting at the same time, and which of them goes first."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum

from .local_shortage import LocalShortage

__all__ = ["StartLimiter", "StartPriority"]

PATIENCE = 1.5  # seconds after which a start that says nothing no longer holds others up


class StartPriority(IntEnum):
    """Why a process is started; lower goes first."""

    CALL = 0  # a client or an agent waits for it
    RECONNECT = 1
    START_UP = 2


class StartLimiter:
    """Two starts per core: more would only slow each other down.

    A slot is free again when its server has answered for the first time, or after 1.5 seconds.
    """

    def __init__(self, count: int | None = None) -> None:
        self._free = count or 2 * (os.cpu_count() or 1)
        self._waiting: dict[asyncio.Future[None], Callable[[], StartPriority]] = {}  # in order
        self.shortage = LocalShortage()  # while it lasts, nothing is started

    @asynccontextmanager
    async def starting(
        self, priority: Callable[[], StartPriority] = lambda: StartPriority.CALL
    ) -> AsyncIterator[None]:
        """Hold a slot during a start; the block ends with the first answer.

        `priority` is read whenever a slot gets free: a call may come for a server that waits.
        """
        await self.shortage.wait()
        await self._acquire(priority)
        held = True

        def release() -> None:
            nonlocal held
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
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = priority
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None and not turn.cancelled():
                self._release()  # it was granted in the same moment
            raise

    def _release(self) -> None:
        self._free += 1
        while self._free and self._waiting:
            turn = min(self._waiting, key=lambda one: self._waiting[one]())
            del self._waiting[turn]
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
