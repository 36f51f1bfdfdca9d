"""Tests of many deadlines on one timer."""

import asyncio

import pytest

from fairlead.peer import Deadlines
from tests.support.virtual_time import VirtualTime


async def test_deadlines_expire_in_order_and_only_once(loop_kind: str) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines.add("late", 0.5, expired.put_nowait)
    deadlines.add("early", 0.02, expired.put_nowait)
    deadlines.add("done", 0.25, expired.put_nowait)
    deadlines.remove("done")
    deadlines.remove("never there")
    assert [await expired.get(), await expired.get()] == ["early", "late"]
    assert len(deadlines._due) == 0
    assert expired.empty()


async def test_a_deadline_that_is_added_again_restarts() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    started = loop.time()
    deadlines.add("x", 0.02, expired.put_nowait)
    deadlines.add("x", 0.2, expired.put_nowait)
    assert await expired.get() == "x"
    assert loop.time() - started > 0.15
    assert expired.empty()


async def test_no_deadline_expires_after_close() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[str] = asyncio.Queue()
    deadlines.add("x", 0.01, expired.put_nowait)
    deadlines.close()
    other = loop.create_future()
    loop.call_later(0.05, other.set_result, None)
    await other
    assert expired.empty()


async def test_deadlines_do_not_expire_while_paused() -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    expired: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
    started = loop.time()

    def note(key: str) -> None:
        expired.put_nowait((key, loop.time() - started))

    deadlines.add("before", 0.05, note)
    deadlines.pause()
    deadlines.pause()
    deadlines.add("during", 0.1, note)
    loop.call_later(0.2, deadlines.resume)
    loop.call_later(0.3, deadlines.resume)
    first, second = await expired.get(), await expired.get()
    assert (first[0], second[0]) == ("before", "during")
    assert first[1] >= 0.33
    assert second[1] >= 0.38


async def test_each_deadline_expires_at_its_own_time(virtual_time: VirtualTime) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    begun = loop.time()
    expired: list[tuple[str, float]] = []

    def note(key: str) -> None:
        expired.append((key, loop.time() - begun))

    deadlines.add("c", 3, note)
    deadlines.add("a", 1, note)
    deadlines.add("b", 2, note)
    deadlines.add("gone", 1.5, note)
    deadlines.remove("gone")
    deadlines.remove("gone")
    assert len(deadlines._due) == 3
    await asyncio.sleep(10)
    assert expired == [("a", 1.0), ("b", 2.0), ("c", 3.0)]
    assert len(deadlines._due) == 0


async def test_a_pause_shifts_all_deadlines(virtual_time: VirtualTime) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    begun = loop.time()
    expired: list[tuple[str, float]] = []

    def note(key: str) -> None:
        expired.append((key, loop.time() - begun))

    deadlines.add("a", 2, note)
    await asyncio.sleep(1)
    deadlines.pause()
    deadlines.pause()
    await asyncio.sleep(5)
    deadlines.add("b", 2, note)
    assert deadlines.resume() == 0.0
    await asyncio.sleep(5)
    assert deadlines.resume() == pytest.approx(10.0)
    await asyncio.sleep(20)
    assert expired == [("a", pytest.approx(12.0)), ("b", pytest.approx(13.0))]


async def test_closed_deadlines_never_expire(virtual_time: VirtualTime) -> None:
    deadlines: Deadlines[str] = Deadlines(asyncio.get_running_loop())
    expired: list[str] = []
    deadlines.add("a", 1, expired.append)
    timer = deadlines._timer
    assert timer is not None
    deadlines.close()
    deadlines.close()
    assert timer.cancelled()
    await asyncio.sleep(5)
    assert (expired, len(deadlines._due)) == ([], 0)
    assert deadlines._timer is None


async def test_one_timer_is_scheduled_for_the_earliest_deadline(virtual_time: VirtualTime) -> None:
    loop = asyncio.get_running_loop()
    deadlines: Deadlines[str] = Deadlines(loop)
    timers = []
    for key, seconds in (("a", 5), ("b", 7), ("c", 5), ("d", 3)):
        deadlines.add(key, seconds, lambda _: None)
        assert deadlines._timer is not None
        timers.append(deadlines._timer)
    assert timers[0] is timers[1] is timers[2] is not timers[3]
    assert timers[0].cancelled()
    assert timers[3].when() == loop.time() + 3
    deadlines.pause()
    assert timers[3].cancelled()
    assert deadlines._timer is None
    deadlines.resume()
    await asyncio.sleep(7)
    assert len(deadlines._due) == 0
    assert deadlines._timer is None
