"""The queue between a connection's reader and the notification listener."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UnsetType

from ...limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ...observe.log_filter import ABOUT
from ...transport.bounded_queue import WorkQueue
from ...wire import Notification
from ...wire.messages import size_of

__all__ = ["NotificationListener", "NotificationQueue"]

NotificationListener = Callable[[str, dict[str, Any]], Awaitable[None] | None]  # method, params

log = logging.getLogger("fairlead.client")


class NotificationQueue(WorkQueue[Notification | Awaitable[None]]):
    """A queue that keeps notifications until a listener is set, then passes each one to it
    immediately.

    A listener that is a coroutine function is awaited by the queue's task, one notification at a
    time. If a listener is too slow, the oldest notifications are dropped; `dropped` counts them.
    """

    def __init__(self, before: int = 100, behind: int = 1000) -> None:
        super().__init__(_size, before, QUEUED_NOTIFICATION_BYTES.value)
        self.paused = True  # True until a listener is set
        self._before = before
        self._behind = behind
        self._listener: NotificationListener | None = None

    @property
    def listener(self) -> NotificationListener | None:
        return self._listener

    @listener.setter
    def listener(self, listener: NotificationListener | None) -> None:
        self._listener = listener
        self.paused = listener is None
        self.max_items = self._before if listener is None else self._behind
        if self.items:
            self.start()

    def put(self, notification: Notification) -> None:
        listener = self._listener
        if listener is None or self.busy:
            self.enqueue(notification)
            return
        # If the queue is empty, the listener is called directly, which saves a task.
        pending = self._call(listener, notification)
        if pending is not None:
            self.enqueue(pending)

    def on_drop(self) -> None:
        QUEUED_NOTIFICATIONS.hit()

    async def handle(self, item: Notification | Awaitable[None]) -> None:
        assert self._listener is not None
        pending = self._call(self._listener, item) if isinstance(item, Notification) else item
        if pending is not None:
            try:
                await pending
            except Exception:
                log.exception("a notification listener failed")

    def _call(
        self, listener: NotificationListener, notification: Notification
    ) -> Awaitable[None] | None:
        params: dict[str, Any] = {}
        try:
            if not isinstance(notification.params, UnsetType):
                params = msgspec.json.decode(notification.params)
            return listener(notification.method, params)
        except Exception:
            about = {ABOUT: notification.params}
            log.exception("the listener for %s failed", notification.method, extra=about)
            return None


def _size(item: Notification | Awaitable[None]) -> int | None:
    return size_of(item) if isinstance(item, Notification) else None
