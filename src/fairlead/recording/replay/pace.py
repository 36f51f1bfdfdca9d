"""When a player goes on: as fast as it was, faster, at once, or when it is told to."""

import asyncio
from collections import deque

__all__ = ["Pace"]


class Pace:
    """The clock of a player. May be paused at any time."""

    def __init__(self, speed: float | None = None, *, stepped: bool = False) -> None:
        """`speed` 1 is the recorded one, 2 twice as fast; None: at once. `stepped`: each thing
        that the server does waits for `step`.

        Raises:
            ValueError: for a speed that is none.
        """
        if speed is not None and not 0 < speed < float("inf"):
            raise ValueError(f"a speed is above 0: {speed:g}")
        self._speed = speed
        self._stepped = stepped
        self._steps = 0  # that may be taken
        self._paused = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many things wait for their step, or for the end of a pause."""
        return sum(not each.done() for each in self._waiting)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        """Go on; what is stepped waits for its step."""
        self._paused = False
        self._release()

    def step(self, count: int = 1) -> None:
        """Let the server do the next things, also during a pause."""
        self._steps += count
        self._release()

    async def wait(self, seconds: float) -> None:
        """Wait as long as it took, in this pace."""
        if self._speed is not None and seconds > 0:
            await asyncio.sleep(seconds / self._speed)
        if not self._stepped and not self._paused:
            return
        if self._steps:
            self._steps -= 1
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        await mine

    def _release(self) -> None:
        while self._waiting:
            free = not self._stepped and not self._paused
            if not free and not self._steps:
                return
            first = self._waiting.popleft()
            if not first.done():
                self._steps -= not free
                first.set_result(None)
