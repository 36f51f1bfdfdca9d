"""Threads that read and write what a loop cannot watch, each on a descriptor of its own."""

import asyncio
import os
import threading
from pathlib import Path

from fairlead.protocol.envelope import TransportContext
from fairlead.transport.lines import LineChannel
from fairlead.transport.threads import ThreadSink, ThreadSource

SIZE = 1 << 20


def named(name: str) -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == name)


async def test_what_a_stuck_thread_still_has_goes_nowhere_else(tmp_path: Path) -> None:
    """A terminal may be stopped for long, and the descriptor closed and given to another file."""
    theirs, ours = os.pipe()
    channel = LineChannel(TransportContext(transport_type="stdio"))
    sink = ThreadSink(ours, channel)
    thread = named("fairlead-stdout")
    for _ in range(16):
        sink.write(b"x" * (SIZE // 16))
    start = os.read(theirs, 1)  # it has begun, and cannot go on: no pipe has that much room
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


async def test_a_source_that_is_closed_lets_go_of_everything() -> None:
    """Also one that has read as far ahead as it may."""
    channel = LineChannel(TransportContext(transport_type="stdio"))
    theirs, ours = os.pipe()
    before = set(os.listdir("/proc/self/fd"))
    source = ThreadSource(theirs, channel)
    thread = named("fairlead-stdin")
    source.resume_reading()
    for _ in range(8):
        os.write(ours, b"x" * 1000)
    while source._ahead.acquire(blocking=False):  # as if the loop came to nothing of that
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
