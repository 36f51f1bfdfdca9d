"""Tests of the timer that is set often and rarely expires."""

import asyncio

from fairlead.transport.lazy_timer import LazyTimer
from tests.support.virtual_time import VirtualTime

LIMIT = 10.0


class Bell:
    """Counts calls and lets a test wait for them."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rang = asyncio.Event()
        self.at = 0.0
        self.times = 0

    def ring(self) -> None:
        self.at = self.loop.time()
        self.times += 1
        self.rang.set()

    async def wait(self) -> float:
        async with asyncio.timeout(LIMIT):
            await self.rang.wait()
        self.rang.clear()
        return self.at


async def test_a_timer_expires_once_after_it_was_last_set() -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(0.05)
    timer.set(0.2)
    due = bell.loop.time() + 0.2
    assert await bell.wait() >= due - 0.01
    assert bell.times == 1
    assert not timer.is_set


async def test_a_shorter_time_replaces_a_longer_one() -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    start = bell.loop.time()
    timer.set(60)
    timer.set(0.02)
    assert await bell.wait() - start < 5


async def test_a_cleared_timer_does_not_expire_and_can_be_set_again() -> None:
    bell, other = Bell(), Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(0.02)
    timer.clear()
    assert not timer.is_set
    LazyTimer(other.loop, other.ring).set(0.1)
    await other.wait()
    assert bell.times == 0
    timer.set(0.02)
    await bell.wait()


async def test_a_stopped_timer_does_not_expire() -> None:
    bell, other = Bell(), Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(0.02)
    timer.stop()
    LazyTimer(other.loop, other.ring).set(0.1)
    await other.wait()
    assert bell.times == 0


async def test_the_last_setting_applies_whether_it_is_earlier_or_later(
    virtual_time: VirtualTime,
) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(60)
    timer.set(10)
    await asyncio.sleep(10.5)
    assert bell.times == 1
    timer.set(100)
    await asyncio.sleep(99.5)
    assert bell.times == 1
    await asyncio.sleep(1)
    assert bell.times == 2
    await asyncio.sleep(200)
    assert bell.times == 2


async def test_a_cleared_timer_that_is_set_again_expires_at_the_new_time(
    virtual_time: VirtualTime,
) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(5)
    timer.clear()
    await asyncio.sleep(6)
    assert (bell.times, timer.is_set) == (0, False)
    timer.set(5)
    assert timer.is_set
    due = virtual_time.now + 5
    await bell.wait()
    assert (bell.at, timer.is_set) == (due, False)


async def test_a_stopped_timer_is_not_referenced_by_the_loop(virtual_time: VirtualTime) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.stop()
    timer.set(5)
    handle = timer._handle
    assert handle is not None
    timer.stop()
    assert handle.cancelled()
    assert timer._handle is None
    assert not timer.is_set
    timer.set(3)
    await asyncio.sleep(10)
    assert (bell.times, bell.at) == (1, 1003.0)


async def test_a_handle_is_replaced_only_by_an_earlier_time(virtual_time: VirtualTime) -> None:
    bell = Bell()
    timer = LazyTimer(bell.loop, bell.ring)
    timer.set(5)
    first = timer._handle
    timer.set(5)
    timer.set(7)
    assert timer._handle is first
    timer.set(4)
    assert timer._handle is not first
    assert first is not None
    assert first.cancelled()
    timer.set(8)
    await asyncio.sleep(20)
    assert (bell.times, bell.at) == (1, 1008.0)
