"""Notifications on their way to one reader: in order, at once if it reads, else bounded."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from ..errors import FairleadError
from ..interceptor import Exchange
from ..limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ..peer import Peer
from ..wire import Notification, RequestId
from ..wire.messages import size_of

__all__ = ["CallOutbox", "PeerOutbox"]

# What waits for a slow reader; older notes are dropped, and counted.
MAX_NOTES = QUEUED_NOTIFICATIONS.value
MAX_BYTES = QUEUED_NOTIFICATION_BYTES.value

log = logging.getLogger("fairlead.gateway")


class _Waiting:
    """Notes that could not be sent at once, and the task that sends them."""

    def __init__(self, send: Callable[[Notification, RequestId | None], Awaitable[None]]) -> None:
        self._send = send
        self._notes: deque[tuple[Notification, RequestId | None]] = deque()
        self._size = 0
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def add(self, note: Notification, reply_to: RequestId | None) -> None:
        self._notes.append((note, reply_to))
        self._size += size_of(note)
        while len(self._notes) > 1 and (len(self._notes) > MAX_NOTES or self._size > MAX_BYTES):
            self._size -= size_of(self._notes.popleft()[0])
            self.dropped += 1
            QUEUED_NOTIFICATIONS.hit()
            if self.dropped == 1:
                log.warning("a client reads too slowly; it misses notifications")
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._pump())

    @property
    def empty(self) -> bool:
        return self._task is None

    async def _pump(self) -> None:
        try:
            while self._notes:
                note, reply_to = self._notes.popleft()
                self._size -= size_of(note)
                await self._send(note, reply_to)
        except FairleadError as exc:
            log.debug("nobody reads any more: %s", exc)
            self._clear()
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def flushed(self) -> None:
        while self._task is not None:
            await asyncio.wait((self._task,))

    def close(self) -> None:
        self._clear()
        task, self._task = self._task, None  # one that has not begun would never say so itself
        if task is not None:
            task.cancel()

    def _clear(self) -> None:
        self._notes.clear()
        self._size = 0


class PeerOutbox:
    """The way to somebody with a connection of its own; everything goes through here, in order."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._waiting = _Waiting(self._send)

    def put(self, note: Notification, reply_to: RequestId | None = None) -> None:
        """Send a notification; `reply_to` is the request of theirs that it belongs to."""
        channel = self._peer.channel
        if not self._waiting.empty or channel.congested:
            self._waiting.add(note, reply_to)
        elif self._peer.connected:
            try:
                channel.send(note, reply_to=reply_to)
            except FairleadError as exc:
                log.debug("nobody reads any more: %s", exc)

    @property
    def empty(self) -> bool:
        return self._waiting.empty

    async def flushed(self) -> None:
        """Wait until all of it has been sent."""
        await self._waiting.flushed()

    def close(self) -> None:
        self._waiting.close()

    async def _send(self, note: Notification, reply_to: RequestId | None) -> None:
        channel = self._peer.channel
        if channel.congested:
            await channel.drain()
        channel.send(note, reply_to=reply_to)


class CallOutbox:
    """The way to somebody who has only this one request."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._waiting = _Waiting(self._send)

    def put(self, note: Notification, reply_to: RequestId | None = None) -> None:
        self._waiting.add(note, None)

    @property
    def empty(self) -> bool:
        return self._waiting.empty

    async def flushed(self) -> None:
        await self._waiting.flushed()

    def close(self) -> None:
        self._waiting.close()

    async def _send(self, note: Notification, _: RequestId | None) -> None:
        await self._exchange.edge.tell(self._exchange, note)
