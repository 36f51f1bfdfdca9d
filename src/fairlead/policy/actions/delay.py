"""Action that delays messages."""

import asyncio
import random

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed

__all__ = ["Delay"]


class Delay(InterceptorBase):
    """Action that delays messages by `seconds`, plus or minus up to `jitter` seconds at random."""

    def __init__(self, seconds: float, jitter: float = 0.0) -> None:
        if seconds < 0 or jitter < 0:
            raise ValueError(
                f"`seconds` and `jitter` must be at least 0, not {seconds:g} and {jitter:g}"
            )
        self._seconds = seconds
        self._jitter = jitter

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        seconds = max(0.0, self._seconds + random.uniform(-self._jitter, self._jitter))
        exchange.note(f"delayed {seconds:.3g} s")
        await asyncio.sleep(seconds)
        return await proceed(exchange)
