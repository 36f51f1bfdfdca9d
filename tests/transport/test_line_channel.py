"""Tests of the channel that exchanges lines through a source and a sink."""

import asyncio
import contextlib
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.limits import MESSAGE_BYTES, WRITE_QUEUE
from fairlead.protocol.envelope import TransportContext
from fairlead.transport import line_channel as lines
from fairlead.transport.line_channel import (
    LineChannel,
    ReadPipeProtocol,
    SocketProtocol,
    WritePipeProtocol,
)
from fairlead.wire import Notification, Success
from tests.support.virtual_time import VirtualTime


class Ends:
    """A source and a sink that record calls by the channel."""

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
    assert ends.told == ["pause"]  # the source is paused until the channel is run
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


async def test_bytes_that_arrive_before_run_are_delivered_first() -> None:
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
    channel.read_ended(OSError("second error"))
    await running
    assert len(got) == 3  # the last line needs no line end


async def test_the_error_of_a_failed_source_is_reported() -> None:
    channel, _ = await channel_with()
    running = asyncio.create_task(channel.run(lambda message: None))
    channel.read_ended(OSError("broken"))
    with pytest.raises(ChannelClosed, match="broken"):
        await running


async def test_sending_fails_before_attach_and_after_the_channel_ended() -> None:
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


async def test_messages_sent_in_one_loop_iteration_are_written_together() -> None:
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


async def test_many_joined_messages_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_joined_messages_are_written_directly_if_the_transport_is_empty(
    pipe: tuple[int, int],
) -> None:
    theirs, ours = pipe
    channel, ends = await channel_with(ours)
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    assert (os.read(theirs, 100), ends.written) == (LINE, [])
    ends.queued = 1  # with queued bytes, the line must not be written directly
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    assert ends.written == [LINE]
    channel.write_ended(None)


async def test_the_rest_of_a_write_that_does_not_fit_into_a_pipe_is_passed_to_the_transport(
    pipe: tuple[int, int],
) -> None:
    theirs, ours = pipe
    channel, ends = await channel_with(ours)
    channel.join_writes()
    channel.write(b"x" * (1 << 20))
    await asyncio.sleep(0)
    (rest,) = ends.written
    assert 0 < len(rest) < 1 << 20
    assert len(os.read(theirs, 1 << 20)) + len(rest) == 1 << 20
    channel.write_ended(None)


async def test_a_message_counts_as_never_read_until_the_peer_reads_from_its_pipe(
    pipe: tuple[int, int],
) -> None:
    theirs, ours = pipe
    channel, ends = await channel_with(ours)
    assert not channel.never_read()  # no byte has been written yet
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


async def test_the_verdict_whether_messages_were_read_is_final_at_the_end(
    pipe: tuple[int, int],
) -> None:
    channel, _ = await channel_with(pipe[1])
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    channel.write_ended(OSError())
    assert channel.never_read()


async def test_senders_wait_until_the_sink_has_room() -> None:
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


async def test_reading_stops_while_the_write_queue_is_too_long() -> None:
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
    assert ends.told == ["pause"]  # `run` does not resume the paused source
    channel.resume_writing()
    channel.resume_writing()
    assert ends.told == ["pause", "resume"]
    channel.read_ended(None)
    await running


async def test_closing_waits_a_limited_time_for_queued_bytes() -> None:
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


async def test_closing_writes_messages_that_wait_to_be_joined() -> None:
    channel, ends = await channel_with()
    channel.join_writes()
    channel.send(NOTE)
    await channel.close_sink(linger=0)
    assert ends.written == [LINE]


async def test_a_failed_write_ends_the_channel() -> None:
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


async def test_pipe_protocols_report_events_to_their_channel() -> None:
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


# Reasons


@pytest.mark.parametrize(
    ("exc", "reason"),
    [(None, ""), (OSError("boom"), "boom"), (BrokenPipeError(), "BrokenPipeError")],
    ids=["none", "text", "no text"],
)
async def test_sending_after_the_end_of_a_sink_raises_its_first_reason(
    exc: Exception | None, reason: str
) -> None:
    channel, _ = await channel_with()
    channel.write_ended(exc)
    channel.write_ended(OSError("another"))  # the first reason for the end is kept
    with pytest.raises(ChannelClosed) as closed:
        channel.send(NOTE)
    assert (closed.value.reason, closed.value.delivered) == (reason, False)
    with pytest.raises(ChannelClosed) as again:
        await channel.drain()
    assert again.value.reason == reason
    assert again.value is not closed.value


async def test_a_source_error_without_text_is_reported_by_its_exception_type() -> None:
    channel, _ = await channel_with()
    channel.read_ended(ConnectionResetError())
    with pytest.raises(ChannelClosed) as closed:
        await channel.run(lambda message: None)
    assert closed.value.reason == "ConnectionResetError"


async def test_waiting_senders_receive_the_reason_of_the_end() -> None:
    channel, _ = await channel_with()
    channel.pause_writing()
    waiting = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    channel.write_ended(OSError("boom"))
    with pytest.raises(ChannelClosed, match="boom"):
        await waiting
    channel, _ = await channel_with()
    channel.pause_writing()
    left = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait((left,))
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: problems.append(about))
    channel.write_ended(OSError("boom"))
    del channel
    gc.collect()
    assert problems == [], "the exception is marked as retrieved"


# Lines


async def test_invalid_lines_are_delivered_as_errors() -> None:
    channel = LineChannel(TransportContext(transport_type="memory"), limit=300)
    ends = Ends()
    channel.attach(ends, ends)
    got: list[Any] = []
    running = asyncio.create_task(channel.run(got.append))
    await asyncio.sleep(0)
    hits = MESSAGE_BYTES.hits
    long = b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 400 + b'"}'
    channel.received(b"n\xff" + b"o" * 250 + b"\n" + long + b"\n" + LINE)
    unreadable, too_long, note = got
    assert (unreadable.excerpt, unreadable.size) == ("n�" + "o" * 198, 252)
    assert unreadable.frame == b"n\xff" + b"o" * 250
    assert str(too_long) == f"A message of {len(long)} bytes is over the limit of 300"
    assert (too_long.code, too_long.size, too_long.frame) == (-32600, len(long), b"")
    assert too_long.excerpt.startswith('{"jsonrpc":"2.0","id":7,')
    assert too_long.answers == 7
    assert note == NOTE
    assert MESSAGE_BYTES.hits == hits + 1
    channel.read_ended(None)
    await running


async def test_lines_are_held_back_while_the_write_queue_is_too_long() -> None:
    channel, ends = await channel_with()
    hits = WRITE_QUEUE.hits
    got: list[Any] = []

    def answer(message: Any) -> None:
        got.append(message)
        channel.send(NOTE)

    running = asyncio.create_task(channel.run(answer))
    await asyncio.sleep(0)
    ends.told.clear()
    channel.pause_writing()
    ends.queued = lines.HARD_LIMIT + 1
    channel.received(LINE * 3)
    assert (len(got), ends.told, WRITE_QUEUE.hits) == (1, ["pause"], hits + 1)
    channel.received(LINE * 2)
    assert len(got) == 1, "later lines are held back too"
    channel.resume_writing()
    assert (len(got), ends.told) == (5, ["pause", "resume"])
    channel.pause_writing()
    channel.received(LINE * 3)
    assert len(got) == 6
    ends.queued = 0
    channel.read_ended(None)
    await running
    assert len(got) == 8, "the source has ended, so all lines are delivered"


async def test_held_lines_wait_again_if_the_write_queue_fills_up() -> None:
    channel, ends = await channel_with()
    got: list[Any] = []

    def answer(message: Any) -> None:
        got.append(message)
        channel.pause_writing()
        channel.send(NOTE)

    running = asyncio.create_task(channel.run(answer))
    await asyncio.sleep(0)
    ends.told.clear()
    ends.queued = lines.HARD_LIMIT + 1
    channel.received(LINE * 3)
    for count in (1, 2, 3):
        assert (len(got), ends.told) == (count, ["pause"] * count)
        channel.resume_writing()
    assert (len(got), ends.told) == (3, ["pause"] * 3 + ["resume"])
    channel.read_ended(None)
    await running


async def test_a_source_that_has_ended_is_not_resumed() -> None:
    channel, ends = await channel_with()
    channel.pause_writing()
    ends.queued = lines.HARD_LIMIT + 1
    channel.send(NOTE)
    channel.read_ended(None)
    channel.resume_writing()
    await channel.run(lambda message: None)
    assert ends.told == ["pause"]


async def test_early_bytes_pause_a_source_until_the_channel_is_run() -> None:
    channel, ends = await channel_with()
    channel.received(LINE)
    assert ends.told == ["pause"]
    LineChannel(TransportContext(transport_type="memory")).received(LINE)


# Descriptors


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("how", ["write_ended", "close"])
async def test_a_channel_duplicates_its_descriptor_and_closes_the_duplicate(
    pipe: tuple[int, int], how: str
) -> None:
    before = descriptors()
    channel, _ = await channel_with(pipe[1])
    assert descriptors() == before + 1
    if how == "write_ended":
        channel.write_ended(None)
        channel.write_ended(None)
    else:
        await channel.close_sink(linger=0)
    assert descriptors() == before


async def test_a_channel_works_without_a_duplicate_of_its_descriptor() -> None:
    channel, ends = await channel_with(987654)
    channel.send(NOTE)
    assert ends.written == [LINE]


async def test_the_first_message_is_written_directly_to_the_pipe(pipe: tuple[int, int]) -> None:
    theirs, ours = pipe
    channel, ends = await channel_with(ours)
    channel.send(NOTE)
    assert (os.read(theirs, 100), ends.written) == (LINE, [])
    channel.send(NOTE)
    assert ends.written == [LINE]
    channel.write_ended(None)


async def test_messages_count_as_never_read_if_the_pipe_breaks_at_the_first_message() -> None:
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    os.close(theirs)
    channel, ends = await channel_with(ours)
    channel.send(NOTE)
    assert (channel.never_read(), ends.written) == (True, [LINE])
    channel.write_ended(BrokenPipeError())
    assert channel.never_read()
    os.close(ours)


async def test_a_first_message_is_passed_to_the_transport_if_the_pipe_is_full(
    pipe: tuple[int, int],
) -> None:
    _, ours = pipe
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(ours, bytes(65536))
    channel, ends = await channel_with(ours)
    channel.send(NOTE)
    assert ends.written == [LINE]
    channel.write_ended(None)


async def test_joined_writes_to_a_broken_pipe_are_left_to_the_transport() -> None:
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    channel, ends = await channel_with(ours)
    channel.send(NOTE)
    os.close(theirs)
    channel.join_writes()
    channel.send(NOTE)
    await asyncio.sleep(0)
    assert ends.written == [LINE]
    channel.write_ended(BrokenPipeError())
    os.close(ours)


# Joined writes


async def test_up_to_thirty_two_messages_are_written_together() -> None:
    channel, ends = await channel_with()
    channel.join_writes()
    for _ in range(31):
        channel.send_success(1, b"{}")
    assert ends.written == []
    channel.send_success(1, b"{}")
    (written,) = ends.written
    assert written.count(b"\n") == 32
    for _ in range(31):
        channel.send(NOTE)
    assert len(ends.written) == 1
    channel.send(NOTE)
    assert ends.written[1:] == [LINE * 32]


async def test_joined_messages_are_dropped_when_the_sink_closes() -> None:
    channel, ends = await channel_with()
    channel.join_writes()
    channel.send(NOTE)
    channel.write_ended(OSError())
    await asyncio.sleep(0)
    assert ends.written == []


async def test_joined_messages_count_towards_the_hard_limit() -> None:
    channel, ends = await channel_with()
    channel.pause_writing()
    ends.queued = lines.HARD_LIMIT + 1
    channel.join_writes()
    channel.send(NOTE)
    assert ends.told == []
    await asyncio.sleep(0)
    assert ends.told == ["pause"]


async def test_a_forwarded_request_is_written_as_one_line() -> None:
    channel, ends = await channel_with()
    channel.send_request(3, "m", Raw(b'{"a":1}'))
    assert ends.written == [b'{"jsonrpc":"2.0","id":3,"method":"m","params":{"a":1}}\n']


# Closing


async def test_closing_a_channel_ends_its_run_and_closes_both_ends() -> None:
    channel, ends = await channel_with()
    running = asyncio.create_task(channel.run(lambda message: None))
    await asyncio.sleep(0)
    ends.told.clear()
    closing = asyncio.create_task(channel.close())
    await asyncio.sleep(0)
    assert (ends.told, running.done()) == (["close"], False)
    channel.write_ended(None)
    await closing
    await running
    assert ends.told == ["close", "close"]


async def test_closing_has_no_effect_before_attach_or_after_the_end() -> None:
    channel = LineChannel(TransportContext(transport_type="memory"))
    await channel.close()
    await channel.run(lambda message: None)
    channel, ends = await channel_with()
    channel.write_ended(OSError())
    await channel.close_sink()
    assert ends.told == []


async def test_an_exception_while_aborting_a_sink_is_ignored() -> None:
    channel, ends = await channel_with()

    def fails() -> None:
        raise RuntimeError("being lost")

    ends.abort = fails  # type: ignore[method-assign]
    await channel.close_sink(linger=0)


async def test_closing_a_channel_waits_two_seconds_for_queued_bytes(
    virtual_time: VirtualTime,
) -> None:
    channel, ends = await channel_with()
    begun = virtual_time.now
    await channel.close()
    assert virtual_time.now - begun == pytest.approx(2.0)
    assert ends.told == ["close", "abort", "close"]


async def test_a_socket_protocol_reports_both_directions_to_its_channel() -> None:
    channel, _ = await channel_with()
    both = SocketProtocol(channel)
    both.connection_made(transport := Transport())
    assert transport.told == [lines.HIGH_WATER]
    got: list[Any] = []
    running = asyncio.create_task(channel.run(got.append))
    await asyncio.sleep(0)
    both.data_received(LINE)
    assert got == [NOTE]
    assert both.eof_received() is True, "the writing side stays open"
    await running
    channel.send(NOTE)
    channel, _ = await channel_with()
    both = SocketProtocol(channel)
    both.connection_lost(OSError("boom"))
    with pytest.raises(ChannelClosed, match="boom"):
        await channel.run(got.append)
    with pytest.raises(ChannelClosed, match="boom"):
        channel.send(NOTE)
