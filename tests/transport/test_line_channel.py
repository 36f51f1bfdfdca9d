"""A channel of lines between a source and a sink."""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.protocol.envelope import TransportContext
from fairlead.transport import line_channel as lines
from fairlead.transport.line_channel import LineChannel, ReadPipeProtocol, WritePipeProtocol
from fairlead.wire import Notification, Success


class Ends:
    """A source and a sink in one, which note what they are told."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.queued = 0
        self.reading = False
        self.told: list[str] = []

    def pause_reading(self) -> None:
        self.reading = False
        self.told.append("pause")

    def resume_reading(self) -> None:
        self.reading = True
        self.told.append("resume")

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.queued

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")


async def channel_with(fd: int | None = None) -> tuple[LineChannel, Ends]:
    channel, ends = LineChannel(TransportContext(transport_type="memory")), Ends()
    channel.attach(ends, ends, fd)
    assert ends.told == ["pause"]  # until somebody listens
    ends.told.clear()
    return channel, ends


NOTE = Notification("n")
LINE = b'{"jsonrpc":"2.0","method":"n"}\n'


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    os.set_blocking(theirs, False)
    yield theirs, ours
    os.close(theirs)
    os.close(ours)


async def test_what_arrives_before_anybody_listens_is_delivered_first() -> None:
    channel, ends = await channel_with()
    channel.received(LINE[:10])
    channel.received(LINE[10:] + LINE[:5])
    got: list[Any] = []
    running = asyncio.create_task(channel.run(got.append))
    await asyncio.sleep(0)
    assert got == [NOTE]
    assert ends.reading
    channel.received(LINE[5:])
    assert got == [NOTE, NOTE]
    channel.received(LINE.rstrip())
    channel.read_ended(None)
    channel.read_ended(OSError("too late to matter"))
    await running
    assert len(got) == 3  # the last line needs no end


async def test_a_source_that_breaks_is_named() -> None:
    channel, _ = await channel_with()
    running = asyncio.create_task(channel.run(lambda message: None))
    channel.read_ended(OSError("broken"))
    with pytest.raises(ChannelClosed, match="broken"):
        await running


async def test_nothing_is_sent_before_it_is_attached_or_after_the_end() -> None:
    channel = LineChannel(TransportContext(transport_type="memory"))
    with pytest.raises(ChannelClosed, match="not open") as closed:
        channel.send(NOTE)
    assert closed.value.delivered is False
    channel, ends = await channel_with()
    channel.send(NOTE)
    channel.write_ended(BrokenPipeError())
    for attempt in (lambda: channel.send(NOTE), lambda: channel.send_success(1, b"{}")):
        with pytest.raises(ChannelClosed) as closed:
            attempt()
        assert closed.value.delivered is False
    with pytest.raises(ChannelClosed):
        await channel.drain()
    assert ends.written == [LINE]


async def test_writes_of_one_turn_are_joined() -> None:
    channel, ends = await channel_with()
    channel.join_writes()
    channel.join_writes()
    channel.send(NOTE)
    channel.send_success(1, b"{}")
    assert ends.written == []
    await asyncio.sleep(0)
    answer = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
    assert ends.written == [LINE + answer]
    channel.send_success(1, Raw(b"{}"))
    assert ends.written[1:] == [answer]


async def test_many_joined_writes_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "JOIN", 3)
    channel, ends = await channel_with()
    channel.join_writes()
    for _ in range(4):
        channel.send(NOTE)
    assert ends.written == [LINE * 3]
    channel.send_success(1, b"{}")
    channel.send_success(2, b"{}")
    assert len(ends.written) == 2
    await asyncio.sleep(0)
    assert len(ends.written) == 2


async def test_joined_writes_bypass_an_empty_transport(pipe: tuple[int, int]) -> None:
    theirs, ours = pipe
    channel, ends = await channel_with(ours)
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    assert (os.read(theirs, 100), ends.written) == (LINE, [])
    ends.queued = 1  # what is queued comes first
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    assert ends.written == [LINE]
    channel.write_ended(None)


async def test_what_does_not_fit_into_a_pipe_goes_to_the_transport(pipe: tuple[int, int]) -> None:
    theirs, ours = pipe
    channel, ends = await channel_with(ours)
    channel.join_writes()
    channel.write(b"x" * (1 << 20))
    await asyncio.sleep(0)
    (rest,) = ends.written
    assert 0 < len(rest) < 1 << 20
    assert len(os.read(theirs, 1 << 20)) + len(rest) == 1 << 20
    channel.write_ended(None)


async def test_an_untouched_pipe_is_known(pipe: tuple[int, int]) -> None:
    theirs, ours = pipe
    channel, ends = await channel_with(ours)
    assert not channel.never_read()  # nothing was written
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    assert channel.never_read()
    channel.send(NOTE)
    ends.queued = len(LINE)
    assert channel.never_read()
    os.read(theirs, 1)
    assert not channel.never_read()
    channel.write_ended(None)
    assert not channel.never_read()


async def test_it_is_remembered_that_a_pipe_was_untouched(pipe: tuple[int, int]) -> None:
    channel, _ = await channel_with(pipe[1])
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    channel.write_ended(OSError())
    assert channel.never_read()


async def test_senders_wait_until_a_sink_has_room() -> None:
    channel, _ = await channel_with()
    await channel.drain()
    channel.pause_writing()
    waiting = [asyncio.create_task(channel.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    channel.resume_writing()
    await asyncio.gather(*waiting)
    channel.pause_writing()
    lost = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    channel.write_ended(BrokenPipeError())
    with pytest.raises(ChannelClosed):
        await lost
    assert not channel.congested


async def test_reading_stops_while_too_much_waits_to_be_written() -> None:
    channel, ends = await channel_with()
    channel.pause_writing()
    ends.queued = lines.HARD_LIMIT
    channel.send(NOTE)
    assert ends.told == []
    ends.queued = lines.HARD_LIMIT + 1
    channel.send(NOTE)
    channel.send(NOTE)
    assert ends.told == ["pause"]
    running = asyncio.create_task(channel.run(lambda message: None))
    await asyncio.sleep(0)
    assert ends.told == ["pause"]  # not resumed by running
    channel.resume_writing()
    channel.resume_writing()
    assert ends.told == ["pause", "resume"]
    channel.read_ended(None)
    await running


async def test_closing_waits_for_what_is_queued_and_then_gives_up() -> None:
    channel, ends = await channel_with()
    channel.send(NOTE)
    closing = [asyncio.create_task(channel.close()) for _ in range(2)]
    await asyncio.sleep(0)
    assert ends.told == ["close"]
    assert not any(task.done() for task in closing)
    channel.write_ended(None)
    await asyncio.gather(*closing)
    assert set(ends.told) == {"close"}
    stuck, ends = await channel_with()
    await stuck.close_sink(linger=0.01)
    assert ends.told == ["close", "abort"]
    with pytest.raises(ChannelClosed):
        stuck.send(NOTE)


async def test_closing_writes_what_was_joined() -> None:
    channel, ends = await channel_with()
    channel.join_writes()
    channel.send(NOTE)
    await channel.close_sink(linger=0)
    assert ends.written == [LINE]


async def test_a_peer_that_does_not_read_any_more_has_gone() -> None:
    channel, _ = await channel_with()
    running = asyncio.create_task(channel.run(lambda message: None))
    await asyncio.sleep(0)
    channel.write_ended(None)
    await asyncio.sleep(0)
    assert not running.done()
    channel.write_ended(BrokenPipeError())
    await running


class Transport(asyncio.ReadTransport, asyncio.WriteTransport):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def pause_reading(self) -> None:
        self.told.append("pause")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.told.append(high)


async def test_the_sides_of_a_pipe_report_to_their_channel() -> None:
    transport = Transport()
    channel, _ = await channel_with()
    reader = ReadPipeProtocol(channel)
    reader.connection_made(transport)
    got: list[Any] = []
    running = asyncio.create_task(channel.run(got.append))
    await asyncio.sleep(0)
    reader.data_received(LINE)
    assert got == [NOTE]
    reader.connection_lost(OSError("gone"))
    with pytest.raises(ChannelClosed, match="gone"):
        await running
    channel, _ = await channel_with()
    ended = asyncio.create_task(channel.run(got.append))
    ReadPipeProtocol(channel).eof_received()
    await ended
    writer = WritePipeProtocol(channel)
    writer.connection_made(transport)
    assert transport.told == ["pause", lines.HIGH_WATER]
    writer.pause_writing()
    assert channel.congested
    writer.resume_writing()
    assert not channel.congested
    writer.connection_lost(None)
    with pytest.raises(ChannelClosed):
        channel.send(Success(1, Raw(b"{}")))
