"""How large messages may be."""

from typing import ClassVar

from msgspec import UnsetType

from ...interceptor import Answer, Exchange, Proceed
from ...wire.codes import INTERNAL_ERROR
from .blocking import blocked

__all__ = ["SizeLimit"]


class SizeLimit:
    """At most so many bytes of params, and of a result; 0 is no limit."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(self, params: int = 0, result: int = 0) -> None:
        self._params = params
        self._result = result

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        params = exchange.message.params
        if self._params and not isinstance(params, UnsetType):
            size = len(memoryview(params))
            if size > self._params:
                raise blocked(exchange, f"{size} bytes are more than {self._params} of params")
        answer = await proceed(exchange)
        if self._result and answer is not None and len(memoryview(answer)) > self._result:
            size = len(memoryview(answer))
            reason = f"{size} bytes are more than {self._result} of a result"
            raise blocked(exchange, reason, INTERNAL_ERROR)
        return answer
