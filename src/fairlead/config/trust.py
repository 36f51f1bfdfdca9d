"""Approvals: servers in project files may be run or connected only after the user has approved
them.
"""

import json
import logging
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..client.server_entry import MCPStdioServerConfig
from ..errors import ConfigError
from ..redaction.redact_text import redact
from ..store.atomic_write import write_atomically
from .files.config_reader import read_file
from .files.file_lock import lock_folder
from .found_server import FoundServer
from .paths import HostPaths, local_host_paths

__all__ = ["Approval", "NotApproved", "Trust"]

log = logging.getLogger("fairlead.manager")

# Approvals in version 1 covered the text of the entry, but neither its inputs nor its files.
_VERSION = 2

# The approval state of an entry. "changed" means that the entry differs from the approved entry.
Approval: TypeAlias = Literal["approved", "missing", "changed"]

_WHY: dict[Approval, str] = {
    "missing": "is not approved",
    "changed": "has changed since it was approved",
}


class NotApproved(ConfigError):
    """An entry in a project file that is not approved."""


class Trust:
    """The user's approvals. An approval covers an entry in its current form; any change requires a
    new approval.

    The file is read on first use and again before each change. A lock keeps two processes from
    changing it at the same time.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else _usual(local_host_paths())
        self.warnings: list[str] = []
        self._approved: dict[str, Any] | None = None

    @classmethod
    def of(cls, machine: HostPaths) -> "Trust":
        """Return the approvals that are stored on a machine."""
        return cls(_usual(machine))

    def trusts(self, found: FoundServer) -> bool:
        """Return True if an entry may be run or connected."""
        return self.approval(found) == "approved"

    def approval(self, found: FoundServer) -> Approval:
        """Return the approval state of an entry."""
        known = self._known()
        if found.level != "project" or found.digest in known:
            return "approved"
        return "missing" if self.last(found) is None else "changed"

    def rejection_reason(self, found: FoundServer) -> str:
        """Return the reason why an entry must not run, as a phrase that follows its name:
        "is not approved".
        """
        return _WHY.get(self.approval(found), "is approved")

    def changes(self, found: FoundServer) -> list[str] | None:
        """Return the names of the entry's parts that changed since its last approval.

        None if there is no earlier approval.
        """
        before = self.last(found)
        if before is None:
            return None
        then, now = before.get("parts"), found.part_digests
        if not isinstance(then, dict):
            return None
        changed = [name for name, digest in now.items() if then.get(name) != digest]
        changed += [name for name in then if name not in now]
        # The part "entry" covers the whole text, so a change to any other part changes it too.
        return [name for name in changed if name != "entry"] or ["other keys, or their order"]

    def last(self, found: FoundServer) -> dict[str, Any] | None:
        """Return the record of the last approval for the same name and file."""
        about = [what for what in self._known().values() if _is_about(what, found)]
        return about[-1] if about else None

    def require(self, found: FoundServer) -> None:
        """Check that an entry is approved.

        Raises:
            NotApproved: The entry is not approved.
        """
        if not self.trusts(found):
            why = self.rejection_reason(found)
            raise NotApproved(
                f'Server "{found.name}" comes from a project file and {why}',
                path=found.path,
                line=found.line,
            )

    def approve(self, found: FoundServer) -> None:
        """Store the approval of an entry.

        Raises:
            OSError: The approval cannot be stored.
        """
        with self._changing() as known:
            known.pop(found.digest, None)  # moved to the end, where the newest approval is stored
            known[found.digest] = {**_what(found), "parts": found.part_digests, **_shown(found)}

    def revoke(self, found: FoundServer) -> bool:
        """Delete the approvals for an entry's name and file; return True if there were any.

        Raises:
            OSError: The change cannot be stored.
        """
        with self._changing() as known:
            gone = [digest for digest, what in known.items() if _is_about(what, found)]
            for digest in gone:
                del known[digest]
        return bool(gone)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """Lock and read the approvals; write them at the end of the `with` block."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock_folder(self.path.parent):
            # Another process may have changed the file since it was read.
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
            # A file that other users can write to is ignored, because they could add approvals.
            self._refuse_others()
            data = json.loads(content)
            approved = data["approved"]
            if data["version"] != _VERSION:
                raise ConfigError("the file was written by another version of Fairlead")
            if not isinstance(approved, dict):
                raise TypeError
        except ConfigError as exc:
            self._warn(str(exc.args[0]))
        except (ValueError, TypeError, KeyError, RecursionError):
            self._warn("the file is corrupted")
        else:
            return approved
        return {}

    def _refuse_others(self) -> None:
        """Raise `ConfigError` if another user could have written the file."""
        if os.name != "posix":
            return
        status = os.stat(self.path)
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigError("other users can write to the file")

    def _warn(self, reason: str) -> None:
        text = f"{self.path}: {reason}; all approvals are ignored"
        if text not in self.warnings:
            self.warnings.append(text)
            log.warning("%s", text)

    def _write(self) -> None:
        content = json.dumps({"version": _VERSION, "approved": self._approved}, indent=1) + "\n"
        write_atomically(self.path, content.encode(), durable=True)


def _what(found: FoundServer) -> dict[str, str]:
    return {"name": found.name, "path": found.path}


def _is_about(what: Any, found: FoundServer) -> bool:
    return isinstance(what, dict) and _what(found).items() <= what.items()


def _shown(found: FoundServer) -> dict[str, str]:
    """Return the command or URL without secrets, to compare with later versions of the entry."""
    entry = found.entry
    if isinstance(entry, MCPStdioServerConfig):
        return {"runs": redact(shlex.join([entry.command, *entry.args]))}
    return {"reaches": redact(entry.url)}


def _usual(machine: HostPaths) -> Path:
    return Path(machine.join(machine.own_data, "approvals.json"))
