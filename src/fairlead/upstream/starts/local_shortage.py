"""A shortage of this machine: all starts pause, no server is blamed, and it ends by itself."""

import asyncio
import logging
import time

from ...errors import LocalResourceError
from ...transport.backoff import Backoff

__all__ = ["LocalShortage"]

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds until servers are started again
FORGOTTEN_AFTER = 2 * LONGEST_PAUSE  # seconds without another report; then it counts as over

log = logging.getLogger("fairlead.upstream")


class LocalShortage:
    """What this machine lacks at the moment, shared by all servers of a program."""

    def __init__(self) -> None:
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._error: LocalResourceError | None = None
        self._since = 0.0
        self._reported = 0.0
        self._not_before = 0.0

    @property
    def error(self) -> LocalResourceError | None:
        """The last report, while the shortage lasts."""
        if self._error is not None and time.monotonic() - self._reported > FORGOTTEN_AFTER:
            self.clear()
        return self._error

    @property
    def seconds(self) -> float:
        """How long it has lasted; 0.0 if there is none."""
        return 0.0 if self.error is None else time.monotonic() - self._since

    def report(self, error: LocalResourceError) -> None:
        """Note that a connection could not be opened because of it."""
        now = time.monotonic()
        if self.error is None:
            self._since = now
            log.warning("This machine is out of %s; servers are started later", error.resource)
        self._error, self._reported = error, now
        if now >= self._not_before:  # several servers report the same shortage
            self._not_before = now + self._backoff.next()

    def clear(self) -> None:
        """Note that a connection was opened, so that there is enough again."""
        if self._error is None:
            return
        log.warning("This machine has enough %s again", self._error.resource)
        self._error, self._not_before = None, 0.0
        self._backoff.reset()

    async def wait(self) -> None:
        """Wait until servers may be started again."""
        left = self._not_before - time.monotonic()
        if self._error is not None and left > 0:
            await asyncio.sleep(left)
