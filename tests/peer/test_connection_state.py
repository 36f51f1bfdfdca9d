"""Tests of the shared state of a connection before, during and after it is open."""

import asyncio

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.peer import Peer
from fairlead.peer.connection_state import ConnectionState
from fairlead.peer.inbound_in_flight import InFlight
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.envelope import Direction
from fairlead.protocol.identity.principal import ANONYMOUS
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


async def test_a_connection_is_open_from_begin_to_finish() -> None:
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


async def test_direction_of_inbound_messages_depends_on_the_role() -> None:
    assert state().direction is Direction.SERVER_TO_CLIENT
    assert state(ConversationRole.SERVER).direction is Direction.CLIENT_TO_SERVER


async def test_error_of_a_closed_connection_has_the_reason_of_its_end() -> None:
    line = state()
    error = line.not_connected_error()
    assert str(error) == "Transport not connected"
    assert error.delivered is False
    line.finish(END)
    error = line.not_connected_error()
    assert facts(error) == ("it crashed", False, 3, ("trace",), "crashed")
    assert str(error).startswith("Transport not connected")


async def test_sending_quietly_ignores_a_closed_channel() -> None:
    line = state()
    await line.channel.close()
    with pytest.raises(ChannelClosed):
        line.channel.send(Notification("notifications/x"))
    line.send_quietly(Notification("notifications/x"))


async def test_the_reason_for_the_end_of_a_connection_is_awaited_after_a_failed_write(
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


async def test_the_task_of_a_request_does_not_wait_for_the_owner(
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


async def test_sending_on_a_connection_that_was_not_started_fails() -> None:
    channel, _ = memory_pair()
    peer = Peer(channel, Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS))
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        await peer.request("x")
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        await peer.notify("notifications/x")
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        await peer.forward("x", lambda _: Raw(b"{}"))
    with pytest.raises(ChannelClosed, match="^Transport not connected$"):
        peer.outbound.forward_nowait("x", Raw(b"{}"), lambda _: None)
    assert not peer.connected
    await peer.close()
