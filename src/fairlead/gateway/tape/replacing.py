"""Files that are there as a whole or not at all: an old one stays until the new one is written."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["refuse_old", "replacing"]


@contextmanager
def replacing(place: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """What is written goes into a neighbour, which takes the place at the end. If anything fails
    on the way, nothing has happened.

    Raises:
        FileExistsError: something is there, and it is not to be written over.
        OSError: it cannot be written.
    """
    refuse_old(place, overwrite=overwrite)
    place = place.resolve()  # a link stays one
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)  # of a process that was killed and had our number
    # What is on a tape is nobody else's business. And a link that somebody put there is not ours.
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "wb") as stream:
            yield stream
        refuse_old(place, overwrite=overwrite)  # that may have taken minutes
        fresh.replace(place)
    finally:
        fresh.unlink(missing_ok=True)


def refuse_old(place: Path, *, overwrite: bool) -> None:
    """Look before hours of work.

    Raises:
        FileExistsError: something is there, and it is not to be written over.
        IsADirectoryError: a folder is.
    """
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(place))
    if not overwrite and place.exists():
        raise FileExistsError(errno.EEXIST, "it is there already", str(place))
