"""Transfer of pipe descriptors to an event loop, so that each is closed exactly once.

uvloop closes a descriptor itself, and then also the file object that it came in, which closes the
same number a second time. In between, another thread may have received this number for a pipe to a
new process or for a file, and would lose it. uvloop therefore gets an object whose `close` has no
effect on the descriptor.
"""

import asyncio
import os
from collections.abc import Callable
from io import FileIO
from typing import Any, TypeVar

__all__ = ["connect_reading", "connect_writing", "descriptor_of", "detach_descriptor"]

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect_reading(fd: int, protocol: Callable[[], P]) -> asyncio.ReadTransport:
    """Connect the running loop to the read end of a pipe. The loop then owns the descriptor."""
    loop = asyncio.get_running_loop()
    return (await loop.connect_read_pipe(protocol, _handed(loop, fd, "rb")))[0]


async def connect_writing(fd: int, protocol: Callable[[], P]) -> asyncio.WriteTransport:
    """Connect the running loop to the write end of a pipe. The loop then owns the descriptor."""
    loop = asyncio.get_running_loop()
    return (await loop.connect_write_pipe(protocol, _handed(loop, fd, "wb")))[0]


def descriptor_of(transport: asyncio.BaseTransport) -> int | None:
    """Return the descriptor of a pipe connected here, or None if the loop has closed it."""
    pipe = transport.get_extra_info("pipe")
    return None if pipe is None or pipe.closed else int(pipe.fileno())


def detach_descriptor(file: Any) -> int:
    """Return a duplicate of a file object's descriptor and close the file object."""
    fd = os.dup(file.fileno())
    file.close()
    return fd


class _Number:
    """A descriptor that is closed by the event loop."""

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
