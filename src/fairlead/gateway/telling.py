"""What we tell clients ourselves: interceptors see it, like all that servers tell.

A gateway has lists of its own, and one subscription for all who want to hear of a resource; so what
its clients hear of changes is its word, not a server's.
"""

from collections.abc import Sequence

from msgspec import UnsetType

from ..interceptor import Exchange, Interceptor
from ..peer import Peer
from ..peer.intercepted import say
from ..protocol.caller import Caller, read_head
from ..protocol.envelope import Direction
from ..server.subscription_quota import SubscriptionQuota
from ..server.subscriptions import Changes
from ..wire import Notification

__all__ = ["changes_through"]


def changes_through(
    interceptors: Sequence[Interceptor],
    info: bytes | None,
    quota: SubscriptionQuota | None = None,
) -> Changes:
    """Changes whose news pass interceptors; `info` is how whoever tells them calls itself."""
    return Changes(_Telling(interceptors, info) if interceptors else None, quota)


class _Telling:
    """Sends one notification after the other; one that is refused is not sent."""

    def __init__(self, interceptors: Sequence[Interceptor], info: bytes | None) -> None:
        self._interceptors = interceptors
        self._info = info

    async def to_session(self, edge: object, note: Notification) -> None:
        """Raises `TransportError`: it could not be sent."""
        assert isinstance(edge, Peer)
        them = edge.conversation.sender

        async def deliver(passed: Notification) -> None:
            params = passed.params
            await edge.notify(passed.method, None if isinstance(params, UnsetType) else params)

        told = Exchange(
            note,
            self._us(them),
            read_head(note.params),
            Direction.SERVER_TO_CLIENT,
            edge.channel.context,
            edge,
        )
        await say(told, self._interceptors, deliver)

    async def to_listener(self, exchange: Exchange, note: Notification) -> None:
        """Raises `ChannelClosed`: nobody listens any more."""

        async def deliver(passed: Notification) -> None:
            await exchange.edge.tell(exchange, passed)

        told = Exchange(
            note,
            self._us(exchange.caller),
            read_head(note.params),
            exchange.direction.reverse(),
            exchange.transport,
            exchange.edge,
            related=exchange.request_id,
        )
        await say(told, self._interceptors, deliver)

    def _us(self, them: Caller) -> Caller:
        return Caller(them.revision, them.stateless, them.principal, info=self._info)
