"""Our own standard input and output as a channel, out of reach of everybody else in the process.

The descriptors 0 and 1 are moved to private ones; in their place come `/dev/null` and stderr. So a
stray `print`, a C library or a child process can neither write into the protocol nor read from it.
"""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from ...protocol.envelope import TransportContext
from ...wire import MAX_MESSAGE
from ..line_channel import (
    ByteSink,
    ByteSource,
    LineChannel,
    ReadPipeProtocol,
    SocketProtocol,
    WritePipeProtocol,
)
from .pipes import connect_reading, connect_writing, descriptor_of
from .thread_streams import ThreadSink, ThreadSource

__all__ = ["open_stdio", "widen_pipe"]

PIPE_SIZE = 1 << 20


@contextlib.asynccontextmanager
async def open_stdio(*, limit: int = MAX_MESSAGE) -> AsyncIterator[LineChannel]:
    """A channel on stdin and stdout. On leaving, both are what they were before."""
    with _private_descriptors() as (stdin, stdout):
        channel = LineChannel(TransportContext(transport_type="stdio"), limit=limit)
        source, sink = await _open_ends(stdin, stdout, channel)
        channel.attach(source, sink, _descriptor(sink))
        try:
            yield channel
        finally:
            await channel.close()


def widen_pipe(fd: int) -> None:
    """Room for a big message in one go: a third to a half faster at 64 KiB. If not, not."""
    try:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    except (ImportError, AttributeError, OSError):
        pass


@contextlib.contextmanager
def _private_descriptors() -> Iterator[tuple[int, int]]:
    """Move 0 and 1 away, close-on-exec, and put harmless ones in their place."""
    stdin, stdout = os.dup(0), os.dup(1)
    blocking = os.get_blocking(stdin), os.get_blocking(stdout)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        sys.stdout.flush()  # what was printed before we came would be no message either
        yield stdin, stdout
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()  # what handlers printed goes to stderr, where it belongs
        for private, public, was_blocking in ((stdin, 0, blocking[0]), (stdout, 1, blocking[1])):
            with contextlib.suppress(OSError):
                os.set_blocking(private, was_blocking)
            os.dup2(private, public)
            os.close(private)


async def _open_ends(stdin: int, stdout: int, channel: LineChannel) -> tuple[ByteSource, ByteSink]:
    if _is_socket(stdin) and os.path.samestat(os.fstat(stdin), os.fstat(stdout)):
        both = await _open_socket(stdin, SocketProtocol(channel))
        return both, both
    source = await _open_source(stdin, channel)
    try:
        return source, await _open_sink(stdout, channel)
    except BaseException:
        source.close()
        raise


async def _open_source(fd: int, channel: LineChannel) -> ByteSource:
    if _is_socket(fd):
        return await _open_socket(fd, ReadPipeProtocol(channel))
    if not _is_pipe(fd):
        return ThreadSource(fd, channel)
    widen_pipe(fd)
    return await connect_reading(
        _own_description(fd, os.O_RDONLY), lambda: ReadPipeProtocol(channel)
    )


async def _open_sink(fd: int, channel: LineChannel) -> ByteSink:
    if _is_socket(fd):
        sink = await _open_socket(fd, WritePipeProtocol(channel))
        sink.pause_reading()
        return sink
    if not _is_pipe(fd):
        return ThreadSink(fd, channel)
    widen_pipe(fd)
    return await connect_writing(
        _own_description(fd, os.O_WRONLY), lambda: WritePipeProtocol(channel)
    )


def _descriptor(sink: ByteSink) -> int | None:
    """What a sink writes to, if the loop has made it non-blocking."""
    if isinstance(sink, ThreadSink):
        return None
    return descriptor_of(cast(asyncio.BaseTransport, sink))


async def _open_socket(fd: int, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
    """Node gives its children sockets. As a pipe, asyncio would take incoming data for the end."""
    import socket

    loop = asyncio.get_running_loop()
    sock = socket.socket(fileno=os.dup(fd))
    transport, _ = await loop.connect_accepted_socket(lambda: cast(Any, protocol), sock)
    return transport


def _is_socket(fd: int) -> bool:
    return os.name == "posix" and stat.S_ISSOCK(os.fstat(fd).st_mode)


def _is_pipe(fd: int) -> bool:
    """Whether an event loop can wait for it as a pipe."""
    return os.name == "posix" and stat.S_ISFIFO(os.fstat(fd).st_mode)


def _own_description(fd: int, flags: int) -> int:
    """A descriptor that may be set to non-blocking.

    `O_NONBLOCK` belongs to the open file description, which we share with whoever started us. A
    pipe can be opened again through /proc, with flags of its own; where that fails, and for
    sockets, the flag is put back at the end.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)  # no /proc, or a pipe of another user
