"""A clock that tests can advance, for tests with idle timeouts and real processes.

Import the fixture `virtual_time` from here; it replaces the one in `tests/conftest.py`.
"""

import asyncio
import os
import time
from collections.abc import Callable

import pytest

from tests.support.virtual_time import VirtualTime

__all__ = ["AdjustableClock", "virtual_time"]

STEP = 30.0  # seconds
PAUSE = 0.01  # real seconds to wait after each step, so that servers can answer pings


class AdjustableClock(VirtualTime):
    """The real clock plus the time by which a test has advanced it."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real = real
        self._forward = 0.0

    def __call__(self) -> float:
        return self._real() + self._forward

    async def advance(self, seconds: float) -> None:
        """Advance the clock and run the timers that are due.

        The clock moves in steps, so that periodic work runs about as often as in real time.
        """
        # On a busy machine, servers need longer to answer before their virtual timeout.
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        while seconds > 0:
            self._forward += min(seconds, STEP)
            seconds -= STEP
            await asyncio.sleep(PAUSE * busy)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop(self)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: AdjustableClock) -> None:
        self._adjustable = clock
        super().__init__()

    def time(self) -> float:
        return self._adjustable()


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> AdjustableClock:
    """Return the clock of the event loop and of `time.monotonic`."""
    clock = AdjustableClock(time.monotonic)
    monkeypatch.setattr("time.monotonic", clock)
    return clock
