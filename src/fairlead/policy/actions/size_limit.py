"""Action that limits the size of messages."""

from functools import partial
from typing import ClassVar

from msgspec import Raw, UnsetType

from ...interceptor import After, Exchange, Outcome, SyncInterceptor
from ...wire.error_codes import INTERNAL_ERROR
from .block import blocked_error

__all__ = ["SizeLimit"]


class SizeLimit(SyncInterceptor):
    """Action that limits the size of params and results in bytes; 0 means unlimited."""

    pure: ClassVar = True

    def __init__(self, params: int = 0, result: int = 0) -> None:
        if params < 0 or result < 0:
            raise ValueError(f"`params` and `result` must be at least 0, not {params} and {result}")
        self._params = params
        self._result = result

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        params = exchange.message.params
        if self._params and not isinstance(params, UnsetType):
            size = len(memoryview(params))
            if size > self._params:
                raise blocked_error(
                    exchange, f"params of {size} bytes exceed the limit of {self._params} bytes"
                )
        return exchange, partial(self._after, exchange) if self._result else None

    def _after(self, exchange: Exchange, outcome: Outcome) -> Outcome:
        if isinstance(outcome, bytes | Raw) and len(memoryview(outcome)) > self._result:
            size = len(memoryview(outcome))
            reason = f"a result of {size} bytes exceeds the limit of {self._result} bytes"
            return blocked_error(exchange, reason, INTERNAL_ERROR)
        return outcome
