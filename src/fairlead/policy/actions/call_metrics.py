"""Request metrics: number, outcome and duration."""

from functools import partial
from time import perf_counter

from ...errors import RpcError
from ...interceptor import After, Exchange, Outcome, SyncInterceptor
from ...observe.metrics import OTHER, Metrics, Series
from ...protocol.methods import METHOD_NAMES
from ...recording.journal.tool_error import is_tool_error
from ...wire import Request

__all__ = ["Measuring"]

# Resource URIs are not used as labels, because the number of different URIs is unlimited.
_NAMED = ("tools/call", "prompts/get")


class Measuring(SyncInterceptor):
    """Counter of requests in both directions. Put it first, or directly after the journal."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        message = exchange.message
        if not isinstance(message, Request):
            return exchange, None
        method = message.method
        name = exchange.target if method in _NAMED else None
        # Unknown methods share one label, because a peer could invent any number of them.
        series = self._metrics.began(
            exchange.direction, method if method in METHOD_NAMES else OTHER, name
        )
        return exchange, partial(self._after, method, series, perf_counter())

    def _after(self, method: str, series: Series, begun: float, outcome: Outcome) -> Outcome:
        took, why = perf_counter() - begun, None
        if isinstance(outcome, RpcError):
            why = str(outcome.code)
        elif isinstance(outcome, Exception):
            why = "lost"
        elif isinstance(outcome, BaseException):
            why = "cancelled"
        elif method == "tools/call" and is_tool_error(outcome or b""):
            why = "tool"
        self._metrics.ended(series, took, why)
        return outcome
