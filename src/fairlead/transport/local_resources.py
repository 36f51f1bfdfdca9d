"""Detection of exhausted resources on this machine, as opposed to failures of a server."""

import errno
import os
import socket
from typing import Final

from ..errors import ConnectFailed, LocalResourceError

__all__ = ["connect_error", "exhausted_resource"]

_RESOURCES: Final = {
    errno.EMFILE: "file descriptors",
    errno.ENFILE: "file descriptors",
    errno.ENOMEM: "memory",
    errno.ENOBUFS: "memory",
    errno.ENOSPC: "disk space",
    errno.EADDRNOTAVAIL: "local ports",
}


def connect_error(
    message: str, cause: BaseException | None, *, public: str = "", spawning: bool = False
) -> ConnectFailed:
    """Return the error for a connection that could not be opened because of `cause`."""
    resource = exhausted_resource(cause, spawning=spawning)
    if resource is not None:
        return LocalResourceError(f"{message} (out of {resource} on this machine)", resource)
    return ConnectFailed(message, public=public)


def exhausted_resource(cause: BaseException | None, *, spawning: bool = False) -> str | None:
    """Return the resource of this machine that is exhausted and prevented a connection, or None.

    `spawning` means that a process was being started: EAGAIN then means that no further process is
    allowed. A socket reports EAGAIN if the peer accepts too slowly.
    """
    match cause:
        case MemoryError():
            return "memory"
        case RuntimeError():
            # CPython has no separate exception class for this error.
            return "threads" if "start new thread" in str(cause) else None
        case socket.gaierror():
            # A resolver that cannot open its files reports an unknown host.
            return None if _can_open_files() else "file descriptors"
        case OSError(errno=errno.EAGAIN) if spawning:
            return "processes"
        case OSError(errno=int(number)):
            return _RESOURCES.get(number)
    return None


def _can_open_files() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True
