"""How many calls, how they end, and how long they take."""

from time import perf_counter
from typing import ClassVar

from ...errors import RpcError
from ...interceptor import Answer, Exchange, Proceed
from ...observe.metrics import OTHER, Metrics
from ...protocol.methods import exists
from ...wire import Request
from ..journal.overheard import is_tool_error

__all__ = ["Measuring"]

_NAMED = ("tools/call", "prompts/get")  # a URI may hold anything, so those are not counted apart


class Measuring:
    """Counts requests in both directions. Put it first, or right behind a journal."""

    waits: ClassVar = False

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        message = exchange.message
        if not isinstance(message, Request):
            return await proceed(exchange)
        method, metrics = message.method, self._metrics
        name = exchange.target if method in _NAMED else None
        series = metrics.began(exchange.direction, method if exists(method) else OTHER, name)
        begun = perf_counter()
        try:
            answer = await proceed(exchange)
        except RpcError as exc:
            metrics.ended(series, perf_counter() - begun, str(exc.code))
            raise
        except Exception:
            metrics.ended(series, perf_counter() - begun, "lost")
            raise
        except BaseException:
            metrics.ended(series, perf_counter() - begun, "cancelled")
            raise
        failed = method == "tools/call" and is_tool_error(answer or b"")
        metrics.ended(series, perf_counter() - begun, "tool" if failed else None)
        return answer
