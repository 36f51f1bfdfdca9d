"""Notifications on their way to whoever listens, in order, without the reader waiting for them."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UnsetType

from ..limits import QUEUED_NOTIFICATION_BYTES, QUEUED_NOTIFICATIONS
from ..observe.logs import ABOUT
from ..wire import Notification
from ..wire.messages import size_of

__all__ = ["Listener", "Mailbox"]

Listener = Callable[[str, dict[str, Any]], Awaitable[None] | None]  # method, params

log = logging.getLogger("fairlead.client")


class Mailbox:
    """Keeps the last notifications until somebody listens, then hands over each as it comes.

    A listener that is a coroutine function is awaited, one notification at a time, by a task of
    its own. One that cannot keep up misses the oldest; `dropped` counts them.
    """

    def __init__(self, before: int = 100, behind: int = 1000) -> None:
        self.dropped = 0
        self._before = before
        self._behind = behind
        self._waiting: deque[Notification] = deque()
        self._size = 0  # of those, in bytes
        self._listener: Listener | None = None
        self._runner: asyncio.Task[None] | None = None

    @property
    def listener(self) -> Listener | None:
        return self._listener

    @listener.setter
    def listener(self, listener: Listener | None) -> None:
        self._listener = listener
        if listener is not None and self._waiting:
            self._drain()

    def put(self, notification: Notification) -> None:
        listener = self._listener
        if listener is None or self._runner is not None or self._waiting:
            self._waiting.append(notification)
            self._size += size_of(notification)
            most = self._before if listener is None else self._behind
            while len(self._waiting) > most or (
                self._size > QUEUED_NOTIFICATION_BYTES.value and len(self._waiting) > 1
            ):
                self._size -= size_of(self._waiting.popleft())
                self.dropped += 1
                QUEUED_NOTIFICATIONS.hit()
            return
        pending = self._call(listener, notification)
        if pending is not None:
            self._runner = asyncio.ensure_future(self._run(pending))

    def close(self) -> None:
        """Nobody listens any more."""
        self._waiting.clear()
        self._size = 0
        if self._runner is not None and self._runner is not asyncio.current_task():
            self._runner.cancel()

    def _drain(self) -> None:
        if self._runner is None:
            self._runner = asyncio.ensure_future(self._run(None))

    async def _run(self, pending: Awaitable[None] | None) -> None:
        try:
            while True:
                if pending is not None:
                    try:
                        await pending
                    except Exception:
                        log.exception("a notification listener failed")
                if not self._waiting or self._listener is None:
                    return
                following = self._waiting.popleft()
                self._size -= size_of(following)
                pending = self._call(self._listener, following)
        finally:
            self._runner = None

    def _call(self, listener: Listener, notification: Notification) -> Awaitable[None] | None:
        params: dict[str, Any] = {}
        try:
            if not isinstance(notification.params, UnsetType):
                params = msgspec.json.decode(notification.params)
            return listener(notification.method, params)
        except Exception:
            about = {ABOUT: notification.params}
            log.exception("the listener for %s failed", notification.method, extra=about)
            return None
