"""Limits on subscriptions and listen streams, per client and in total.

Sessions have limits too, but a client may open many sessions and listen streams.
"""

import threading
from collections.abc import Hashable
from contextlib import AbstractContextManager

from ...errors import RpcError
from ...limits import (
    CLIENT_LISTENERS,
    CLIENT_SUBSCRIPTIONS,
    CONNECTION_LISTENERS,
    LISTENERS,
    SESSION_SUBSCRIPTIONS,
    SUBSCRIPTIONS,
    Limit,
)
from ...wire.error_codes import INVALID_PARAMS

__all__ = ["HeldUris", "SubscriptionQuota"]


class _Quota:
    """Counts of subscriptions or streams per key and in total, with a limit for each."""

    def __init__(self, each: Limit, together: Limit | None) -> None:
        self.each = each
        self.together = together
        self.counts: dict[Hashable, int] = {}
        self.total = 0
        # Sessions of several event loops share the counts.
        self._lock = threading.Lock()

    def take(self, key: Hashable, count: int) -> None:
        """Increase the count of a key.

        Raises:
            RpcError: -32602, the client or all clients together exceed a limit.
        """
        with self._lock:
            now = self.counts.get(key, 0) + count
            if now > self.each.value:
                raise _refusal(self.each)
            if self.together is not None and self.total + count > self.together.value:
                raise _refusal(self.together)
            self.counts[key] = now
            self.total += count

    def give_back(self, key: Hashable, count: int) -> None:
        with self._lock:
            left = self.counts.get(key, 0) - count
            self.total -= count
            if left > 0:
                self.counts[key] = left
            else:
                # Removed, so that the keys of closed connections do not accumulate.
                self.counts.pop(key, None)


class SubscriptionQuota:
    """The subscriptions and listen streams of all clients of one server, relay or gateway."""

    def __init__(self) -> None:
        self.uris = _Quota(CLIENT_SUBSCRIPTIONS, SUBSCRIPTIONS)
        self.streams = _Quota(CLIENT_LISTENERS, LISTENERS)
        self._by_connection = _Quota(CONNECTION_LISTENERS, None)

    def held(self, key: Hashable) -> "HeldUris":
        """Return an empty set of resources for a session, which counts its items for the client."""
        return HeldUris(self.uris, key)

    def listening(self, key: Hashable, edge: object, uris: int) -> AbstractContextManager[None]:
        """Count one listen stream and its subscriptions until the context ends.

        Raises (on entry):
            RpcError: -32602, the connection, the client or all clients together exceed a limit.
        """
        # `edge` lives at least as long as the stream, so its id is not reused meanwhile.
        by_connection = (self._by_connection, id(edge), 1)
        return _Counted(by_connection, (self.streams, key, 1), (self.uris, key, uris))


class _Counted:
    """Context in which counts are increased. It needs less memory than a generator."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: tuple[_Quota, Hashable, int]) -> None:
        self._parts = tuple(part for part in parts if part[2])

    def __enter__(self) -> None:
        for done, (quota, key, count) in enumerate(self._parts):
            try:
                quota.take(key, count)
            except RpcError:
                self._give_back(done)
                raise

    def __exit__(self, *_: object) -> None:
        self._give_back(len(self._parts))

    def _give_back(self, number: int) -> None:
        for quota, key, count in self._parts[:number]:
            quota.give_back(key, count)


class HeldUris(set[str]):
    """The resources that one session subscribed to. Each counts for its client until removed.

    Raises (from `add`):
        RpcError: -32602, the session, the client or all clients together exceed a limit.
    """

    __slots__ = ("_key", "_quota")

    def __init__(self, quota: _Quota, key: Hashable) -> None:
        super().__init__()
        self._quota = quota
        self._key = key

    def add(self, uri: str) -> None:
        if uri in self:
            return
        if len(self) >= SESSION_SUBSCRIPTIONS.value:
            raise _refusal(SESSION_SUBSCRIPTIONS)
        self._quota.take(self._key, 1)
        super().add(uri)

    def discard(self, uri: object) -> None:
        if isinstance(uri, str) and uri in self:
            super().discard(uri)
            self._quota.give_back(self._key, 1)

    def clear(self) -> None:
        count = len(self)
        super().clear()
        if count:
            self._quota.give_back(self._key, count)

    def __del__(self) -> None:  # A session may be collected without being closed.
        self.clear()


_SCOPES = {
    SESSION_SUBSCRIPTIONS.name: "subscriptions in one session",
    CLIENT_SUBSCRIPTIONS.name: "subscriptions of one client",
    SUBSCRIPTIONS.name: "subscriptions of all clients together",
    CONNECTION_LISTENERS.name: "listen streams on one connection",
    CLIENT_LISTENERS.name: "listen streams of one client",
    LISTENERS.name: "listen streams of all clients together",
}


def _refusal(limit: Limit) -> RpcError:
    limit.hit()
    return RpcError(INVALID_PARAMS, f"No more than {limit.value} {_SCOPES[limit.name]}")
