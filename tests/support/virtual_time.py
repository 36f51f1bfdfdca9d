"""An event loop whose clock jumps to the next timer, so that tests of time limits need no real
time.

Request the fixture `virtual_time`. `asyncio` and `time.monotonic` follow the clock. Programs and
threads do not, so a test with virtual time must stay inside the event loop.
"""

import asyncio
import selectors
from collections.abc import Mapping

__all__ = ["VirtualTime"]

_REAL_WAIT = 5.0  # real seconds to wait for events from outside the loop if no timer is set


class VirtualTime:
    """A clock that stands still while tasks run, and jumps to the next timer when they wait."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return an event loop that uses this clock."""
        return _Loop(self)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualTime) -> None:
        self._virtual = clock
        super().__init__(_Selector(clock))

    def time(self) -> float:
        return self._virtual.now


class _Selector(selectors.BaseSelector):
    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock
        self._real = selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self._clock.now += timeout
            return []
        ready = self._real.select(_REAL_WAIT)
        if not ready:
            raise RuntimeError("every task is waiting and no timer is set")
        return ready

    def register(
        self,
        fileobj: int,
        events: int,
        data: object = None,  # type: ignore[override]
    ) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: int) -> selectors.SelectorKey:  # type: ignore[override]
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[int, selectors.SelectorKey]:  # type: ignore[override]
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()
