"""How often something may be asked.

A call that a server answered with a question is sent again with the answer, which is no new call.
In the stateless era the client returns the state that it was given. Any client can send a state;
so only what was seen to be asked for counts as such a round, once.
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
from ..session_label import session_of

__all__ = ["RateLimit"]

MAX_BUCKETS: Final = RATE_BUCKETS.value
FEW: Final = 1_000  # none of so many will have to go soon, so it does not matter who came last
_UP: Final = Direction.CLIENT_TO_SERVER
CLOSE_ENOUGH: Final = 0.01  # of a token that is not all there yet
_NONE: Final = b"{}"  # capabilities of somebody who cannot be asked anything
MAX_ROUNDS: Final = 20  # of one call; clients give up then, and so do we
MAX_OPEN: Final = REMEMBERED_ROUNDS.value
LONGEST_RESULT: Final = 1 << 20  # bytes of a result that is looked at
LEAST_WAIT: Final = 0.001  # seconds; what is to be waited for is not nothing

Per = Literal["all", "client", "identity", "tool", "session"]


class RateLimit(SyncInterceptor):
    """At most so many requests a second, for all together or for each of something.

    A bucket of tokens is full again at some moment; that moment is all there is to know about it.
    Who answers a question of the server, and so sends a request again, needs no token for that.
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
        """`per` "client" is one address or program, "identity" whoever was authenticated; several
        together are one bucket for each combination. No `methods` at all means every request.
        """
        if rate <= 0 or burst < 0 or 0 < burst < 1:
            raise ValueError("`rate` is above 0, and `burst` is 0 or at least 1")
        if not per:
            raise ValueError("`per` names at least one of what calls are counted for")
        self._each = 1.0 / rate  # seconds in which one token comes back
        self._spare = ((burst or max(rate, 1.0)) - 1.0) * self._each  # all but one of them
        # Sums of fractions are never quite what they should be, and each token counts.
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
            if caller.stateless and caller.capabilities != _NONE:
                rounds = self._rounds
                left = rounds.take(key, exchange) if rounds.open else None
                if left is not None:
                    return exchange, rounds.until(key, exchange, left)
                after = rounds.until(key, exchange, MAX_ROUNDS)
            full_at = self._full_at.get(key, now)
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
        self._full_at[key] = self._full_at.pop(key)  # the last one
        if len(self._full_at) > MAX_BUCKETS:
            RATE_BUCKETS.hit()
            del self._full_at[next(iter(self._full_at))]


def _too_many(exchange: Exchange, wait: float) -> RpcError:
    wait = max(wait, LEAST_WAIT)
    exchange.note("limited")
    why = f"Too many requests: try again in {wait:.3g} s"
    # Up, or who waits exactly so long is too early; but a tiny bit of rounding is no wait.
    return own_error(INTERNAL_ERROR, why, retryAfter=ceil(wait * 1e3 - 1e-6) / 1e3)


def _key_of(several: Sequence[Per]) -> Callable[[Exchange], Hashable]:
    """What tells one bucket from another."""
    keys = [_KEYS[one] for one in several]
    if len(keys) == 1:
        return keys[0]
    if len(keys) == 2:
        one, other = keys
        return lambda exchange: (one(exchange), other(exchange))  # as fast as it gets
    return lambda exchange: tuple(key(exchange) for key in keys)


def _client(exchange: Exchange) -> Hashable:
    address, caller = exchange.transport.peer_address, exchange.caller
    if address is None:
        # Without a handshake, each request can call its client something else.
        return None if caller.stateless else caller.info
    return network_of(address)


def _session(exchange: Exchange) -> Hashable:
    found, edge = session_of(exchange), exchange.edge
    if found is not None:
        return found
    if edge.is_connection:
        return id(edge)  # a connection is a session, too
    return exchange.caller.principal, _client(exchange)  # each request stands alone


def _tool(exchange: Exchange) -> Hashable:
    """One bucket for one item of one server, whatever name and spelling a call uses."""
    name, plain = exchange.head.name, exchange.resolver is None and exchange.displayed is None
    if plain and type(name) is str and exchange.message.method == "tools/call":
        return _spelled(name) if len(name) <= LONGEST else _LONG_NAMES
    targets = exchange.targets
    if len(targets) == 1:  # nearly always
        return targets[0].key if len(targets[0].own) <= LONGEST else _LONG_NAMES
    if sum(len(one.own) for one in targets) > LONGEST:
        return _LONG_NAMES
    return tuple(one.key for one in targets)


@lru_cache(maxsize=1024)
def _spelled(name: str) -> str:
    return normalize_name(name).casefold()


LONGEST: Final = 256  # characters of a name; all that are longer share a bucket
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
    """The part of a result that says so."""

    result_type: str = ""
    request_state: str | None = None


class _Rounds:
    """Knows which requests go on with a call, by what their servers answered before."""

    def __init__(self) -> None:
        # How many rounds the call may have from here on. The oldest go first, when there are many.
        self.open: OrderedDict[tuple[Hashable, bytes], int] = OrderedDict()

    def take(self, key: Hashable, exchange: Exchange) -> int | None:
        """How many rounds may follow, if it is the next round of a call; nobody can use it twice.

        `key` is whose call it is.
        """
        params = exchange.message.params
        if isinstance(params, UnsetType):
            return None
        text = bytes(params)
        if text.find(b'"requestState"') < 0 and text.find(b'"inputResponses"') < 0:
            return None
        request = _read(exchange)
        if request is None or not request.keys() & ROUND_MEMBERS:
            return None
        digest = _digest(exchange, request, request.get("requestState"))
        return None if digest is None else self.open.pop((key, digest), None)

    def until(self, key: Hashable, exchange: Exchange, left: int) -> After:
        """What is to be told the outcome, to remember it if that is a question."""

        def answered(outcome: Outcome) -> Outcome:
            text = outcome if type(outcome) is bytes else _bytes_of(outcome)
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


def _bytes_of(outcome: Outcome) -> bytes:
    return bytes(outcome) if isinstance(outcome, Raw) else b""


def _read(exchange: Exchange) -> dict[str, Any] | None:
    """Return the params; None if they cannot be read, so that it counts as any call does."""
    return read_json(exchange.message.params, dict[str, Any], None)


def _digest(exchange: Exchange, request: dict[str, Any], state: object) -> bytes | None:
    """What makes a request the next round of a call: all else stays as it was."""
    same = {
        name: held
        for name, held in request.items()
        if name != "_meta" and name not in ROUND_MEMBERS
    }
    try:
        text = msgspec.json.encode([exchange.server, exchange.method, same, state], order="sorted")
    except RecursionError:  # as deep as can be read, and we are a step deeper
        return None
    return hashlib.sha256(text).digest()
