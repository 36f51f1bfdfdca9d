"""Files that a command writes: an existing one is replaced only if the user wants that."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...config.files.atomic_write import replacing

__all__ = ["check_not_existing", "open_output"]


@contextmanager
def open_output(place: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of another when the block ends well; a link stays one.

    Raises:
        FileExistsError: something is there, and it is not to be written over.
        OSError: it cannot be written.
    """
    check_not_existing(place, overwrite=overwrite)
    with replacing(place.resolve()) as stream:
        yield stream
        check_not_existing(place, overwrite=overwrite)  # that may have taken minutes


def check_not_existing(place: Path, *, overwrite: bool) -> None:
    """Look before hours of work.

    Raises:
        FileExistsError: something is there, and it is not to be written over.
        IsADirectoryError: a folder is.
    """
    if place.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(place))
    if not overwrite and place.exists():
        raise FileExistsError(errno.EEXIST, "it is there already", str(place))
