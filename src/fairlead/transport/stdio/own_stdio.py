"""A channel on our own stdin and stdout, protected from all other code in the process.

The descriptors 0 and 1 are moved to private numbers and replaced by `/dev/null` and stderr. A stray
`print`, a C library or a child process can therefore neither write into the protocol nor read from
it.
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

PIPE_SIZE = 1 << 20  # bytes of the pipe buffer that are requested


@contextlib.asynccontextmanager
async def open_stdio(*, limit: int = MAX_MESSAGE) -> AsyncIterator[LineChannel]:
    """Open a channel on stdin and stdout. On exit, both are restored."""
    with _private_descriptors() as (stdin, stdout):
        channel = LineChannel(TransportContext(transport_type="stdio"), limit=limit)
        source, sink = await _open_ends(stdin, stdout, channel)
        channel.attach(source, sink, _descriptor(sink))
        try:
            yield channel
        finally:
            await channel.close()


def widen_pipe(fd: int) -> None:
    """Enlarge the buffer of a pipe where the system allows it.

    A message of 64 KiB then fits in one write, which makes it a third to a half faster.
    """
    try:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    except (ImportError, AttributeError, OSError):
        pass


@contextlib.contextmanager
def _private_descriptors() -> Iterator[tuple[int, int]]:
    """Duplicate the descriptors 0 and 1, close-on-exec, and replace them with harmless ones."""
    stdin, stdout = os.dup(0), os.dup(1)
    blocking = os.get_blocking(stdin), os.get_blocking(stdout)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    try:
        # Text printed earlier is still buffered; it must not reach the client as a message.
        sys.stdout.flush()
        yield stdin, stdout
    finally:
        with contextlib.suppress(OSError, ValueError):
            # Text that handlers printed goes to stderr.
            sys.stdout.flush()
        for private, public, was_blocking in ((stdin, 0, blocking[0]), (stdout, 1, blocking[1])):
            with contextlib.suppress(OSError):
                os.set_blocking(private, was_blocking)
            os.dup2(private, public)
            os.close(private)


async def _open_ends(stdin: int, stdout: int, channel: LineChannel) -> tuple[ByteSource, ByteSink]:
    # Node.js passes the same socket as stdin and stdout.
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
        # Only the write side is used: reading an EOF would close the transport.
        sink.pause_reading()
        return sink
    if not _is_pipe(fd):
        return ThreadSink(fd, channel)
    widen_pipe(fd)
    return await connect_writing(
        _own_description(fd, os.O_WRONLY), lambda: WritePipeProtocol(channel)
    )


def _descriptor(sink: ByteSink) -> int | None:
    """Return the descriptor that a sink writes to, if the loop has made it non-blocking."""
    if isinstance(sink, ThreadSink):
        return None
    return descriptor_of(cast(asyncio.BaseTransport, sink))


async def _open_socket(fd: int, protocol: asyncio.BaseProtocol) -> asyncio.Transport:
    """Open a socket as a stream; Node.js gives sockets to its children.

    If it were opened as a pipe, asyncio would take incoming data for the end of the stream.
    """
    import socket

    loop = asyncio.get_running_loop()
    sock = socket.socket(fileno=os.dup(fd))
    transport, _ = await loop.connect_accepted_socket(lambda: cast(Any, protocol), sock)
    return transport


def _is_socket(fd: int) -> bool:
    return os.name == "posix" and stat.S_ISSOCK(os.fstat(fd).st_mode)


def _is_pipe(fd: int) -> bool:
    """Return True if an event loop can watch the descriptor as a pipe."""
    return os.name == "posix" and stat.S_ISFIFO(os.fstat(fd).st_mode)


def _own_description(fd: int, flags: int) -> int:
    """Return a descriptor that may be set to non-blocking.

    `O_NONBLOCK` belongs to the open file description, which is shared with the parent process. A
    pipe can be opened again through /proc with its own flags. Where that fails, and for sockets,
    the flag is restored on exit.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)  # no /proc, or a pipe of another user
