"""Timeout of a call that is paused while the call waits for a user or a model."""

import asyncio
from collections.abc import Callable
from typing import Any

from ...peer import Deadlines

__all__ = ["PausableTimeout"]

_Task = asyncio.Task[Any]


class PausableTimeout:
    """Timeout that can be paused. Pauses may overlap."""

    __slots__ = ("_expire", "_left", "_paused", "_since", "_task", "_timer")

    def __init__(self) -> None:
        self._paused = 0
        self._left: float  # seconds that were left when the timer was last started
        self._since: float  # loop time at which the timer was last started
        self._task: _Task
        self._expire: Callable[[_Task], None]
        # None if the timeout is not started or was stopped
        self._timer: Deadlines[_Task] | None = None

    def start(
        self,
        timer: "Deadlines[_Task]",
        task: _Task,
        seconds: float,
        expire: Callable[[_Task], None],
    ) -> None:
        self._timer, self._task, self._left, self._expire = timer, task, seconds, expire
        if not self._paused:
            self._run(timer)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.remove(self._task)
        self._timer = None

    def pause(self) -> None:
        # A handler may await several requests for input at once, so pauses are counted.
        self._paused += 1
        if self._paused == 1 and self._timer is not None:
            self._timer.remove(self._task)
            self._left -= asyncio.get_running_loop().time() - self._since

    def resume(self) -> None:
        self._paused -= 1
        if not self._paused and self._timer is not None:
            self._run(self._timer)

    def _run(self, timer: "Deadlines[_Task]") -> None:
        self._since = asyncio.get_running_loop().time()
        timer.add(self._task, max(self._left, 0.0), self._expire)
