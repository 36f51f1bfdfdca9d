"""A timer that is set for every request and hardly ever goes off.

Arming a timer of the loop and taking it back costs more than much else in a short call. So one that
is armed already stays, and when it goes off, it looks whether it was meant.
"""

import asyncio
from collections.abc import Callable

__all__ = ["LazyTimer"]


class LazyTimer:
    """Calls `act` so many seconds after it was last set, unless it was cleared."""

    __slots__ = ("_act", "_due", "_handle", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop = loop
        self._act = act
        self._due = 0.0  # on the loop's clock; 0 is never
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._due > 0.0

    def set(self, seconds: float) -> None:
        """Go off then, and no more when it was set for before."""
        due = self._due = self._loop.time() + seconds
        handle = self._handle
        if handle is None:
            self._handle = self._loop.call_at(due, self._fire)
        elif handle.when() > due:
            handle.cancel()
            self._handle = self._loop.call_at(due, self._fire)

    def clear(self) -> None:
        """Do not go off; nothing is left to be cancelled but a moment of its time."""
        self._due = 0.0

    def stop(self) -> None:
        """The owner is gone: let go of it at once."""
        self._due = 0.0
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        due = self._due
        if not due:
            return
        if due > self._loop.time() + 0.001:  # as fine as the clock of the loop
            self._handle = self._loop.call_at(due, self._fire)
        else:
            self._due = 0.0
            self._act()
