"""Tests of the shared state of a connection before, during and after it is open."""

import asyncio

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.peer import Peer
from fairlead.peer.connection_state import ConnectionState, InFlight
from fairlead.peer.inbound_requests import is_full
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.envelope import Direction
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification
from tests.support.virtual_time import VirtualTime

END = ChannelClosed("it crashed", exit_code=3, stderr=("trace",), public="crashed", delivered=True)


def state(role: ConversationRole = ConversationRole.CLIENT) -> ConnectionState:
    channel, _ = memory_pair()
    return ConnectionState(channel, Conversation(role, principal=ANONYMOUS), InFlight(2))


def facts(error: ChannelClosed) -> tuple[object, ...]:
    return error.reason, error.delivered, error.exit_code, error.stderr, error.public


async def owner() -> None:
    await asyncio.Event().wait()


async def test_a_connection_is_open_between_begin_and_finish() -> None:
    line = state()
    task = asyncio.create_task(owner())
    assert not line.open
    line.begin(task)
    assert line.open
    assert line.owner is task
    line.finish(END)
    assert not line.open
    line.begin(task)
    assert not line.open
    task.cancel()


async def test_the_direction_of_inbound_messages_depends_on_the_role() -> None:
    assert state().direction is Direction.SERVER_TO_CLIENT
    assert state(ConversationRole.SERVER).direction is Direction.CLIENT_TO_SERVER


async def test_the_error_for_a_closed_connection_contains_the_reason() -> None:
    line = state()
    error = line.not_connected_error()
    assert str(error) == "Transport not connected"
    assert error.delivered is False
    line.finish(END)
    error = line.not_connected_error()
    assert facts(error) == ("it crashed", False, 3, ("trace",), "crashed")
    assert str(error).startswith("Transport not connected")


async def test_sending_quietly_on_a_closed_channel_raises_no_error() -> None:
    line = state()
    await line.channel.close()
    with pytest.raises(ChannelClosed):
        line.channel.send(Notification("notifications/x"))
    line.send_quietly(Notification("notifications/x"))


async def test_after_a_failed_write_the_reason_for_the_end_of_the_connection_is_awaited(
    virtual_time: VirtualTime,
) -> None:
    line, broken = state(), ChannelClosed("broken pipe")
    assert await line.wait_for_close_reason(broken) is broken
    task = asyncio.create_task(owner())
    line.begin(task)
    begun = virtual_time.now
    assert await line.wait_for_close_reason(broken) is broken
    assert virtual_time.now - begun == pytest.approx(1.5)
    asyncio.get_running_loop().call_later(1, line.finish, END)
    asyncio.get_running_loop().call_later(1, task.cancel)
    assert facts(await line.wait_for_close_reason(broken))[0] == "it crashed"
    assert virtual_time.now - begun == pytest.approx(2.5)


async def test_the_task_of_a_request_does_not_wait_for_the_owner_task_of_the_connection(
    virtual_time: VirtualTime,
) -> None:
    line, broken = state(), ChannelClosed("broken pipe")
    task, begun = asyncio.create_task(owner()), virtual_time.now
    line.begin(task)
    current = asyncio.current_task()
    assert current is not None
    line.work.running[1] = current
    assert await line.wait_for_close_reason(broken) is broken
    assert virtual_time.now == begun
    task.cancel()


async def test_sending_fails_if_the_connection_was_not_started() -> None:
    channel, _ = memory_pair()
    peer = Peer(channel, Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS))
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        await peer.request("x")
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        await peer.notify("notifications/x")
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        await peer.outbound.forward("x", lambda _: Raw(b"{}"))
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        peer.outbound.forward_nowait("x", Raw(b"{}"), lambda _: None)
    assert not peer.connected
    await peer.close()


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
async def test_delegated_and_running_requests_count_towards_the_limit(
    running: int, leaving: int, taken: int, full: bool
) -> None:
    work = InFlight(3)
    tasks = [asyncio.create_task(wait(0)) for _ in range(running + leaving)]
    work.running.update(enumerate(tasks[:running]))
    work.leaving.update(tasks[running:])
    work.taken.update({-number: Delegated() for number in range(taken)})
    assert is_full(work) is full
    assert work.everything() == {*tasks, *work.taken.values()}
    assert all(work.has_task(task) for task in tasks)
    assert not work.has_task(asyncio.current_task())
    assert not work.has_task(None)
    await asyncio.gather(*tasks)


async def test_cancelling_tasks_skips_the_current_task() -> None:
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


async def test_the_idle_waiter_is_woken_after_the_last_delegated_request() -> None:
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


async def test_a_long_lived_request_is_removed_when_it_ends() -> None:
    work = InFlight(1)
    task = asyncio.create_task(wait(0))
    work.running[1] = task
    work.mark_long_lived(task)
    assert not is_full(work)
    assert work.lasting == {task}
    await task
    await asyncio.sleep(0)
    assert work.lasting == set()
