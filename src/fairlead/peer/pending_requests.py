"""Outbound requests that wait for a response: each is settled exactly once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..wire import Notification

__all__ = ["CallbackPending", "OnProgress", "OnProgressNotification", "Pending"]

log = logging.getLogger("fairlead.peer")

# Called with progress, total and message of a notification. May be a coroutine function.
OnProgress = Callable[[float, float | None, str | None], Awaitable[None] | None]
# Called at once with the unchanged progress notification, for code that forwards it.
OnProgressNotification = Callable[[Notification], None]


class Pending(Struct):
    """An outbound request that waits for its outcome; progress is delivered before it."""

    method: str
    future: "asyncio.Future[Raw]"
    timeout: float
    gives_up_at: float  # progress restarts the timeout, but not beyond this time
    _on_progress: OnProgress | None
    _overhear: OnProgressNotification | None = None
    _said: list[dict[str, Any]] | None = None  # progress that waits for a slow callback
    _runner: "asyncio.Task[None] | None" = None

    def settle(self, result: Raw | Exception) -> None:
        """Settle the request. The first outcome wins; later ones are ignored."""
        # Progress that arrived before the result is delivered before it, also to a slow callback.
        if self._runner is not None and not self._runner.done():
            self._runner.add_done_callback(lambda _: self._settle(result))
        else:
            self._settle(result)

    def progressed(self, notification: Notification) -> None:
        """Pass a progress notification to the callback, in order, without waiting for it."""
        if self._overhear is not None:
            self._overhear(notification)
            return
        if self._on_progress is None or isinstance(notification.params, UnsetType):
            return
        try:
            params = msgspec.json.decode(notification.params, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            return
        if self._said is not None:
            self._said.append(params)
            # A callback that is slower than the peer misses the oldest notifications.
            del self._said[:-100]
            return
        waiting = self._call(params)
        if waiting is not None:
            self._said = []
            self._runner = asyncio.ensure_future(self._run(waiting))

    async def progress_delivered(self) -> None:
        """Wait until the callback has processed all progress received so far."""
        if self._runner is not None:
            await asyncio.wait((self._runner,))

    async def _run(self, waiting: Awaitable[None] | None) -> None:
        assert self._said is not None
        while True:
            if waiting is not None:
                try:
                    await waiting
                except Exception:
                    log.exception("the progress callback of %s failed", self.method)
            if not self._said:
                break
            waiting = self._call(self._said.pop(0))
        self._said = None

    def _call(self, params: dict[str, Any]) -> Awaitable[None] | None:
        assert self._on_progress is not None
        try:
            return self._on_progress(
                params.get("progress", 0), params.get("total"), params.get("message")
            )
        except Exception:
            log.exception("the progress callback of %s failed", self.method)
            return None

    def _settle(self, result: Raw | Exception) -> None:
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class CallbackPending(Struct):
    """A forwarded request whose outcome is passed to a callback at once."""

    method: str
    timeout: float
    gives_up_at: float
    settle: Callable[[Raw | Exception], None]  # called once by the owner of the `pending` table
    _overhear: OnProgressNotification | None

    def progressed(self, notification: Notification) -> None:
        if self._overhear is not None:
            self._overhear(notification)
