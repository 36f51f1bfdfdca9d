"""Cache for the results that a server marks as cacheable."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec
from msgspec import UnsetType

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...protocol.caller import ROUND_MEMBERS
from ...protocol.envelope import Direction
from ...protocol.json_edit import encoded, members_of, string_of
from ...protocol.targets.uri_forms import normalize_uri
from ...protocol.types.base import CacheableResult, decode
from ..edit_message import members_of_params

__all__ = ["Cache"]

LONGEST: Final = 24 * 3600.0  # in seconds; upper limit for a server's `ttlMs`
UPDATED: Final = "notifications/resources/updated"

# For each notification, the methods whose results it invalidates.
_STALE: Final = {
    "notifications/tools/list_changed": frozenset({"tools/list"}),
    "notifications/prompts/list_changed": frozenset({"prompts/list"}),
    "notifications/resources/list_changed": frozenset(
        {"resources/list", "resources/templates/list", "resources/read"}
    ),
    UPDATED: frozenset({"resources/read"}),
}
_KEPT: Final = frozenset(method for methods in _STALE.values() for method in methods)

CacheKey = tuple[str, bytes, object]


class Cache(InterceptorBase):
    """Cache for lists and resources; entries expire after their `ttlMs` or with a change
    notification.

    A result is returned only to the principal that requested it. If `shared`, a `public` result is
    returned to every principal. Interceptors after the cache, such as views, do not see requests
    that are answered from it. In a session, a result may depend on earlier messages, so only
    `public` results are cached.
    """

    also: ClassVar = frozenset(_STALE)
    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(
        self,
        max_entries: int = 1000,
        max_bytes: int = 16 << 20,
        *,
        shared: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_entries <= 0 or max_bytes <= 0:
            raise ValueError(
                "`max_entries` and `max_bytes` must be greater than 0, "
                f"not {max_entries} and {max_bytes}"
            )
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._shared = shared
        self._clock = clock
        self._kept: OrderedDict[CacheKey, tuple[float, bytes]] = OrderedDict()
        self._size = 0
        self._news = dict.fromkeys(_KEPT, 0)  # number of change notifications per method

    def __len__(self) -> int:
        return len(self._kept)

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        method = exchange.method
        if exchange.direction is Direction.SERVER_TO_CLIENT:
            if method in _STALE:
                self._heard(method, exchange)
            return await proceed(exchange)
        if method not in _KEPT:
            return await proceed(exchange)
        asked = _question(exchange)
        if asked is None:
            return await proceed(exchange)
        for whose in (self._public(exchange), *_private(exchange)):
            found = self._fresh((method, asked, whose))
            if found is not None:
                exchange.note("from the cache")
                return found
        # A result that was requested before a change notification may be stale when it arrives. The
        # lifetime starts at the request, because the server computes `ttlMs` later.
        news, began = self._news[method], self._clock()
        answer = await proceed(exchange)
        if answer is not None and news == self._news[method]:
            self._keep(exchange, asked, bytes(answer), began)
        return answer

    def views_changed(self) -> None:
        """Drop all entries, because they were filtered by the previous views."""
        for method in self._news:
            self._news[method] += 1  # results that have not arrived yet must not be stored either
        self._kept.clear()
        self._size = 0

    def _public(self, exchange: Exchange) -> object:
        """Return the owner of a cached public result."""
        return _EVERYBODY if self._shared else (_EVERYBODY, exchange.caller.principal)

    def _fresh(self, key: CacheKey) -> bytes | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        until, answer = kept
        if self._clock() < until:
            return answer
        self._drop(key)
        return None

    def _keep(self, exchange: Exchange, asked: bytes, answer: bytes, began: float) -> None:
        seconds, public = _lifetime(answer)
        if seconds <= 0 or len(answer) + len(asked) > self._max_bytes:
            return
        for whose in (self._public(exchange),) if public else _private(exchange):
            key = exchange.method, asked, whose
            # The old entry is dropped first, so that the new entry is counted and evicted last.
            self._drop(key)
            self._kept[key] = began + seconds, answer
            self._size += len(answer) + len(asked)
        while len(self._kept) > self._max_entries or self._size > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _heard(self, method: str, exchange: Exchange) -> None:
        for stale in _STALE[method]:
            self._news[stale] += 1
        uri = exchange.target if method == UPDATED else None
        for key in [key for key in self._kept if key[0] in _STALE[method]]:
            if uri is None or _concerns(uri, key[1]):
                self._drop(key)

    def _drop(self, key: CacheKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= len(kept[1]) + len(key[1])


_EVERYBODY: Final = object()


def _private(exchange: Exchange) -> tuple[object, ...]:
    """Return the owner of a cached private result; an empty tuple in a session."""
    caller = exchange.caller
    return (caller.principal,) if caller.stateless else ()


def _question(exchange: Exchange) -> bytes | None:
    """Return a cache key from the params without `_meta`, the endpoint and the kind of caller; None
    if the request cannot be cached.
    """
    members, caller = members_of_params(exchange.message.params), exchange.caller
    if members is None or members.keys() & ROUND_MEMBERS:
        return None  # the result of a request with input responses is valid only for that request
    members.pop("_meta", None)
    about = [exchange.server, caller.revision, caller.capabilities.decode(errors="replace")]
    return bytes(encoded([{name: members[name] for name in sorted(members)}, *about]))


def _lifetime(answer: bytes) -> tuple[float, bool]:
    """Return the seconds for which a result may be cached, and True if it is public."""
    try:
        said = decode(msgspec.Raw(answer), CacheableResult)
    except msgspec.DecodeError:
        return 0.0, False
    # Only complete results are cached: an `input_required` result is for one client.
    if isinstance(said.ttl_ms, UnsetType) or said.result_type not in ("complete", msgspec.UNSET):
        return 0.0, False
    return min(said.ttl_ms / 1000, LONGEST), said.cache_scope == "public"


def _concerns(uri: str, asked: bytes) -> bool:
    """Return True if an update of `uri` affects a cached request.

    A server may report a change to a part of a resource or to its container, so it is sufficient if
    one URI is a prefix of the other.
    """
    params = msgspec.json.decode(asked, type=list[msgspec.Raw])[0]
    own = string_of((members_of(params) or {}).get("uri"))
    if own is None:
        return True
    own, uri = normalize_uri(own), normalize_uri(uri)
    return own.startswith(uri) or uri.startswith(own)
