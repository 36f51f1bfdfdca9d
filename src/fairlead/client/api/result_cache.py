"""A cache of results, limited by their time to live and invalidated by change notifications.

A cache belongs to one client and therefore to one authorization context, so it may store `private`
results.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from ...errors import FairleadError
from ...limits import RESULT_CACHE_BYTES, RESULT_CACHE_ENTRIES
from ...protocol.types.base import CacheableResult, decode
from ...transport.background_tasks import BackgroundTasks
from ...wire import to_json
from ..connection.shared_task import SharedTask

__all__ = ["CHANGES", "ResultCache"]

log = logging.getLogger("fairlead.client")

MAX_ENTRIES, MAX_BYTES = RESULT_CACHE_ENTRIES.value, RESULT_CACHE_BYTES.value
LONGEST_TTL = 24 * 3600.0  # seconds; maximum time to live, even if a server allows more

ResultKey = tuple[str, bytes]

# For each notification: the methods whose results it invalidates.
_STALE = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": (
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ),
}

_UPDATED = "notifications/resources/updated"
CHANGES = frozenset((*_STALE, _UPDATED))  # notifications that must be passed to a cache


class ResultCache:
    """Results by method and params, and running reads whose results other callers can share.

    For `stale` seconds after its expiry, a result is still returned while a background read fetches
    a new result. This does not apply after a change notification or a tool call.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, *, stale: float = 0.0) -> None:
        self._now = now
        self._stale = stale
        self._kept: OrderedDict[ResultKey, tuple[float, Raw]] = OrderedDict()
        self._size = 0
        self._reading: dict[ResultKey, SharedTask[Raw]] = {}
        self._refreshing = BackgroundTasks()

    async def get(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        fetch: Callable[[], Awaitable[Raw]],
    ) -> Raw:
        """Return a result from the cache, from a running read, or from a new read."""
        key = (method, to_json(params or {}))
        kept = self._kept.get(key)
        if kept is not None:
            until, result = kept
            now = self._now()
            if now < until:
                return result
            if now < until + self._stale:
                self._refresh(key, fetch)
                return result
            self._drop(key)
        return await self._join(key, fetch)

    def heard(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop the results that a notification invalidates.

        Results of reads in progress are returned to their callers, but not stored.
        """
        if method == _UPDATED:
            self._forget_resource(params.get("uri"))
        elif method in _STALE:
            self._forget(lambda key: key[0] in _STALE[method])

    def expire_stale(self) -> None:
        """Drop expired results after a tool call.

        Results of reads in progress are not stored either: later reads must see the effect of the
        call.
        """
        self._reading.clear()
        if self._stale:
            now = self._now()
            for key in [key for key, (until, _) in self._kept.items() if until <= now]:
                self._drop(key)

    async def close(self) -> None:
        """Drop all results and stop background reads."""
        self._kept.clear()
        self._reading.clear()
        self._size = 0
        await self._refreshing.close()

    def _refresh(self, key: ResultKey, fetch: Callable[[], Awaitable[Raw]]) -> None:
        if key not in self._reading:
            self._refreshing.start(self._read_quietly(key, fetch))

    async def _read_quietly(self, key: ResultKey, fetch: Callable[[], Awaitable[Raw]]) -> None:
        try:
            await self._join(key, fetch)
        except (FairleadError, OSError) as exc:
            log.info("%s could not be refreshed: %s", key[0], exc)

    async def _join(self, key: ResultKey, fetch: Callable[[], Awaitable[Raw]]) -> Raw:
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = SharedTask(self._fetch(key, fetch))
        try:
            return await reading.join()
        finally:
            if self._reading.get(key) is reading and reading.over:
                del self._reading[key]

    async def _fetch(self, key: ResultKey, fetch: Callable[[], Awaitable[Raw]]) -> Raw:
        reading = self._reading.get(key)
        asked_at = self._now()
        result = await fetch()
        # If the read was detached while it ran, its result is stale.
        if reading is not None and self._reading.get(key) is reading:
            self._keep(key, result, asked_at)
        return result

    def _keep(self, key: ResultKey, result: Raw, asked_at: float) -> None:
        self._drop(key)
        seconds = _lifetime(result)
        if seconds <= 0:
            return
        # Copied, because a `Raw` would keep the whole received chunk in memory.
        raw = Raw(bytes(result))
        self._kept[key] = (asked_at + seconds, raw)
        self._size += len(memoryview(raw))
        while len(self._kept) > MAX_ENTRIES or self._size > MAX_BYTES:
            (RESULT_CACHE_BYTES if self._size > MAX_BYTES else RESULT_CACHE_ENTRIES).hit()
            self._drop(next(iter(self._kept)))

    def _drop(self, key: ResultKey) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= len(memoryview(kept[1]))

    def _forget_resource(self, uri: Any) -> None:
        """Drop a changed resource, and resources that may contain it or be part of it.

        A server may report a change to a part of a resource.
        """

        def concerned(key: ResultKey) -> bool:
            if key[0] != "resources/read":
                return False
            own = msgspec.json.decode(key[1]).get("uri")
            # If a URI is missing, any resource may have changed.
            if not isinstance(uri, str) or not isinstance(own, str):
                return True
            return own.startswith(uri) or uri.startswith(own)

        self._forget(concerned)

    def _forget(self, concerned: Callable[[ResultKey], bool]) -> None:
        for key in [key for key in self._kept if concerned(key)]:
            self._drop(key)
        for key in [key for key in self._reading if concerned(key)]:
            del self._reading[key]


def _lifetime(result: Raw) -> float:
    """Return the seconds for which a result may be cached; 0 if it requests input or has no TTL."""
    try:
        said = decode(result, CacheableResult)
    except msgspec.DecodeError:
        return 0.0
    if isinstance(said.ttl_ms, UnsetType) or said.result_type not in ("complete", msgspec.UNSET):
        return 0.0
    return min(said.ttl_ms / 1000, LONGEST_TTL)
