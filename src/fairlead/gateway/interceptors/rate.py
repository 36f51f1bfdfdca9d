"""How often something may be asked."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import ClassVar, Final, Literal

from ...interceptor import After, Exchange, TwoHalves
from ...interceptor.limit import Bucket
from ...protocol.envelope import Direction
from ...wire import Request
from ...wire.codes import INTERNAL_ERROR
from ..bridge.errors import ours
from .sessions import session_of

__all__ = ["RateLimit"]

MAX_BUCKETS: Final = 10_000
FEW: Final = 1_000  # none of so many will have to go soon, so it does not matter who came last

Per = Literal["all", "client", "identity", "tool", "session"]


class RateLimit(TwoHalves):
    """At most so many requests a second, for all together or for each of something."""

    pure: ClassVar = True

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
        self._key = _key_of([per] if isinstance(per, str) else per)
        self._methods = frozenset(methods)
        self._clock = clock
        self._limits: OrderedDict[object, Bucket] = OrderedDict()

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        counts = (
            exchange.direction is Direction.CLIENT_TO_SERVER
            and (not self._methods or exchange.message.method in self._methods)
            and isinstance(exchange.message, Request)
        )
        if counts:
            key = self._key(exchange)
            bucket = self._limits.get(key) or self._new(key)
            if len(self._limits) > FEW:
                self._limits.move_to_end(key)
            if not bucket.take(now := self._clock()):
                wait = max(bucket.wait(now), 0.001)
                exchange.note("limited")
                raise ours(
                    INTERNAL_ERROR,
                    f"Too many requests: try again in {wait:.3g} s",
                    retryAfter=round(wait, 3),
                )
        return exchange, None

    def _new(self, key: object) -> Bucket:
        bucket = self._limits[key] = Bucket(self._rate, self._burst, self._clock())
        if len(self._limits) > MAX_BUCKETS:
            self._limits.popitem(last=False)
        return bucket


def _key_of(several: Sequence[Per]) -> Callable[[Exchange], object]:
    """What tells one bucket from another."""
    if set(several) <= _ATTRIBUTES.keys():
        return attrgetter(*[_ATTRIBUTES[one] for one in several])
    keys = [_KEYS[one] for one in several]
    return keys[0] if len(keys) == 1 else lambda exchange: tuple(key(exchange) for key in keys)


def _client(exchange: Exchange) -> object:
    address = exchange.transport.peer_address
    # The port is another one for each connection.
    return exchange.caller.info if address is None else address.rpartition(":")[0] or address


_ATTRIBUTES: Final = {"identity": "caller.principal", "tool": "target"}
_KEYS: Final[dict[str, Callable[[Exchange], object]]] = {
    **{name: attrgetter(path) for name, path in _ATTRIBUTES.items()},
    "all": lambda exchange: None,
    "client": _client,
    "session": lambda exchange: session_of(exchange) or id(exchange.edge),
}
