"""A timer that is set for every request and rarely expires.

Scheduling and cancelling a timer of the event loop costs more than most other steps of a short
call. A scheduled timer therefore stays scheduled when it is cleared, and checks on expiry whether
it is due.
"""

import asyncio
from collections.abc import Callable

__all__ = ["LazyTimer"]


class LazyTimer:
    """A timer that calls `act` a number of seconds after it was last set, unless it was cleared."""

    __slots__ = ("_act", "_due", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop = loop
        self._act = act
        self._due = 0.0  # on the loop's clock; 0 means not set
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._due > 0.0

    def set(self, seconds: float) -> None:
        """Set the timer to expire in `seconds`, instead of any earlier setting."""
        due = self._due = self._loop.time() + seconds
        handle = self._handle
        if handle is None:
            self._handle = self._loop.call_at(due, self._fire)
        # A handle that expires earlier stays: `_fire` reschedules it.
        elif handle.when() > due:
            handle.cancel()
            self._handle = self._loop.call_at(due, self._fire)

    def clear(self) -> None:
        """Clear the timer. The handle stays scheduled and does nothing when it expires."""
        self._due = 0.0

    def stop(self) -> None:
        """Cancel the handle, so that the loop no longer references the owner."""
        self._due = 0.0
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        due = self._due
        if not due:
            return
        if due > self._loop.time() + 0.001:  # the resolution of the loop's clock
            self._handle = self._loop.call_at(due, self._fire)
        else:
            self._due = 0.0
            self._act()
