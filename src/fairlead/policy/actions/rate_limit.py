"""Rate limits for requests.

If a server answers a call with input requests, the client sends the call again with its responses.
Such a further round does not count as a new call. A stateless client identifies it with the
`requestState` that it received. Any client can invent such a state, so a request counts as a
further round only if this module saw the server's result, and only once.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from math import ceil
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...errors import RpcError
from ...interceptor import After, Exchange, Outcome, SyncInterceptor
from ...limits import RATE_BUCKETS, REMEMBERED_ROUNDS
from ...protocol.caller import ROUND_MEMBERS
from ...protocol.envelope import Direction
from ...protocol.identity.client_key import network_of
from ...protocol.own_errors import own_error
from ...protocol.targets.name_forms import normalize_name
from ...wire import Request
from ...wire.error_codes import INTERNAL_ERROR
from ...wire.json import read_json

__all__ = ["RateLimit"]

MAX_BUCKETS: Final = RATE_BUCKETS.value
# below this number, no bucket will be evicted soon, so the order of buckets is not updated
FEW: Final = 1_000
_UP: Final = Direction.CLIENT_TO_SERVER
CLOSE_ENOUGH: Final = 0.01  # fraction of a token that may be missing when a request is allowed
_NONE: Final = b"{}"  # capabilities of a client that supports no input requests
MAX_ROUNDS: Final = 20  # maximum number of rounds per call, the same as in clients
MAX_OPEN: Final = REMEMBERED_ROUNDS.value
# Maximum size in bytes; longer results are not searched for input requests.
LONGEST_RESULT: Final = 1 << 20
LEAST_WAIT: Final = 0.001  # in seconds; the minimum for `retryAfter`, which must not be 0

Per = Literal["all", "client", "identity", "tool", "session"]


class RateLimit(SyncInterceptor):
    """Limits requests per second: in total, or per client, identity, tool or session.

    The state of a token bucket is one number: the time at which the bucket is full again. A request
    that is sent again with responses to the server's input requests needs no token.
    """

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
        """Set the rate per second and the burst; a `burst` of 0 is the larger of 1 and `rate`.

        In `per`, "client" means a network address or program, "identity" the authenticated
        principal. With a list of values, each combination has its own bucket. If `methods` is
        empty, all requests are limited.

        Raises:
            ValueError: An option is out of range.
        """
        if rate <= 0 or burst < 0 or 0 < burst < 1:
            raise ValueError(
                "`rate` must be greater than 0, and `burst` must be 0 or at least 1, "
                f"not {rate:g} and {burst:g}"
            )
        if not per:
            raise ValueError(
                "`per` must not be empty: expected client, identity, tool, session or all"
            )
        self._each = 1.0 / rate  # seconds until one token is restored
        # seconds until all tokens but one are restored
        self._spare = ((burst or max(rate, 1.0)) - 1.0) * self._each
        # Sums of floats are inexact, and without this tolerance a token would sometimes be lost.
        self._most = self._spare + self._each * CLOSE_ENOUGH
        self._key = _key_of([per] if isinstance(per, str) else per)
        self._methods = frozenset(methods)
        self._clock = clock
        self._full_at: dict[Hashable, float] = {}
        self._rounds = _Rounds()

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        message = exchange.message
        if (
            exchange.direction is _UP
            and (not self._methods or message.method in self._methods)
            and isinstance(message, Request)
        ):
            key, now, after = self._key(exchange), self._clock(), None
            caller = exchange.caller
            # Only stateless clients that support input requests can send a further round. For all
            # other clients, params and results need not be hashed.
            if caller.stateless and caller.capabilities != _NONE:
                rounds = self._rounds
                left = rounds.take(key, exchange) if rounds.open else None
                if left is not None:
                    return exchange, rounds.until(key, exchange, left)
                after = rounds.until(key, exchange, MAX_ROUNDS)
            full_at = self._full_at.get(key, now)
            # A comparison instead of `max()`, which would add a function call to every request.
            if full_at < now:
                full_at = now
            if full_at - now > self._most:
                raise _too_many(exchange, full_at - now - self._spare)
            self._full_at[key] = full_at + self._each
            if len(self._full_at) > FEW:
                self._make_room(key)
            return exchange, after
        return exchange, None

    def _make_room(self, key: Hashable) -> None:
        # The key moves to the end, because the least recently used bucket is evicted first.
        self._full_at[key] = self._full_at.pop(key)
        if len(self._full_at) > MAX_BUCKETS:
            RATE_BUCKETS.hit()
            del self._full_at[next(iter(self._full_at))]


def _too_many(exchange: Exchange, wait: float) -> RpcError:
    wait = max(wait, LEAST_WAIT)
    exchange.note("limited")
    why = f"Too many requests: try again in {wait:.3g} s"
    # Rounded up, so that a client that waits exactly this long is not too early. The tolerance
    # prevents an inexact float from adding a millisecond.
    return own_error(INTERNAL_ERROR, why, retryAfter=ceil(wait * 1e3 - 1e-6) / 1e3)


def _key_of(several: Sequence[Per]) -> Callable[[Exchange], Hashable]:
    """Return a function that computes a message's bucket key."""
    keys = [_KEYS[one] for one in several]
    if len(keys) == 1:
        return keys[0]
    if len(keys) == 2:
        one, other = keys
        return lambda exchange: (one(exchange), other(exchange))  # faster than a generator
    return lambda exchange: tuple(key(exchange) for key in keys)


def _client(exchange: Exchange) -> Hashable:
    address, caller = exchange.transport.peer_address, exchange.caller
    if address is None:
        # Otherwise a stateless client could get new buckets by sending new names.
        return None if caller.stateless else caller.info
    return network_of(address)


def _session(exchange: Exchange) -> Hashable:
    edge = exchange.edge
    found = edge.session.session_id
    if found is not None:
        return found
    if edge.is_connection:
        return id(edge)  # a connection without a session id counts as a session
    return exchange.caller.principal, _client(exchange)  # key for requests without a session


def _tool(exchange: Exchange) -> Hashable:
    """Return a tool's key, which is the same for all names and spellings of the tool."""
    name, plain = exchange.head.name, exchange.resolver is None and exchange.displayed is None
    if plain and type(name) is str and exchange.message.method == "tools/call":
        return _spelled(name) if len(name) <= LONGEST else _LONG_NAMES
    targets = exchange.targets
    if len(targets) == 1:  # avoids creating a tuple in the most frequent case
        return targets[0].key if len(targets[0].own) <= LONGEST else _LONG_NAMES
    if sum(len(one.own) for one in targets) > LONGEST:
        return _LONG_NAMES
    return tuple(one.key for one in targets)


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return normalize_name(name).casefold()


LONGEST: Final = 256  # maximum length of a name in characters; all longer names share a bucket
_LONG_NAMES: Final = ("long names",)


_KEYS: Final[dict[str, Callable[[Exchange], Hashable]]] = {
    "identity": attrgetter("caller.principal"),
    "tool": _tool,
    "all": lambda exchange: None,
    "client": _client,
    "session": _session,
}


# Rounds


class _Wanted(Struct, rename="camel"):
    """The result members that request input."""

    result_type: str = ""
    request_state: str | None = None


class _Rounds:
    """Calls for which a further round is expected, because the server requested input."""

    def __init__(self) -> None:
        # Number of remaining rounds by owner and call digest. The oldest entries are evicted.
        self.open: OrderedDict[tuple[Hashable, bytes], int] = OrderedDict()

    def take(self, key: Hashable, exchange: Exchange) -> int | None:
        """If a request is the next round of a call, return how many rounds may follow; else None.

        The entry is removed, so that each round is accepted only once. `key` is the caller's
        bucket.
        """
        params = exchange.message.params
        if isinstance(params, UnsetType):
            return None
        text = bytes(params)
        # Searching the bytes is cheaper than decoding the params of every request.
        if text.find(b'"requestState"') < 0 and text.find(b'"inputResponses"') < 0:
            return None
        request = _read(exchange)
        if request is None or not request.keys() & ROUND_MEMBERS:
            return None
        digest = _digest(exchange, request, request.get("requestState"))
        return None if digest is None else self.open.pop((key, digest), None)

    def until(self, key: Hashable, exchange: Exchange, left: int) -> After:
        """Return a callback that registers the next round if the outcome requests input."""

        def answered(outcome: Outcome) -> Outcome:
            text = outcome if type(outcome) is bytes else b""
            if type(outcome) is Raw:
                text = bytes(outcome)
            if left and len(text) <= LONGEST_RESULT and text.find(b'"input_required"') >= 0:
                self._asked(key, exchange, left, text)
            return outcome

        return answered

    def _asked(self, key: Hashable, exchange: Exchange, left: int, text: bytes) -> None:
        wanted = read_json(text, _Wanted, _Wanted())
        request = _read(exchange)
        if wanted.result_type != "input_required" or request is None:
            return
        digest = _digest(exchange, request, wanted.request_state)
        if digest is not None:
            self.open[(key, digest)] = left - 1
        if len(self.open) > MAX_OPEN:
            REMEMBERED_ROUNDS.hit()
            self.open.popitem(last=False)


def _read(exchange: Exchange) -> dict[str, Any] | None:
    """Decode the params. None if this fails; the request then counts as a new call."""
    return read_json(exchange.message.params, dict[str, Any], None)


def _digest(exchange: Exchange, request: dict[str, Any], state: object) -> bytes | None:
    """Return a digest of the params that stay the same in a call's next round."""
    same = {
        name: held
        for name, held in request.items()
        if name != "_meta" and name not in ROUND_MEMBERS
    }
    try:
        text = msgspec.json.encode([exchange.server, exchange.method, same, state], order="sorted")
    # The params have the maximum depth, and the list adds one level.
    except RecursionError:
        return None
    return hashlib.sha256(text).digest()
