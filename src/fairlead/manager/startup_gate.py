"""Waiting until connecting servers are connected or have failed."""

import asyncio
from collections.abc import Iterable

from ..transport import timeouts
from ..upstream.upstream import Upstream

__all__ = ["STARTUP_TIMEOUT_MS", "wait_briefly", "wait_until_settled"]

STARTUP_TIMEOUT_MS = 250  # milliseconds that the start waits for servers


async def wait_briefly(upstreams: Iterable[Upstream], began: float) -> None:
    """Wait for servers until `STARTUP_TIMEOUT_MS` after the event-loop time `began`."""
    left = STARTUP_TIMEOUT_MS / 1000 - (asyncio.get_running_loop().time() - began)
    try:
        async with timeouts.timeout(max(left, 0.0)):
            await wait_until_settled(upstreams)
    except TimeoutError:
        pass


async def wait_until_settled(upstreams: Iterable[Upstream]) -> None:
    """Wait until all servers are connected, have failed, or are idle."""
    for upstream in upstreams:
        await upstream.settled.wait()
