"""Tests that pipes connected to an event loop are closed exactly once."""

import asyncio
import os
import threading

import pytest

from fairlead.transport.stdio.pipes import (
    connect_reading,
    connect_writing,
    descriptor_of,
    detach_descriptor,
)

ROUNDS = 4000


class Neighbour(threading.Thread):
    """A thread that opens and closes descriptors and records if another thread closed one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.lost: OSError | None = None
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            while not self._enough.is_set():
                theirs, ours = os.pipe()
                os.write(ours, b"x")
                assert os.read(theirs, 1) == b"x"
                os.close(theirs)
                os.close(ours)
        except OSError as exc:
            self.lost = exc

    def __enter__(self) -> "Neighbour":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join(10)


class Ended(asyncio.Protocol):
    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        self.future.set_result(None)


async def test_closing_a_pipe_does_not_close_descriptors_of_other_threads(loop_kind: str) -> None:
    with Neighbour() as neighbour:
        for _ in range(ROUNDS):
            theirs, ours = os.pipe()
            reading, writing = Ended(), Ended()
            source = await connect_reading(theirs, lambda it=reading: it)  # type: ignore[misc]
            sink = await connect_writing(ours, lambda it=writing: it)  # type: ignore[misc]
            source.close()
            sink.close()
            await reading.future
            await writing.future
            if neighbour.lost is not None:
                break
    assert neighbour.lost is None


async def test_a_pipe_connected_to_the_loop_is_closed_by_the_loop(loop_kind: str) -> None:
    theirs, ours = os.pipe()
    ended = Ended()
    sink = await connect_writing(ours, lambda: ended)
    assert descriptor_of(sink) == ours
    sink.close()
    await ended.future
    assert descriptor_of(sink) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(ours)
    assert os.read(theirs, 1) == b""
    os.close(theirs)


def test_a_detached_descriptor_outlives_its_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with open(tmp_path / "file", "wb", 0) as file:
        fd = detach_descriptor(file)
        assert file.closed
    os.write(fd, b"still there")
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == b"still there"
