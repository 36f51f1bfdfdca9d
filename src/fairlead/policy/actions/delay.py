"""Waiting on purpose."""

import asyncio
import random

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed

__all__ = ["Delay"]


class Delay(InterceptorBase):
    """Everything takes longer: `seconds`, more or less by up to `jitter`."""

    def __init__(self, seconds: float, jitter: float = 0.0) -> None:
        if seconds < 0 or jitter < 0:
            raise ValueError("`seconds` and `jitter` are not below 0")
        self._seconds = seconds
        self._jitter = jitter

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        seconds = max(0.0, self._seconds + random.uniform(-self._jitter, self._jitter))
        exchange.note(f"delayed {seconds:.3g} s")
        await asyncio.sleep(seconds)
        return await proceed(exchange)
