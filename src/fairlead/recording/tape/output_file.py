"""Output files of commands; an existing file is replaced only on request."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...store.atomic_write import replacing

__all__ = ["check_not_existing", "open_output"]


@contextmanager
def open_output(place: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a new file that replaces `place` when the `with` block ends without an exception.

    A symbolic link is kept, and its target is replaced.

    Raises:
        FileExistsError: The file exists and `overwrite` is not set.
        OSError: The file cannot be written.
    """
    check_not_existing(place, overwrite=overwrite)
    with replacing(place.resolve()) as stream:
        yield stream
        # Another process may have created the file in the meantime.
        check_not_existing(place, overwrite=overwrite)


def check_not_existing(place: Path, *, overwrite: bool) -> None:
    """Check an output path before its content is produced.

    Raises:
        FileExistsError: The file exists and `overwrite` is not set.
        IsADirectoryError: The path is a directory.
    """
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "the path is a directory", str(place))
    if not overwrite and place.exists():
        raise FileExistsError(errno.EEXIST, "the file already exists", str(place))
