"""Action that limits the time to wait for a response."""

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...transport import timeouts
from ...wire import Request
from ...wire.error_codes import INTERNAL_ERROR
from .block import blocked_error

__all__ = ["TimeLimit"]


class TimeLimit(InterceptorBase):
    """Action that cancels a request at the server if it has no response after `seconds`."""

    def __init__(self, seconds: float) -> None:
        if seconds <= 0:
            raise ValueError(f"`seconds` must be greater than 0, not {seconds:g}")
        self._seconds = seconds

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if not isinstance(exchange.message, Request):
            return await proceed(exchange)
        limit = timeouts.timeout(self._seconds)
        try:
            async with limit:
                return await proceed(exchange)
        except TimeoutError:
            if not limit.expired():
                raise  # a timeout inside `proceed` expired, not this one
        raise blocked_error(exchange, f"No response within {self._seconds:g} s", INTERNAL_ERROR)
