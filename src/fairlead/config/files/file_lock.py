"""One at a time: whoever reads a file, changes it and writes it back holds its folder."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["lock_folder"]

LIMIT = 10.0  # seconds; a change takes milliseconds
_AGAIN = 0.01


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes of ours from changing files in a folder meanwhile.

    The lock is on the folder itself, because the files are replaced, and it ends with its owner.

    Raises:
        OSError: if somebody else holds it for too long.
    """
    if sys.platform == "win32":  # the last one to write wins
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
                reason = f"another program has been changing {folder} for {LIMIT:g} seconds"
                raise TimeoutError(reason) from None
            time.sleep(_AGAIN)
        except OSError:
            return  # a file system without locks, as some network ones are
