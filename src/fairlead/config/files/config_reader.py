"""Reading of configuration files.

Each file is read once, and problems are collected, not raised.
"""

import errno
import os
import stat
from typing import TypeAlias

from ...errors import ConfigError
from ...limits import CONFIG_FILE_BYTES
from ..found_server import Problem
from .formats import Document, parse

__all__ = ["MAX_SIZE", "ConfigReader", "FileStamp", "read_file", "stamp_of"]

MAX_SIZE = CONFIG_FILE_BYTES.value

FileStamp: TypeAlias = tuple[int, int, int]

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
# Without NONBLOCK, opening a named pipe instead of a file would block until a writer opens it.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FLAGS |= getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def read_file(path: str) -> bytes | None:
    """Return the content of a file; None if it does not exist.

    The file is opened without checking first whether it exists, because most candidates do not.

    Raises:
        ConfigError: The path exists but is not a readable regular file, or the file is too large.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as exc:
        if exc.errno in _ABSENT:
            return None
        raise ConfigError(_why(exc), path=path, line=1) from None
    except ValueError:  # a NUL character in the path
        return None
    try:
        # The open descriptor is checked, because the path may be replaced after a check.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ConfigError(f"expected a file, but the path is {kind}", path=path, line=1)
        if status.st_size > MAX_SIZE:
            CONFIG_FILE_BYTES.hit()
            raise ConfigError(f"larger than {MAX_SIZE >> 20} MiB", path=path, line=1)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_SIZE + 1)
    except OSError as exc:
        raise ConfigError(_why(exc), path=path, line=1) from None
    finally:
        os.close(descriptor)
    if len(content) > MAX_SIZE:  # the file has grown, or its size is not reported (procfs)
        raise ConfigError(f"larger than {MAX_SIZE >> 20} MiB", path=path, line=1)
    return content


def stamp_of(path: str) -> FileStamp:
    """Return a file's modification time, size and inode; zeros for a missing file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


class ConfigReader:
    """Reader of the files for one discovery, which parses each file once and collects problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.read: list[str] = []  # existing files
        self.unreadable: list[str] = []  # existing files without usable content
        self.folders: list[str] = []  # folders that were listed
        self._documents: dict[str, Document | None] = {}
        self._contents: dict[str, bytes | None] = {}

    def document(self, path: str) -> Document | None:
        """Return a file's parsed content; None if it does not exist or cannot be parsed."""
        if path not in self._documents:
            self._documents[path] = self._open(path)
        return self._documents[path]

    @property
    def looked_for(self) -> list[str]:
        """Return every file and folder that was requested, whether it exists or not."""
        return [*self._documents, *self._contents, *self.folders]

    def content(self, path: str) -> bytes | None:
        """Return the content of a file that an entry refers to; None if it cannot be read."""
        if path not in self._contents:
            try:
                self._contents[path] = read_file(path)
            except ConfigError:
                self._contents[path] = None
        return self._contents[path]

    def names_in(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; empty if it does not exist or cannot be read."""
        self.folders.append(folder)
        try:
            return sorted(os.listdir(folder))
        except (OSError, ValueError):
            return []

    def problem(self, path: str, line: int, reason: str, *, harmless: bool = False) -> None:
        self.problems.append(Problem(path, line, reason, harmless))

    def _open(self, path: str) -> Document | None:
        try:
            content = read_file(path)
            if content is None:
                return None
            self.read.append(path)
            # Editors truncate a file before they write it, so an empty file may be incomplete.
            if not content:
                self.unreadable.append(path)
            return parse(path, content, strict=False)
        except ConfigError as exc:
            self.unreadable.append(path)
            self.problem(path, exc.line or 1, str(exc.args[0]))
            return None


def _why(exc: OSError) -> str:
    if exc.errno == errno.ELOOP:
        return "a symbolic link that points to itself"
    return f"cannot be read: {exc.strerror or type(exc).__name__}"
