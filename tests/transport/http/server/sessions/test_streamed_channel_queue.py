"""Delivery and draining of the server's channels over HTTP."""

import asyncio

import pytest

from fairlead.errors import ChannelClosed
from fairlead.limits import MESSAGES_PER_TURN
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.envelope import TransportContext
from fairlead.transport.channel import Incoming
from fairlead.transport.http.server.sessions.streamed_channel import StreamedChannel
from fairlead.wire import Notification

MOST = MESSAGES_PER_TURN.value


class Channel(StreamedChannel):
    """A channel whose congestion the test controls."""

    full = False

    @property
    def congested(self) -> bool:
        return self.full

    def relieve(self) -> None:
        self.full = False
        self._drained.wake()

    def end(self) -> None:
        self._end()


def note(number: int) -> Notification:
    return Notification(f"notifications/{number}")


def channel() -> Channel:
    return Channel(TransportContext(transport_type="http"))


async def test_messages_received_before_run_are_delivered_first_and_once() -> None:
    one, heard = channel(), list[Incoming]()
    one.hand_over(note(1))
    one.hand_over(note(2))
    assert heard == []
    running = asyncio.create_task(one.run(heard.append))
    await asyncio.sleep(0)
    one.hand_over(note(3))
    assert heard == [note(1), note(2), note(3)]
    assert one._early == []
    assert not one.over
    one.end()
    one.end()
    await running
    assert one.over


@pytest.mark.parametrize(
    ("count", "turns"), [(0, 0), (1, 0), (MOST, 0), (MOST + 1, 1), (2 * MOST, 1), (2 * MOST + 1, 2)]
)
async def test_a_large_batch_yields_to_other_tasks(count: int, turns: int) -> None:
    one, heard, other = channel(), list[Incoming](), list[int]()
    running = asyncio.create_task(one.run(heard.append))
    await asyncio.sleep(0)
    hits, loop = MESSAGES_PER_TURN.hits, asyncio.get_running_loop()

    def turn() -> None:
        other.append(len(heard))
        if len(other) < 10:
            loop.call_soon(turn)

    loop.call_soon(turn)
    await one.take_all([note(number) for number in range(count)], ANONYMOUS)
    assert heard == [note(number) for number in range(count)]
    assert other == [MOST * (number + 1) for number in range(turns)]
    assert MESSAGES_PER_TURN.hits == hits + turns
    one.end()
    await running


async def test_drain_waits_while_the_channel_is_congested() -> None:
    one = channel()
    await one.drain()
    one.relieve()
    one.full = True
    waiting = [asyncio.create_task(one.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    one._drained.wake()  # wakes the senders although the channel is still congested
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    one.relieve()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)


async def test_drain_raises_when_the_channel_ends() -> None:
    one = channel()
    one.full = True
    waiting = asyncio.create_task(one.drain())
    await asyncio.sleep(0)
    one.end()
    with pytest.raises(ChannelClosed):
        async with asyncio.timeout(5):
            await waiting
    one.full = False
    with pytest.raises(ChannelClosed):
        await one.drain()
