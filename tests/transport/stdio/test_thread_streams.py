"""Tests of threads that read and write files which an event loop cannot watch."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from fairlead.protocol.envelope import TransportContext
from fairlead.transport.line_channel import HIGH_WATER, LineChannel
from fairlead.transport.stdio.thread_streams import ThreadSink, ThreadSource

SIZE = 1 << 20


def named(name: str) -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == name)


async def test_a_blocked_thread_does_not_write_to_a_reused_descriptor(tmp_path: Path) -> None:
    """The descriptor may be closed and reused for another file while the thread is blocked."""
    theirs, ours = os.pipe()
    channel = LineChannel(TransportContext(transport_type="stdio"))
    sink = ThreadSink(ours, channel)
    thread = named("fairlead-stdout")
    for _ in range(16):
        sink.write(b"x" * (SIZE // 16))
    # The thread has started and is blocked, because the data exceeds the pipe's capacity.
    start = os.read(theirs, 1)
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    os.dup2(other, ours)
    sink.close()
    rest = await asyncio.to_thread(read_all, theirs)
    assert start + rest == b"x" * SIZE
    assert (tmp_path / "other").read_bytes() == b""
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
    for fd in (theirs, ours, other):
        os.close(fd)


async def test_closing_a_source_releases_its_thread_and_descriptors() -> None:
    """The source has also read ahead up to its limit."""
    channel = LineChannel(TransportContext(transport_type="stdio"))
    theirs, ours = os.pipe()
    before = set(os.listdir("/proc/self/fd"))
    source = ThreadSource(theirs, channel)
    thread = named("fairlead-stdin")
    source.resume_reading()
    for _ in range(8):
        os.write(ours, b"x" * 1000)
    while source._ahead.acquire(blocking=False):  # as if the loop had processed no chunk
        pass
    source.close()
    os.write(ours, b"x")
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
    assert set(os.listdir("/proc/self/fd")) <= before
    os.close(theirs)
    os.close(ours)


def read_all(fd: int) -> bytes:
    found = b""
    while piece := os.read(fd, SIZE):
        found += piece
    return found


class Told(LineChannel):
    """A channel that records calls by its source and sink."""

    def __init__(self) -> None:
        super().__init__(TransportContext(transport_type="stdio"))
        self.events: asyncio.Queue[str] = asyncio.Queue()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.events.put_nowait("pause")

    def resume_writing(self) -> None:
        super().resume_writing()
        self.events.put_nowait("resume")

    def write_ended(self, exc: Exception | None) -> None:
        self.events.put_nowait(f"ended {type(exc).__name__}")

    def received(self, data: bytes) -> None:
        self.events.put_nowait(data.decode())

    def read_ended(self, exc: Exception | None) -> None:
        self.events.put_nowait("eof")

    async def next(self) -> str:
        async with asyncio.timeout(5):
            return await self.events.get()


async def test_a_sink_pauses_senders_while_many_bytes_are_queued() -> None:
    theirs, ours = os.pipe()
    channel = Told()
    sink = ThreadSink(ours, channel)
    sink.write(b"x" * HIGH_WATER)
    assert sink.get_write_buffer_size() == HIGH_WATER
    assert not channel.congested
    sink.write(b"y")
    sink.write(b"z")
    assert await channel.next() == "pause"
    sink.close()
    os.close(ours)
    assert len(await asyncio.to_thread(read_all, theirs)) == HIGH_WATER + 2
    assert [await channel.next(), await channel.next()] == ["resume", "ended NoneType"]
    assert sink.get_write_buffer_size() == 0
    os.close(theirs)


async def test_an_aborted_sink_stops_writing() -> None:
    theirs, ours = os.pipe()
    channel = Told()
    thread_names = {thread.name for thread in threading.enumerate()}
    sink = ThreadSink(ours, channel)
    thread = named("fairlead-stdout")
    assert "fairlead-stdout" not in thread_names
    sink.write(b"x" * SIZE)
    start = await asyncio.to_thread(os.read, theirs, 1)
    sink.write(b"never")
    sink.abort()
    os.close(ours)
    assert start + await asyncio.to_thread(read_all, theirs) == b"x" * SIZE
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
    os.close(theirs)


async def test_a_sink_reports_that_its_reader_is_gone() -> None:
    theirs, ours = os.pipe()
    channel = Told()
    sink = ThreadSink(ours, channel)
    os.close(theirs)
    sink.write(b"x")
    assert await channel.next() == "ended BrokenPipeError"
    os.close(ours)


async def test_a_source_delivers_chunks_and_then_the_end_of_the_stream() -> None:
    theirs, ours = os.pipe()
    channel = Told()
    source = ThreadSource(theirs, channel)
    source.resume_reading()
    os.write(ours, b"one")
    assert await channel.next() == "one"
    os.close(ours)
    assert await channel.next() == "eof"
    source.close()
    os.close(theirs)


def test_a_thread_that_cannot_start_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    theirs, ours = os.pipe()
    before = os.listdir("/proc/self/fd")

    async def make() -> None:
        ThreadSink(ours, Told())

    with pytest.raises(RuntimeError):
        asyncio.run(make())
    assert len(os.listdir("/proc/self/fd")) == len(before)
    os.close(theirs)
    os.close(ours)


# Reading ahead


async def test_a_source_continues_while_its_chunks_are_processed() -> None:
    theirs, ours = os.pipe()
    channel = Told()
    source = ThreadSource(theirs, channel)
    source.resume_reading()
    for number in range(10):
        os.write(ours, b"%d" % number)
        assert await channel.next() == str(number)
    os.close(ours)
    assert await channel.next() == "eof"
    os.close(theirs)


async def test_a_paused_source_does_not_read_and_may_be_closed() -> None:
    theirs, ours = os.pipe()
    os.write(ours, b"x")
    channel = Told()
    source = ThreadSource(theirs, channel)
    thread = named("fairlead-stdin")
    source.close()
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
    assert os.read(theirs, 10) == b"x"
    assert channel.events.empty()
    for fd in (theirs, ours):
        os.close(fd)
