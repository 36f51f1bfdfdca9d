"""Folder locks for processes that read, change and write the same file."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["lock_folder"]

LIMIT = 10.0  # seconds to wait for the lock; a change takes only milliseconds
_AGAIN = 0.01  # seconds between two attempts to lock a file


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Prevent other Fairlead processes from changing files in a folder.

    The folder is locked instead of the file, because writing replaces the file. The lock is
    released when its process ends.

    Raises:
        OSError: The folder cannot be opened, or another process held the lock for too long.
    """
    # Windows has no `flock`, so concurrent changes are not prevented there.
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _take(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, folder: Path) -> None:
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                reason = f"another process has locked {folder} for {LIMIT:g} seconds"
                raise TimeoutError(reason) from None
            time.sleep(_AGAIN)
        except OSError:
            return  # some network file systems do not support locks
