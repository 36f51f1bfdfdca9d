"""Shortages of resources on this machine, which delay all starts and blame no server."""

import asyncio
import logging
import time

from ...errors import LocalResourceError
from ...transport.backoff import Backoff

__all__ = ["LocalShortage"]

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before servers are started again
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
        # Several servers report the same shortage, which lengthens the delay only once.
        if now >= self._not_before:
            self._not_before = now + self._backoff.next()

    def clear(self) -> None:
        """Record that a connection was opened, which ends a shortage."""
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
