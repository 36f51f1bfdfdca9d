"""Subscriptions of stateless clients on the connections that their calls use.

A listen stream starts no process, so it usually uses the default connection of a server. The calls
of a client with capabilities or a name use another connection, in whose process they cause changes.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from ...protocol.caller import Caller
from .upstream_connection import UpstreamConnection, begin_subscription, end_subscription

__all__ = ["CallerSubscription", "CallerSubscriptions"]


class CallerSubscription(Struct, eq=False):
    """The resources of one listen stream, and the function that is called with each change.

    `changed` gets the method of the notification, and the URI if it has one. `besides` is the
    connection that the stream itself uses.
    """

    caller: Caller
    uris: Collection[str]
    changed: Callable[[str, str | None], None]
    besides: UpstreamConnection | None = None


class CallerSubscriptions:
    """The listen streams of stateless clients at one server."""

    def __init__(
        self,
        connections: Callable[[], Iterable[UpstreamConnection]],
        serves: Callable[[UpstreamConnection, Caller], bool],
    ) -> None:
        """`serves` returns True if the calls of a client use a connection."""
        self._connections = connections
        self._serves = serves
        self._all: set[CallerSubscription] = set()

    @contextmanager
    def following(self, one: CallerSubscription) -> Iterator[None]:
        """Report changes on all connections of a client, also on those opened later."""
        self._all.add(one)
        for connection in self._used_by(one):
            connection.followers.append(one.changed)
            connection.background(_subscribe(connection, one))
        try:
            yield
        finally:
            self._all.discard(one)
            for connection in self._used_by(one):
                if one.changed in connection.followers:
                    connection.followers.remove(one.changed)
                    for uri in one.uris:
                        end_subscription(connection, uri, one)

    async def opened(self, connection: UpstreamConnection, seconds: float) -> None:
        """Subscribe on a new connection, so that the call that opened it causes notifications."""
        here = [one for one in self._all if self._is_used_by(one, connection)]
        if here:
            connection.followers += [one.changed for one in here]
            work = [asyncio.ensure_future(_subscribe(connection, one)) for one in here]
            # A server that does not answer must not delay calls for longer.
            await asyncio.wait(work, timeout=seconds or None)

    def _used_by(self, one: CallerSubscription) -> list[UpstreamConnection]:
        return [each for each in self._connections() if self._is_used_by(one, each)]

    def _is_used_by(self, one: CallerSubscription, connection: UpstreamConnection) -> bool:
        return connection is not one.besides and self._serves(connection, one.caller)


async def _subscribe(connection: UpstreamConnection, one: CallerSubscription) -> None:
    begun = (begin_subscription(connection, uri, one) for uri in one.uris)
    await asyncio.gather(*begun, return_exceptions=True)
