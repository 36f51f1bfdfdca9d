"""Tests of senders that wait until a channel accepts more data."""

import asyncio

import pytest

from fairlead.transport.drain_waiter import DrainWaiter


async def test_one_drain_event_wakes_all_waiting_tasks() -> None:
    waiter = DrainWaiter()
    tasks = [asyncio.create_task(waiter.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiter.wake()
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)


async def test_a_cancelled_task_leaves_other_tasks_waiting() -> None:
    waiter = DrainWaiter()
    first, second = (asyncio.create_task(waiter.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    waiter.wake()
    async with asyncio.timeout(5):
        await second


async def test_a_drain_event_before_the_wait_is_ignored() -> None:
    waiter = DrainWaiter()
    waiter.wake()
    task = asyncio.create_task(waiter.wait())
    await asyncio.sleep(0)
    assert not task.done()
    waiter.wake()
    async with asyncio.timeout(5):
        await task
