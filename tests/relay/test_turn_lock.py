"""Exclusive use of a connection, in order."""

import asyncio

import pytest

from fairlead.relay.turn_lock import Turns


async def test_one_owner_at_a_time_in_the_order_they_came() -> None:
    turns = Turns()
    assert turns.free
    first = await turns.take("a", 1.0)
    assert not turns.free
    assert turns.try_take("b") is None
    second = asyncio.create_task(turns.take("b", 5.0))
    third = asyncio.create_task(turns.take("c", 5.0))
    await asyncio.sleep(0)
    assert turns.waiting == 2
    first.release()
    first.release()  # a second time is harmless
    turn = await second
    await asyncio.sleep(0)
    assert not third.done()
    assert (turns.waiting, turns.free) == (1, False)
    turn.release()
    (await third).release()
    assert turns.free


async def test_an_owner_takes_several_turns_unless_others_wait() -> None:
    turns = Turns()
    held = [await turns.take("a", 1.0), await turns.take("a", 1.0)]
    other = asyncio.create_task(turns.take("b", 5.0))
    await asyncio.sleep(0)
    assert turns.try_take("a") is None
    urgent = turns.try_take("a", urgent=True)
    assert urgent is not None
    assert turns.try_take("c", urgent=True) is None
    patient = asyncio.create_task(turns.take("a", 5.0))
    at_once = await turns.take("a", 5.0, urgent=True)
    await asyncio.sleep(0)
    for turn in (*held, urgent, at_once):
        assert not other.done()
        turn.release()
    turn = await other
    assert not patient.done()
    turn.release()
    (await patient).release()
    assert turns.free


async def test_a_turn_that_does_not_come_in_time_is_not_waited_for() -> None:
    turns = Turns()
    held = await turns.take("a", 1.0)
    with pytest.raises(TimeoutError):
        await turns.take("b", 0.01)
    assert turns.waiting == 0
    held.release()
    assert turns.free


async def test_a_turn_that_comes_together_with_a_cancellation_is_passed_on() -> None:
    turns = Turns()
    held = await turns.take("a", 1.0)
    cancelled = asyncio.create_task(turns.take("b", 0))
    after = asyncio.create_task(turns.take("c", 5.0))
    await asyncio.sleep(0)
    held.release()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    (await after).release()
    assert turns.free
