"""Exclusive use of a connection, in order."""

import asyncio

import pytest

from fairlead.upstream.connection.turn_lock import TurnLock, first_turn
from tests.support.virtual_time import VirtualTime


async def test_one_owner_holds_the_lock_at_a_time_in_order_of_arrival() -> None:
    turns = TurnLock()
    assert turns.free
    first = await turns.take("a", 1.0)
    assert not turns.free
    assert turns.try_take("b") is None
    second = asyncio.create_task(turns.take("b", 5.0))
    third = asyncio.create_task(turns.take("c", 5.0))
    await asyncio.sleep(0)
    assert len(turns._waiting) == 2
    first.release()
    first.release()  # releasing twice is harmless
    turn = await second
    await asyncio.sleep(0)
    assert not third.done()
    assert (len(turns._waiting), turns.free) == (1, False)
    turn.release()
    (await third).release()
    assert turns.free


async def test_an_owner_may_hold_several_turns_unless_others_wait() -> None:
    turns = TurnLock()
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


async def test_waiting_for_a_turn_times_out() -> None:
    turns = TurnLock()
    held = await turns.take("a", 1.0)
    with pytest.raises(TimeoutError):
        await turns.take("b", 0.01)
    assert len(turns._waiting) == 0
    held.release()
    assert turns.free


async def test_a_turn_granted_during_a_cancellation_goes_to_the_next_owner() -> None:
    turns = TurnLock()
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


async def test_only_the_first_free_turn_of_several_locks_is_taken(
    virtual_time: VirtualTime,
) -> None:
    locks = [TurnLock() for _ in range(3)]
    busy = [lock.try_take("other") for lock in locks]
    waiting = asyncio.create_task(first_turn(locks, "me", 5.0))
    await asyncio.sleep(1)
    for held in busy[1:]:
        assert held is not None
        held.release()
    place, turn = await waiting
    assert place in (1, 2)
    assert sum(lock.free for lock in locks) == 1  # the other turn was released
    turn.release()
    assert [lock.free for lock in locks] == [False, True, True]
    for lock in locks[1:]:
        lock.try_take("other")
    began = virtual_time.now
    with pytest.raises(TimeoutError):
        await first_turn(locks, "me", 5.0)
    assert virtual_time.now == began + 5.0
    assert [len(lock._waiting) for lock in locks] == [0, 0, 0]


async def test_a_free_lock_is_taken_without_waiting() -> None:
    locks = [TurnLock() for _ in range(3)]
    held = locks[0].try_take("other")
    place, turn = await first_turn(locks, "me", 5.0)
    assert (place, [lock.free for lock in locks]) == (1, [False, False, True])
    turn.release()
    assert held is not None
    held.release()
    assert all(lock.free for lock in locks)
