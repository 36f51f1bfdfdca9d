"""Tests of stdio channels with pipes, sockets and files as descriptors 0 and 1 of this process."""

import asyncio
import contextlib
import fcntl
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import RemoteProtocolError
from fairlead.transport.line_channel import LineChannel
from fairlead.transport.stdio import own_stdio
from fairlead.transport.stdio.own_stdio import open_stdio
from fairlead.transport.stdio.thread_streams import ThreadSink
from fairlead.wire import Notification

LINE = b'{"jsonrpc":"2.0","method":"n"}\n'


class Ends:
    """Replacements for descriptors 0 and 1, and the ends that the test uses."""

    def __init__(self, kind: str, folder: Path) -> None:
        self._open: list[int] = []
        self._file = folder / "out"
        if kind == "pipes":
            stdin, self.write_to = self._pipe()
            self.read_from, stdout = self._pipe()
        elif kind == "one socket":
            ours, theirs = self._sockets()
            stdin = stdout = ours
            self.write_to = self.read_from = theirs
        elif kind == "two sockets":
            stdin, self.write_to = self._sockets()
            stdout, self.read_from = self._sockets()
        else:
            (folder / "in").write_bytes(LINE)
            stdin = self._keep(os.open(folder / "in", os.O_RDONLY))
            stdout = self._keep(os.open(self._file, os.O_CREAT | os.O_RDWR))
            self.write_to = -1
            self.read_from = self._keep(os.open(self._file, os.O_RDONLY))
        self.stdin, self.stdout = stdin, stdout

    def _keep(self, fd: int) -> int:
        self._open.append(fd)
        return fd

    def _pipe(self) -> tuple[int, int]:
        theirs, ours = os.pipe()
        return self._keep(theirs), self._keep(ours)

    def _sockets(self) -> tuple[int, int]:
        one, other = socket.socketpair()
        return self._keep(one.detach()), self._keep(other.detach())

    def close(self) -> None:
        for fd in self._open:
            os.close(fd)


@contextlib.contextmanager
def standing_in(kind: str, folder: Path) -> Iterator[Ends]:
    """Replace descriptors 0 and 1 within the block."""
    ends = Ends(kind, folder)
    saved = os.dup(0), os.dup(1)
    os.dup2(ends.stdin, 0)
    os.dup2(ends.stdout, 1)
    try:
        yield ends
    finally:
        for private, public in zip(saved, (0, 1), strict=True):
            os.dup2(private, public)
            os.close(private)
        ends.close()


def descriptors() -> int:
    """Return the number of open descriptors, except the `/dev/null` that uvloop keeps open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}") != os.devnull
    return found


def same(one: int, other: int) -> bool:
    return os.path.samestat(os.fstat(one), os.fstat(other))


KINDS = ["pipes", "one socket", "two sockets", "files"]


@pytest.mark.parametrize("kind", KINDS)
async def test_messages_are_exchanged_over_every_kind_of_stdio(
    kind: str, tmp_path: Path, loop_kind: str
) -> None:
    got: asyncio.Queue[Any] = asyncio.Queue()
    with standing_in(kind, tmp_path) as ends:
        before = descriptors()
        async with asyncio.timeout(5), open_stdio() as channel:
            assert channel.context.transport_type == "stdio"
            running = asyncio.create_task(channel.run(got.put_nowait))
            if kind != "files":
                os.write(ends.write_to, LINE)
            assert await got.get() == Notification("n")
            channel.send(Notification("n"))
            found = b""
            while len(found) < len(LINE):
                found += await asyncio.to_thread(os.read, ends.read_from, 100)
            assert found == LINE
        await running
        assert same(0, ends.stdin)
        assert same(1, ends.stdout)
        async with asyncio.timeout(5):
            while descriptors() > before:
                await asyncio.sleep(0)


@pytest.mark.parametrize("kind", KINDS)
async def test_descriptors_0_and_1_are_redirected_while_the_channel_is_open(
    kind: str, tmp_path: Path
) -> None:
    with standing_in(kind, tmp_path) as ends:
        blocking = os.get_blocking(0), os.get_blocking(1)
        async with asyncio.timeout(5), open_stdio() as channel:
            assert os.read(0, 10) == b""
            assert stat.S_ISCHR(os.fstat(0).st_mode)
            assert same(1, 2)
            if kind == "pipes":  # these pipes are shared with the parent process
                assert (os.get_blocking(ends.stdin), os.get_blocking(ends.stdout)) == blocking
            running = asyncio.create_task(channel.run(lambda item: None))
            await asyncio.sleep(0)
        await running
        assert (os.get_blocking(0), os.get_blocking(1)) == blocking == (True, True)


async def test_the_pipes_of_stdin_and_stdout_are_enlarged(tmp_path: Path) -> None:
    with standing_in("pipes", tmp_path) as ends:
        async with asyncio.timeout(5), open_stdio() as channel:
            for fd in (ends.stdin, ends.stdout):
                assert fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) == 1 << 20
            running = asyncio.create_task(channel.run(lambda item: None))
            await asyncio.sleep(0)
        await running


async def test_a_message_over_the_limit_is_reported(tmp_path: Path) -> None:
    got: asyncio.Queue[Any] = asyncio.Queue()
    with standing_in("pipes", tmp_path) as ends:
        async with asyncio.timeout(5), open_stdio(limit=10) as channel:
            running = asyncio.create_task(channel.run(got.put_nowait))
            os.write(ends.write_to, LINE)
            assert isinstance(await got.get(), RemoteProtocolError)
        await running


@pytest.mark.parametrize("kind", ["pipes", "one socket", "two sockets"])
async def test_the_channel_ends_when_stdin_ends(kind: str, tmp_path: Path, loop_kind: str) -> None:
    with standing_in(kind, tmp_path) as ends:
        async with asyncio.timeout(5), open_stdio() as channel:
            running = asyncio.create_task(channel.run(lambda item: None))
            if kind == "pipes":
                os.close(ends.write_to)
                ends._open.remove(ends.write_to)
            else:
                with socket.socket(fileno=os.dup(ends.write_to)) as theirs:
                    theirs.shutdown(socket.SHUT_WR)
            await running
            channel.send(Notification("n"))  # messages can still be sent after the end of stdin
            assert await asyncio.to_thread(os.read, ends.read_from, 100) == LINE


async def test_an_error_while_opening_restores_stdin_and_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(fd: int, channel: LineChannel) -> Any:
        raise OSError("no sink")

    monkeypatch.setattr(own_stdio, "_open_sink", fail)
    with standing_in("pipes", tmp_path) as ends:
        before = descriptors()
        with pytest.raises(OSError, match="no sink"):
            async with open_stdio():
                raise AssertionError
        assert same(0, ends.stdin)
        assert same(1, ends.stdout)
        async with asyncio.timeout(5):
            while descriptors() > before:
                await asyncio.sleep(0)


async def test_a_pipe_that_cannot_be_reopened_is_used_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refuse(path: Any, *flags: Any, **more: Any) -> int:
        if str(path).startswith("/proc/self/fd/"):
            raise PermissionError(path)
        return opened(path, *flags, **more)

    got: asyncio.Queue[Any] = asyncio.Queue()
    with standing_in("pipes", tmp_path) as ends:
        monkeypatch.setattr(os, "open", refuse)
        async with asyncio.timeout(5), open_stdio() as channel:
            running = asyncio.create_task(channel.run(got.put_nowait))
            os.write(ends.write_to, LINE)
            assert await got.get() == Notification("n")
            assert not os.get_blocking(ends.stdin)
        await running
        assert (os.get_blocking(0), os.get_blocking(1)) == (True, True), "restored"


async def test_a_channel_whose_sink_is_a_thread_has_no_descriptor(tmp_path: Path) -> None:
    """A direct write to the descriptor could block the loop."""
    with standing_in("files", tmp_path):
        async with asyncio.timeout(5), open_stdio() as channel:
            assert isinstance(channel._sink, ThreadSink)
            assert channel._fd is None
            running = asyncio.create_task(channel.run(lambda item: None))
            await asyncio.sleep(0)
        await running
    with standing_in("pipes", tmp_path):
        async with asyncio.timeout(5), open_stdio() as channel:
            assert channel._fd is not None
            running = asyncio.create_task(channel.run(lambda item: None))
            await asyncio.sleep(0)
        await running


async def test_printed_text_is_not_written_to_the_pipe_of_the_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standing_in("pipes", tmp_path) as ends:
        with open(1, "w", closefd=False) as printing:
            monkeypatch.setattr(sys, "stdout", printing)
            printing.write("printed before")
            async with asyncio.timeout(5), open_stdio() as channel:
                running = asyncio.create_task(channel.run(lambda item: None))
                await asyncio.sleep(0)
                printing.write("printed meanwhile")
            await running
            monkeypatch.undo()
        os.set_blocking(ends.read_from, False)
        with pytest.raises(BlockingIOError):
            os.read(ends.read_from, 100)


async def test_closing_the_channel_leaves_no_descriptor_open(
    tmp_path: Path, loop_kind: str
) -> None:
    counts: list[int] = []
    for _ in range(3):
        with standing_in("pipes", tmp_path):
            async with asyncio.timeout(5), open_stdio() as channel:
                running = asyncio.create_task(channel.run(lambda item: None))
                await asyncio.sleep(0)
            await running
        for _ in range(5):
            await asyncio.sleep(0)
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1] == counts[2]
