"""Files read once, whatever they turn out to be; what is wrong with one is only noted."""

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
# Without NONBLOCK a named pipe in the place of a file would hold us for ever.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FLAGS |= getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def read_file(path: str) -> bytes | None:
    """The content of a file; None if there is none. Most do not exist, so opening is the question.

    Raises:
        ConfigError: if there is something, but not a file we can and want to read.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as exc:
        if exc.errno in _ABSENT:
            return None
        raise ConfigError(_why(exc), path=path, line=1) from None
    except ValueError:  # a NUL in the path
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise ConfigError(f"{kind} stands where a file is expected", path=path, line=1)
        if status.st_size > MAX_SIZE:
            CONFIG_FILE_BYTES.hit()
            raise ConfigError(f"larger than {MAX_SIZE >> 20} MiB", path=path, line=1)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_SIZE + 1)
    except OSError as exc:
        raise ConfigError(_why(exc), path=path, line=1) from None
    finally:
        os.close(descriptor)
    if len(content) > MAX_SIZE:  # it grew, or its size is not known in advance
        raise ConfigError(f"larger than {MAX_SIZE >> 20} MiB", path=path, line=1)
    return content


def stamp_of(path: str) -> FileStamp:
    """Return what tells one state of a file from another; a missing file has a stamp too."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


class ConfigReader:
    """The files of one reading: each is opened and parsed once, problems are collected."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.read: list[str] = []  # those that exist
        self.unreadable: list[str] = []  # those that exist, and say nothing that can be used
        self.folders: list[str] = []  # those that were looked into
        self._documents: dict[str, Document | None] = {}
        self._contents: dict[str, bytes | None] = {}

    def document(self, path: str) -> Document | None:
        """The file as values; None if it does not exist or cannot be used."""
        if path not in self._documents:
            self._documents[path] = self._open(path)
        return self._documents[path]

    @property
    def looked_for(self) -> list[str]:
        """Every file that was asked for, and every folder, whether they exist or not."""
        return [*self._documents, *self._contents, *self.folders]

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file that an entry refers to; None if it cannot be read."""
        if path not in self._contents:
            try:
                self._contents[path] = read_file(path)
            except ConfigError:
                self._contents[path] = None
        return self._contents[path]

    def names_in(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none if there is no such folder."""
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
            if not content:  # which is how the writing of a new one begins
                self.unreadable.append(path)
            return parse(path, content, strict=False)
        except ConfigError as exc:
            self.unreadable.append(path)
            self.problem(path, exc.line or 1, str(exc.args[0]))
            return None


def _why(exc: OSError) -> str:
    if exc.errno == errno.ELOOP:
        return "a link that leads back to itself"
    return f"cannot be read: {exc.strerror or type(exc).__name__}"
