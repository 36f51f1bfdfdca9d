"""Ends of pipes, handed to an event loop for good, so that each is closed exactly once.

uvloop closes a descriptor itself, and then also the file object in which it came: that closes the
same number a second time. In between another thread may have been given this number, for a pipe to
a new process or for a file, and would lose it. So uvloop gets an object that closes nothing.
"""

import asyncio
import os
from collections.abc import Callable
from io import FileIO
from typing import Any, TypeVar

__all__ = ["connect_reading", "connect_writing", "descriptor_of", "detach_descriptor"]

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect_reading(fd: int, protocol: Callable[[], P]) -> asyncio.ReadTransport:
    """Let the running loop read from a pipe; the descriptor is the loop's from now on."""
    loop = asyncio.get_running_loop()
    return (await loop.connect_read_pipe(protocol, _handed(loop, fd, "rb")))[0]


async def connect_writing(fd: int, protocol: Callable[[], P]) -> asyncio.WriteTransport:
    """The same for a pipe to write to."""
    loop = asyncio.get_running_loop()
    return (await loop.connect_write_pipe(protocol, _handed(loop, fd, "wb")))[0]


def descriptor_of(transport: asyncio.BaseTransport) -> int | None:
    """The descriptor of a pipe that was handed over here, unless the loop has closed it already."""
    pipe = transport.get_extra_info("pipe")
    return None if pipe is None or pipe.closed else int(pipe.fileno())


def detach_descriptor(file: Any) -> int:
    """The descriptor of a file object, which is closed without it."""
    fd = os.dup(file.fileno())
    file.close()
    return fd


class _Number:
    """A descriptor that somebody else closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.closed = False

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        self.closed = True


def _handed(loop: asyncio.AbstractEventLoop, fd: int, mode: str) -> Any:
    if type(loop).__module__.partition(".")[0] == "uvloop":
        return _Number(fd)
    return FileIO(fd, mode)
