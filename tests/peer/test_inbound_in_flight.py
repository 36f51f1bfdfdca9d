"""Tests of the requests of the peer in progress."""

import asyncio

import pytest

from fairlead.peer.inbound_in_flight import InFlight
from tests.support.virtual_time import VirtualTime


class Delegated:
    def cancel(self, reason: str) -> None:
        raise AssertionError(reason)


async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


@pytest.mark.parametrize(
    ("running", "leaving", "taken", "full"),
    [(0, 0, 0, False), (1, 1, 0, False), (1, 1, 1, True), (3, 0, 0, True), (0, 3, 0, True),
     (0, 0, 3, True), (2, 0, 0, False), (4, 0, 0, True)],
)  # fmt: skip
async def test_all_requests_in_progress_count_towards_the_limit(
    running: int, leaving: int, taken: int, full: bool
) -> None:
    work = InFlight(3)
    tasks = [asyncio.create_task(wait(0)) for _ in range(running + leaving)]
    work.running.update(enumerate(tasks[:running]))
    work.leaving.update(tasks[running:])
    work.taken.update({-number: Delegated() for number in range(taken)})
    assert work.is_full is full
    assert work.everything() == {*tasks, *work.taken.values()}
    assert all(work.has_task(task) for task in tasks)
    assert not work.has_task(asyncio.current_task())
    assert not work.has_task(None)
    await asyncio.gather(*tasks)


async def test_all_tasks_except_the_current_one_are_cancelled_once() -> None:
    work = InFlight(3)
    running, leaving = (asyncio.create_task(wait(60)) for _ in range(2))
    current = asyncio.current_task()
    assert current is not None
    work.running.update({1: running, 2: current})
    work.leaving.add(leaving)
    leaving.cancel()
    work.cancel_tasks(current)
    assert [task.cancelling() for task in (running, leaving, current)] == [1, 1, 0]
    await asyncio.wait((running, leaving))


@pytest.mark.parametrize(
    ("running", "leaving", "expected"),
    [([], [], 0), ([1], [], 1), ([], [2], 2), ([1, 2], [3], 3), ([4], [], 4), ([5], [], 4)],
)
async def test_finishing_waits_for_running_tasks_for_a_limited_time(
    virtual_time: VirtualTime, running: list[float], leaving: list[float], expected: float
) -> None:
    work, begun = InFlight(9), virtual_time.now
    work.running.update(enumerate(asyncio.create_task(wait(one)) for one in running))
    work.leaving.update(asyncio.create_task(wait(one)) for one in leaving)
    await work.finish(4)
    assert virtual_time.now - begun == expected
    await asyncio.sleep(5)


@pytest.mark.parametrize(("seconds", "expected"), [(3, 3), (5, 4)])
async def test_finishing_waits_for_delegated_requests(
    virtual_time: VirtualTime, seconds: float, expected: float
) -> None:
    work, begun = InFlight(9), virtual_time.now
    work.taken.update({1: Delegated(), 2: Delegated()})

    def answered(number: int) -> None:
        del work.taken[number]
        work.notify_idle_waiter()

    loop = asyncio.get_running_loop()
    loop.call_later(1, answered, 1)
    loop.call_later(seconds, answered, 2)
    await work.finish(4)
    assert virtual_time.now - begun == expected
    await asyncio.sleep(5)


async def test_idle_waiter_is_woken_after_the_last_delegated_request() -> None:
    work = InFlight(1)
    work.notify_idle_waiter()
    work.awaited = asyncio.get_running_loop().create_future()
    work.taken[1] = Delegated()
    work.notify_idle_waiter()
    assert not work.awaited.done()
    work.taken.clear()
    work.notify_idle_waiter()
    assert work.awaited.done()
    work.notify_idle_waiter()


async def test_a_long_lived_request_is_forgotten_when_it_ends() -> None:
    work = InFlight(1)
    task = asyncio.create_task(wait(0))
    work.running[1] = task
    work.mark_long_lived(task)
    assert not work.is_full
    assert work.lasting == {task}
    await task
    await asyncio.sleep(0)
    assert work.lasting == set()
