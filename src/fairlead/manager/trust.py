"""Who may run things: files of a project may not, until a person has seen exactly what they say."""

import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .files import read_file
from .found import Found
from .locking import holding
from .places import Machine, this_machine

__all__ = ["NotApproved", "Trust"]

log = logging.getLogger("fairlead.manager")

_VERSION = 1


class NotApproved(ConfigError):
    """A project's file wants something run or reached that nobody has approved."""


class Trust:
    """Approvals, each for one entry as it stands: a changed character asks again.

    The file is read when it is first needed and again before each change, and two processes that
    change it at once wait for each other.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else _usual(this_machine())
        self.warnings: list[str] = []
        self._approved: dict[str, Any] | None = None

    @classmethod
    def of(cls, machine: Machine) -> "Trust":
        """The approvals kept on a machine."""
        return cls(_usual(machine))

    def trusts(self, found: Found) -> bool:
        """Whether an entry may run and reach things."""
        return found.level != "project" or found.digest in self._known()

    def require(self, found: Found) -> None:
        """Return if an entry is trusted.

        Raises:
            NotApproved: if it is not.
        """
        if not self.trusts(found):
            raise NotApproved(
                f'Server "{found.name}" comes from a file of the project and is not approved',
                path=found.path,
                line=found.line,
            )

    def approve(self, found: Found) -> None:
        """Remember that somebody has seen this entry and wants it.

        Raises:
            OSError: if it cannot be remembered.
        """
        with self._changing() as known:
            known[found.digest] = _what(found)

    def revoke(self, found: Found) -> bool:
        """Forget what was approved under that name of that file, whatever it said.

        Returns whether there was anything.

        Raises:
            OSError: if that cannot be remembered.
        """
        with self._changing() as known:
            gone = [digest for digest, what in known.items() if what == _what(found)]
            for digest in gone:
                del known[digest]
        return bool(gone)

    def trusted_before(self, found: Found) -> bool:
        """Whether that name of that file was approved when it said something else."""
        return any(
            what == _what(found) and digest != found.digest
            for digest, what in self._known().items()
        )

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """What is approved, as it is now, to be changed while nobody else does."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with holding(self.path.parent):
            self._approved = None
            yield self._known()
            self._write()

    def _known(self) -> dict[str, Any]:
        if self._approved is None:
            self._approved = self._read()
        return self._approved

    def _read(self) -> dict[str, Any]:
        try:
            content = read_file(str(self.path))
            if content is None:
                return {}
            self._refuse_others()
            data = json.loads(content)
            approved = data["approved"] if data["version"] == _VERSION else None
            if not isinstance(approved, dict):
                raise TypeError
        except ConfigError as exc:
            self._warn(str(exc.args[0]))
        except (ValueError, TypeError, KeyError, RecursionError):
            self._warn("the file is corrupt")
        else:
            return approved
        return {}

    def _refuse_others(self) -> None:
        """A file that somebody else may write says nothing about what the user approved."""
        if os.name != "posix":
            return
        status = os.stat(self.path)
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError("others can write to the file")

    def _warn(self, reason: str) -> None:
        text = f"{self.path}: {reason}; nothing counts as approved"
        if text not in self.warnings:
            self.warnings.append(text)
            log.warning("%s", text)

    def _write(self) -> None:
        content = json.dumps({"version": _VERSION, "approved": self._approved}, indent=1)
        write_atomically(self.path, content + "\n")


def write_atomically(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file at once, so that nobody ever sees half of it.

    Raises:
        OSError: if that is not possible; the old file is then untouched.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _what(found: Found) -> dict[str, str]:
    return {"name": found.name, "path": found.path}


def _usual(machine: Machine) -> Path:
    return Path(machine.join(machine.own_data, "approvals.json"))
