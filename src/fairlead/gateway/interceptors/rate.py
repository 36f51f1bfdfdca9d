"""How often something may be asked."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import ClassVar, Final, Literal

from ...interceptor import Answer, Exchange, Proceed
from ...interceptor.limit import RateLimiter
from ...protocol.envelope import Direction
from ...wire import Request
from ...wire.codes import INTERNAL_ERROR
from ..bridge.errors import ours
from .sessions import session_of

__all__ = ["RateLimit"]

MAX_BUCKETS: Final = 10_000
FEW: Final = 1_000  # none of so many will have to go soon, so it does not matter who came last

Per = Literal["all", "client", "identity", "tool", "session"]


class RateLimit:
    """At most so many requests a second, for all together or for each of something."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(
        self,
        rate: float,
        burst: float = 0,
        *,
        per: Per | list[Per] = "identity",
        methods: Sequence[str] = ("tools/call",),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`per` "client" is one address or program, "identity" whoever was authenticated; several
        together are one bucket for each combination. No `methods` at all means every request.
        """
        if rate <= 0 or burst < 0:
            raise ValueError("`rate` is above 0, and `burst` is not below it")
        self._rate, self._burst = rate, burst
        self._key = _together([_KEYS[one] for one in ([per] if isinstance(per, str) else per)])
        self._methods = frozenset(methods)
        self._clock = clock
        self._limits: OrderedDict[object, RateLimiter] = OrderedDict()

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        counts = (
            exchange.direction is Direction.CLIENT_TO_SERVER
            and (not self._methods or exchange.message.method in self._methods)
            and isinstance(exchange.message, Request)
        )
        if counts:
            key = self._key(exchange)
            limiter = self._limits.get(key) or self._new(key)
            if len(self._limits) > FEW:
                self._limits.move_to_end(key)
            if not limiter.allow():
                wait = max(limiter.wait(), 0.001)
                exchange.note("limited")
                raise ours(
                    INTERNAL_ERROR,
                    f"Too many requests: try again in {wait:.3g} s",
                    retryAfter=round(wait, 3),
                )
        return await proceed(exchange)

    def _new(self, key: object) -> RateLimiter:
        limiter = self._limits[key] = RateLimiter(self._rate, self._burst, clock=self._clock)
        if len(self._limits) > MAX_BUCKETS:
            self._limits.popitem(last=False)
        return limiter


def _together(keys: Sequence[Callable[[Exchange], object]]) -> Callable[[Exchange], object]:
    """One key of several."""
    if len(keys) == 1:
        return keys[0]
    if len(keys) == 2:
        first, second = keys
        return lambda exchange: (first(exchange), second(exchange))
    return lambda exchange: tuple(key(exchange) for key in keys)


def _client(exchange: Exchange) -> object:
    address = exchange.transport.peer_address
    # The port is another one for each connection.
    return exchange.caller.info if address is None else address.rpartition(":")[0] or address


_KEYS: Final[dict[str, Callable[[Exchange], object]]] = {
    "all": lambda exchange: None,
    "client": _client,
    "identity": lambda exchange: exchange.caller.principal,
    "tool": lambda exchange: exchange.target,
    "session": lambda exchange: session_of(exchange) or id(exchange.edge),
}
