"""How many child processes may be starting at the same time."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .local_shortage import LocalShortage

__all__ = ["StartLimiter"]

PATIENCE = 2.0  # seconds after which a start that says nothing no longer holds others up


class StartLimiter:
    """Two starts per core: more would only make each other slow.

    A slot is free again when its server has answered for the first time, or after two seconds.
    """

    def __init__(self, count: int | None = None) -> None:
        self._free = asyncio.Semaphore(count or 2 * (os.cpu_count() or 1))
        self.shortage = LocalShortage()  # while it lasts, nothing is started

    @asynccontextmanager
    async def starting(self) -> AsyncIterator[None]:
        """Around a start; the block ends with the first answer."""
        await self.shortage.wait()
        await self._free.acquire()
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(PATIENCE, release)
        try:
            yield
        finally:
            timer.cancel()
            release()
