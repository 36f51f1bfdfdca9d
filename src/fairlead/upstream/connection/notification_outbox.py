"""Notifications on their way to one reader: in order, at once if it reads, else bounded."""

import logging

from ...errors import FairleadError
from ...interceptor import Exchange
from ...limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ...peer import Peer
from ...transport.bounded_queue import WorkQueue
from ...wire import Notification, RequestId
from ...wire.messages import size_of

__all__ = ["CallOutbox", "PeerOutbox"]

# What waits for a slow reader; older notes are dropped, and counted.
MAX_NOTES = QUEUED_NOTIFICATIONS.value
MAX_BYTES = QUEUED_NOTIFICATION_BYTES.value

log = logging.getLogger("fairlead.gateway")


class _Outbox(WorkQueue[tuple[Notification, RequestId | None]]):
    """Notes that could not be sent at once, and the task that sends them."""

    def __init__(self) -> None:
        super().__init__(lambda entry: size_of(entry[0]), MAX_NOTES, MAX_BYTES)

    @property
    def empty(self) -> bool:
        return not self.busy

    def on_drop(self) -> None:
        QUEUED_NOTIFICATIONS.hit()
        if self.dropped == 1:
            log.warning("a client reads too slowly; it misses notifications")

    async def handle(self, item: tuple[Notification, RequestId | None]) -> None:
        try:
            await self._send(*item)
        except FairleadError as exc:
            log.debug("nobody reads any more: %s", exc)
            self.clear()

    async def _send(self, note: Notification, reply_to: RequestId | None) -> None:
        raise NotImplementedError


class PeerOutbox(_Outbox):
    """The way to somebody with a connection of its own; everything goes through here, in order."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self._peer = peer

    def put(self, note: Notification, reply_to: RequestId | None = None) -> None:
        """Send a notification; `reply_to` is the request of theirs that it belongs to."""
        channel = self._peer.channel
        if self.busy or channel.congested:
            self.enqueue((note, reply_to))
        elif self._peer.connected:
            try:
                channel.send(note, reply_to=reply_to)
            except FairleadError as exc:
                log.debug("nobody reads any more: %s", exc)

    async def _send(self, note: Notification, reply_to: RequestId | None) -> None:
        channel = self._peer.channel
        if channel.congested:
            await channel.drain()
        channel.send(note, reply_to=reply_to)


class CallOutbox(_Outbox):
    """The way to somebody who has only this one request."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def put(self, note: Notification, reply_to: RequestId | None = None) -> None:
        self.enqueue((note, None))

    async def _send(self, note: Notification, reply_to: RequestId | None) -> None:
        await self._exchange.edge.notify_caller(self._exchange, note)
