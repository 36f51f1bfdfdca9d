"""Atomic replacement of files: readers see the old or the new content, never a part of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["replacing", "write_atomically"]

# Without O_EXCL, a symbolic link that another user created there would be followed.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
_FLAGS |= getattr(os, "O_BINARY", 0)


@contextmanager
def replacing(path: Path, *, mode: int | None = 0o600, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the `with` block ends without an exception.

    If the block fails, the old file stays unchanged. Without `mode`, an existing file keeps its
    permissions, and a new file gets those of the umask. `durable` waits until the content is on
    disk. A symbolic link is replaced, not followed.

    Raises:
        OSError: The file cannot be written.
    """
    if mode is None:
        with suppress(FileNotFoundError):
            mode = path.stat().st_mode & 0o777
    # Created in the same folder, because `os.replace` is atomic only within one file system.
    fresh = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(fresh, _FLAGS, 0o666 if mode is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if mode is not None:
            os.chmod(fresh, mode)
        os.replace(fresh, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh)
        raise


def write_atomically(
    path: Path, content: bytes, *, mode: int | None = 0o600, durable: bool = False
) -> None:
    """Replace the content of a file atomically; see `replacing`."""
    with replacing(path, mode=mode, durable=durable) as file:
        file.write(content)
