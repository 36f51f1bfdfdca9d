"""Tests of channel pairs that are connected in memory."""

import asyncio

import pytest

from fairlead.errors import ChannelClosed
from fairlead.transport.channel import Incoming
from fairlead.transport.line_channel import HIGH_WATER, LineChannel
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification


class End:
    """One end of a channel pair, run until it is closed."""

    def __init__(self, channel: LineChannel) -> None:
        self.channel = channel
        self.heard: list[Incoming] = []
        self.running: asyncio.Task[None] | None = None

    def run(self) -> None:
        self.running = asyncio.ensure_future(self.channel.run(self.heard.append))

    def methods(self) -> list[str]:
        return [one.method for one in self.heard if isinstance(one, Notification)]


async def turns() -> None:
    """Run all callbacks that are due."""
    for _ in range(10):
        await asyncio.sleep(0)


async def closed(*ends: End) -> None:
    for end in ends:
        await end.channel.close()
    for end in ends:
        if end.running is not None:
            await asyncio.gather(end.running, return_exceptions=True)


async def test_messages_are_delivered_to_the_other_end_in_order() -> None:
    left, right = map(End, memory_pair())
    left.channel.send(Notification("a"))
    left.channel.send(Notification("b"))
    right.run()
    left.run()
    await turns()
    right.channel.send(Notification("c"))
    await turns()
    assert (right.methods(), left.methods()) == (["a", "b"], ["c"])
    assert left.channel.context.transport_type == "memory"
    await closed(left, right)


async def test_messages_sent_before_closing_are_delivered() -> None:
    left, right = map(End, memory_pair())
    left.run()
    right.run()
    await turns()
    left.channel.send(Notification("last"))
    await left.channel.close()
    await turns()
    assert right.methods() == ["last"]
    assert right.running is not None
    await right.running
    with pytest.raises(ChannelClosed):
        left.channel.send(Notification("more"))
    await closed(left, right)


async def test_a_channel_is_congested_while_the_other_end_is_not_run() -> None:
    left, right = map(End, memory_pair())
    left.run()
    await turns()
    left.channel.send(Notification("x" * (HIGH_WATER + 1)))
    await turns()
    assert left.channel.congested
    right.run()
    await left.channel.drain()
    assert not left.channel.congested
    await turns()
    assert len(right.heard) == 1
    await closed(left, right)


async def test_a_message_over_the_limit_is_reported_as_too_long() -> None:
    left, right = map(End, memory_pair(limit=100))
    right.run()
    left.channel.send(Notification("y" * 200))
    left.channel.send(Notification("z"))
    await turns()
    assert right.methods() == ["z"]
    assert len(right.heard) == 2
    await closed(left, right)


async def test_aborting_a_channel_drops_queued_messages() -> None:
    left, right = map(End, memory_pair())
    left.run()
    await turns()
    left.channel.send(Notification("lost"))
    sink = left.channel._sink
    assert sink is not None
    assert sink.get_write_buffer_size() > 0
    sink.abort()
    assert sink.get_write_buffer_size() == 0
    right.run()
    async with asyncio.timeout(5):
        assert right.running is not None
        await right.running
    assert right.heard == []
    await closed(left, right)


async def test_the_write_buffer_size_is_the_number_of_queued_bytes() -> None:
    left, right = map(End, memory_pair())
    sink = left.channel._sink
    assert sink is not None
    for _ in range(2):
        left.channel.write(b"12345\n")
    assert sink.get_write_buffer_size() == 12
    right.run()
    await turns()
    assert sink.get_write_buffer_size() == 0
    left.channel.write(b"x" * (HIGH_WATER - 1) + b"\n")
    assert not left.channel.congested
    left.channel.write(b"x")
    assert left.channel.congested
    await closed(left, right)
