"""Limit on the number of child processes that start at once, and pauses while this machine lacks
resources.
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import IntEnum

from ...errors import LocalResourceError
from ...transport.backoff import Backoff

__all__ = ["LocalShortage", "StartLimiter", "StartPriority"]

# seconds of the first and the longest pause before servers are started again
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
# seconds without a report, after which a shortage counts as over
FORGOTTEN_AFTER = 2 * LONGEST_PAUSE

log = logging.getLogger("fairlead.upstream")


class LocalShortage:
    """The current shortage of this machine, shared by all servers of a program."""

    def __init__(self) -> None:
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._error: LocalResourceError | None = None
        self._since = 0.0
        self._reported = 0.0
        self._not_before = 0.0

    @property
    def error(self) -> LocalResourceError | None:
        """The last reported shortage, or None if it is over."""
        if self._error is not None and time.monotonic() - self._reported > FORGOTTEN_AFTER:
            self.clear()
        return self._error

    @property
    def seconds(self) -> float:
        """Duration of the current shortage; 0.0 without a shortage."""
        return 0.0 if self.error is None else time.monotonic() - self._since

    def report(self, error: LocalResourceError) -> None:
        """Record that a connection could not be opened because of a shortage."""
        now = time.monotonic()
        if self.error is None:
            self._since = now
            log.warning("this machine is out of %s; starts are delayed", error.resource)
        self._error, self._reported = error, now
        # Several servers may report the same shortage, but only one report lengthens the delay.
        if now >= self._not_before:
            self._not_before = now + self._backoff.next()

    def clear(self) -> None:
        """End the shortage, because a connection was opened."""
        if self._error is None:
            return
        log.warning("this machine has enough %s again", self._error.resource)
        self._error, self._not_before = None, 0.0
        self._backoff.reset()

    async def wait(self) -> None:
        """Wait until servers may be started again."""
        left = self._not_before - time.monotonic()
        if self._error is not None and left > 0:
            await asyncio.sleep(left)


PATIENCE = 1.5  # seconds after which a server that has not responded releases its slot


class StartPriority(IntEnum):
    """Priority of the start of a process; lower values start first."""

    CALL = 0  # a client or an agent waits for the server
    RECONNECT = 1
    START_UP = 2
    COMPARISON = 3  # only lists are read, which no client waits for


class StartLimiter:
    """Limit of two concurrent starts per core, because more starts would slow each other down.

    A slot is released at the first response of its server, or after 1.5 seconds.
    """

    def __init__(self, count: int | None = None) -> None:
        self._free = count or 2 * (os.cpu_count() or 1)
        self._waiting: dict[asyncio.Future[None], Callable[[], StartPriority]] = {}  # in order
        self.shortage = LocalShortage()  # delays all starts while it lasts

    @asynccontextmanager
    async def starting(
        self,
        priority: Callable[[], StartPriority] = lambda: StartPriority.CALL,
        *,
        is_process: bool = True,
    ) -> AsyncIterator[None]:
        """Hold a slot during a start; the block ends with the first response.

        `priority` is called whenever a slot is released, because a call for a waiting server raises
        its priority. Connections to servers that are not processes need no slot, but they also wait
        for the end of a shortage.
        """
        await self.shortage.wait()
        if not is_process:
            yield
            return
        await self._acquire(priority)
        held = True

        def release() -> None:
            nonlocal held
            # Both the timer and the end of the block call this function.
            if held:
                held = False
                self._release()

        timer = asyncio.get_running_loop().call_later(PATIENCE, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    async def wait_for_others(self) -> None:
        """Wait until no other start waits for a slot, before a start that no client waits for."""
        async with self.starting(lambda: StartPriority.COMPARISON):
            pass

    async def _acquire(self, priority: Callable[[], StartPriority]) -> None:
        # A new start must not overtake waiting starts.
        if self._free and not self._waiting:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = priority
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None and not turn.cancelled():
                # The slot was granted in the same loop iteration as the cancellation.
                self._release()
            raise

    def _release(self) -> None:
        self._free += 1
        while self._free and self._waiting:
            # `min` returns the first of equal values, so equal priorities start in order.
            turn = min(self._waiting, key=lambda one: self._waiting[one]())
            del self._waiting[turn]
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
