"""Waiting for the first outcome of servers that are connecting."""

import asyncio
from collections.abc import Collection

from ..upstream.upstream import Upstream

__all__ = ["STARTUP_TIMEOUT_MS", "StartupGate"]

STARTUP_TIMEOUT_MS = 250


class StartupGate:
    """Waits until servers are connected, failed or idle."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()

    def notify(self) -> None:
        """Check the servers again."""
        self._happened.set()

    async def wait_briefly(self, upstreams: Collection[Upstream], began: float) -> None:
        """Wait at most `STARTUP_TIMEOUT_MS` after `began`, a time of the loop."""
        left = STARTUP_TIMEOUT_MS / 1000 - (asyncio.get_running_loop().time() - began)
        try:
            async with asyncio.timeout(max(left, 0.0)):
                await self.wait(upstreams)
        except TimeoutError:
            pass

    async def wait(self, upstreams: Collection[Upstream]) -> None:
        """Wait until all servers have an outcome."""
        while not all(upstream.settled.is_set() for upstream in upstreams):
            self._happened.clear()
            await self._happened.wait()
