"""Requests of ours that are under way: each is settled exactly once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from ..wire import Notification

__all__ = ["CallbackPending", "OnProgress", "OnProgressNotification", "Pending"]

log = logging.getLogger("fairlead.peer")

# Called with what the peer said: progress, total, message. May be a coroutine function.
OnProgress = Callable[[float, float | None, str | None], Awaitable[None] | None]
# The same for those who pass it on: the notification as it came, at once.
OnProgressNotification = Callable[[Notification], None]


class Pending:
    """One request that waits for its outcome; its progress is delivered before its result."""

    __slots__ = (
        "_on_progress",
        "_overhear",
        "_runner",
        "_said",
        "future",
        "gives_up_at",
        "method",
        "timeout",
    )

    def __init__(
        self,
        method: str,
        future: "asyncio.Future[Raw]",
        timeout: float,
        gives_up_at: float,
        on_progress: OnProgress | None,
        overhear: OnProgressNotification | None = None,
    ) -> None:
        self.method = method
        self.future = future
        self.timeout = timeout
        self.gives_up_at = gives_up_at  # progress restarts the clock, but not beyond this
        self._on_progress = on_progress
        self._overhear = overhear
        self._said: list[dict[str, Any]] | None = None  # not handed over yet, for slow callbacks
        self._runner: asyncio.Task[None] | None = None

    def settle(self, result: Raw | Exception) -> None:
        """The first outcome wins; whatever comes later is dropped."""
        if self._runner is not None and not self._runner.done():
            self._runner.add_done_callback(lambda _: self._settle(result))
        else:
            self._settle(result)

    def progressed(self, notification: Notification) -> None:
        """Hand a progress notification to the callback, in order, without waiting for it."""
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
            del self._said[:-100]  # a callback slower than the peer misses the oldest
            return
        waiting = self._call(params)
        if waiting is not None:
            self._said = []
            self._runner = asyncio.ensure_future(self._run(waiting))

    async def progress_delivered(self) -> None:
        """Wait until the callback has heard all progress that came."""
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


class CallbackPending:
    """A request that was passed on for somebody else: its outcome goes to a callback, at once."""

    __slots__ = ("_overhear", "gives_up_at", "method", "settle", "timeout")

    def __init__(
        self,
        method: str,
        timeout: float,
        gives_up_at: float,
        done: Callable[[Raw | Exception], None],
        overhear: OnProgressNotification | None,
    ) -> None:
        self.method = method
        self.timeout = timeout
        self.gives_up_at = gives_up_at
        self.settle = done  # whoever holds the table of what is under way calls it once
        self._overhear = overhear

    def progressed(self, notification: Notification) -> None:
        if self._overhear is not None:
            self._overhear(notification)
