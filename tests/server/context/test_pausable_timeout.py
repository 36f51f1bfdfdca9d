"""Tests of timeouts that can be paused."""

import asyncio
from typing import Any

import pytest

from fairlead.peer import Deadlines
from fairlead.server.context.pausable_timeout import PausableTimeout
from tests.support.virtual_time import VirtualTime


class Clock:
    """A timeout of 5 seconds for the current task, and the times at which it expired."""

    def __init__(self, now: VirtualTime) -> None:
        self.deadlines: Deadlines[Any] = Deadlines(asyncio.get_running_loop())
        self.timeout = PausableTimeout()
        self.expired: list[float] = []
        self._now, self._begun = now, now.now

    def start(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.timeout.start(self.deadlines, task, 5, self._expire)

    def _expire(self, task: Any) -> None:
        assert task is not None
        self.expired.append(self._now.now - self._begun)


async def test_a_timeout_expires_only_once(virtual_time: VirtualTime) -> None:
    clock = Clock(virtual_time)
    clock.start()
    await asyncio.sleep(20)
    assert clock.expired == [5]


async def test_paused_time_does_not_count_towards_a_timeout(virtual_time: VirtualTime) -> None:
    clock = Clock(virtual_time)
    clock.start()
    await asyncio.sleep(2)
    clock.timeout.pause()
    await asyncio.sleep(10)
    clock.timeout.pause()
    await asyncio.sleep(10)
    clock.timeout.resume()
    await asyncio.sleep(10)
    clock.timeout.resume()
    await asyncio.sleep(1)
    clock.timeout.pause()
    await asyncio.sleep(10)
    clock.timeout.resume()
    await asyncio.sleep(100)
    assert clock.expired == [pytest.approx(45)]


async def test_a_timeout_paused_before_its_start_runs_after_resume(
    virtual_time: VirtualTime,
) -> None:
    clock = Clock(virtual_time)
    clock.timeout.pause()
    clock.start()
    await asyncio.sleep(10)
    clock.timeout.resume()
    await asyncio.sleep(100)
    assert clock.expired == [15]


async def test_a_timeout_without_time_left_expires_immediately(virtual_time: VirtualTime) -> None:
    clock = Clock(virtual_time)
    clock.start()
    await asyncio.sleep(2)
    clock.timeout.pause()
    clock.timeout._left = -1.0
    clock.timeout.resume()
    await asyncio.sleep(100)
    assert clock.expired == [2]


async def test_a_stopped_timeout_cannot_be_resumed(virtual_time: VirtualTime) -> None:
    clock = Clock(virtual_time)
    clock.timeout.stop()
    clock.start()
    clock.timeout.stop()
    assert len(clock.deadlines._due) == 0
    clock.timeout.pause()
    clock.timeout.resume()
    await asyncio.sleep(100)
    assert clock.expired == []
