"""Results that may be kept: as long as the server said, and not beyond news of a change.

One cache belongs to one client, so to one authorization context: `private` results are safe in it,
and `public` ones gain nothing from leaving it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from ..protocol.types.base import CacheableResult, decode
from ..wire import to_json

__all__ = ["CHANGES", "Cache"]

MAX_ENTRIES, MAX_BYTES = 1000, 16 << 20
LONGEST_TTL = 24 * 3600.0  # seconds; whatever a server says

Key = tuple[str, bytes]

# Which results a notification makes stale.
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
CHANGES = frozenset((*_STALE, _UPDATED))  # the notifications that a cache wants to hear


class Cache:
    """Fresh results by method and params, and the reads under way that others may join."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: OrderedDict[Key, tuple[float, Raw]] = OrderedDict()
        self._size = 0
        self._reading: dict[Key, _Reading] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def get(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        fetch: Callable[[], Awaitable[Raw]],
    ) -> Raw:
        """A fresh result: kept, or being fetched by somebody else, or fetched now."""
        key = (method, to_json(params or {}))
        kept = self._kept.get(key)
        if kept is not None:
            if self._now() < kept[0]:
                return kept[1]
            self._drop(key)
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = _Reading(self._fetch(key, fetch))
        try:
            return await reading.join()
        finally:
            if self._reading.get(key) is reading and reading.over:
                del self._reading[key]

    def heard(self, method: str, params: Mapping[str, Any]) -> None:
        """A notification came: drop what it makes stale, and join nobody who asked before it."""
        if method == _UPDATED:
            self._forget_resource(params.get("uri"))
        elif method in _STALE:
            self._forget(lambda key: key[0] in _STALE[method])

    def acted(self) -> None:
        """Something was done: who reads now wants to see it, not what was asked for before."""
        self._reading.clear()

    def clear(self) -> None:
        self._kept.clear()
        self._reading.clear()
        self._size = 0

    async def _fetch(self, key: Key, fetch: Callable[[], Awaitable[Raw]]) -> Raw:
        reading = self._reading.get(key)
        asked_at = self._now()
        result = await fetch()
        # Dropped meanwhile means: stale already.
        if reading is not None and self._reading.get(key) is reading:
            self._keep(key, result, asked_at)
        return result

    def _keep(self, key: Key, result: Raw, asked_at: float) -> None:
        seconds = _lifetime(result)
        if seconds <= 0:
            return
        raw = Raw(bytes(result))  # not the chunk it came in
        self._kept[key] = (asked_at + seconds, raw)
        self._size += len(memoryview(raw))
        while len(self._kept) > MAX_ENTRIES or self._size > MAX_BYTES:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= len(memoryview(kept[1]))

    def _forget_resource(self, uri: Any) -> None:
        """The one that changed; or, as a change may be reported for a part, whatever holds it."""

        def concerned(key: Key) -> bool:
            if key[0] != "resources/read":
                return False
            own = msgspec.json.decode(key[1]).get("uri")
            if not isinstance(uri, str) or not isinstance(own, str):
                return True
            return own.startswith(uri) or uri.startswith(own)

        self._forget(concerned)

    def _forget(self, concerned: Callable[[Key], bool]) -> None:
        for key in [key for key in self._kept if concerned(key)]:
            self._drop(key)
        for key in [key for key in self._reading if concerned(key)]:
            del self._reading[key]


class _Reading:
    """One fetch that several wait for. It ends with the last of them, not with the first."""

    def __init__(self, fetch: Any) -> None:
        self._task: asyncio.Task[Raw] = asyncio.ensure_future(fetch)
        self._waiting = 0

    @property
    def over(self) -> bool:
        return self._waiting == 0

    async def join(self) -> Raw:
        self._waiting += 1
        try:
            return await asyncio.shield(self._task)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not self._task.done():
                self._task.cancel()


def _lifetime(result: Raw) -> float:
    """Seconds that a result may be kept. A server that asks back has not answered yet."""
    try:
        said = decode(result, CacheableResult)
    except msgspec.DecodeError:
        return 0.0
    if isinstance(said.ttl_ms, UnsetType) or said.result_type not in ("complete", msgspec.UNSET):
        return 0.0
    return min(said.ttl_ms / 1000, LONGEST_TTL)
