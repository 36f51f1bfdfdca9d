"""How long an answer may take."""

import asyncio

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...wire import Request
from ...wire.error_codes import INTERNAL_ERROR
from .block import blocked_error

__all__ = ["TimeLimit"]


class TimeLimit(InterceptorBase):
    """So many seconds for an answer; whoever works on it is told to stop."""

    def __init__(self, seconds: float) -> None:
        if seconds <= 0:
            raise ValueError("`seconds` is above 0")
        self._seconds = seconds

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if not isinstance(exchange.message, Request):
            return await proceed(exchange)
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                return await proceed(exchange)
        except TimeoutError:
            if not limit.expired():
                raise  # somebody else's
        raise blocked_error(exchange, f"No answer within {self._seconds:g} s", INTERNAL_ERROR)
