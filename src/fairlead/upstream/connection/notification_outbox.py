"""Bounded queues of notifications to one receiver.

Without a backlog, notifications are sent at once.
"""

import logging

from ...errors import FairleadError
from ...interceptor import Exchange
from ...limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ...peer import Peer
from ...transport.bounded_queue import WorkQueue
from ...wire import Notification, RequestId
from ...wire.messages import size_of

__all__ = ["CallOutbox", "PeerOutbox"]

# Limits for a slow receiver; the oldest notifications are dropped and counted.
MAX_NOTES = QUEUED_NOTIFICATIONS.value
MAX_BYTES = QUEUED_NOTIFICATION_BYTES.value

log = logging.getLogger("fairlead.gateway")


class _Outbox(WorkQueue[tuple[Notification, RequestId | None]]):
    """Notifications that could not be sent at once, and the task that sends them."""

    def __init__(self) -> None:
        super().__init__(lambda entry: size_of(entry[0]), MAX_NOTES, MAX_BYTES)

    def on_drop(self) -> None:
        QUEUED_NOTIFICATIONS.hit()
        if self.dropped == 1:
            log.warning("a client reads too slowly; notifications to it are dropped")

    async def handle(self, item: tuple[Notification, RequestId | None]) -> None:
        try:
            await self._send(*item)
        except FairleadError as exc:
            log.debug("notifications cannot be sent: %s", exc)
            self.clear()

    async def _send(self, note: Notification, reply_to: RequestId | None) -> None:
        raise NotImplementedError


class PeerOutbox(_Outbox):
    """Queue of all notifications to a peer with its own connection."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer

    def put(self, note: Notification, reply_to: RequestId | None = None) -> None:
        """Send a notification, which belongs to the peer's request `reply_to`, if given."""
        channel = self._peer.channel
        # A notification must not overtake queued notifications.
        if self.busy or channel.congested:
            self.enqueue((note, reply_to))
        elif self._peer.connected:
            try:
                channel.send(note, reply_to=reply_to)
            except FairleadError as exc:
                log.debug("a notification cannot be sent: %s", exc)

    async def _send(self, note: Notification, reply_to: RequestId | None) -> None:
        channel = self._peer.channel
        if channel.congested:
            await channel.drain()
        channel.send(note, reply_to=reply_to)


class CallOutbox(_Outbox):
    """Queue of the notifications for a single request of a stateless client."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def put(self, note: Notification, reply_to: RequestId | None = None) -> None:
        self.enqueue((note, None))

    async def _send(self, note: Notification, reply_to: RequestId | None) -> None:
        await self._exchange.edge.notify_caller(self._exchange, note)
