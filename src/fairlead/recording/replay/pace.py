"""Pace of a replay: as recorded, faster, immediate or step by step."""

import asyncio
from collections import deque

__all__ = ["Pace"]


class Pace:
    """Pace at which recorded messages are played. It can be paused at any time."""

    def __init__(self, speed: float | None = None, *, stepped: bool = False) -> None:
        """Set the speed: 1 is the recorded speed, 2 is twice as fast, None means without waiting.

        If `stepped`, each message from the server waits for a call of `step`.

        Raises:
            ValueError: The speed is not a finite number greater than 0.
        """
        if speed is not None and not 0 < speed < float("inf"):
            raise ValueError(f"`speed` must be a finite number greater than 0, not {speed:g}")
        self._speed = speed
        self._stepped = stepped
        self._steps = 0  # number of messages that may be sent without another call of `step`
        self._paused = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Number of messages that wait for a step or for the end of a pause."""
        return sum(not each.done() for each in self._waiting)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        """End a pause. With `stepped`, messages still wait for `step`."""
        self._paused = False
        self._release()

    def step(self, count: int = 1) -> None:
        """Allow the server to send the next `count` messages, even during a pause."""
        self._steps += count
        self._release()

    async def wait(self, seconds: float) -> None:
        """Wait for a recorded duration at the current speed."""
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
