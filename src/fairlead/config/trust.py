"""Who may run things: files of a project may not, until a person has seen exactly what they say."""

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
from .files.atomic_write import write_atomically
from .files.config_reader import read_file
from .files.file_lock import lock_folder
from .found_server import FoundServer
from .paths import HostPaths, local_host_paths

__all__ = ["Approval", "NotApproved", "Trust"]

log = logging.getLogger("fairlead.manager")

# Version 1 covered the entry's own text, but neither inputs nor files that it refers to.
_VERSION = 2
_OUTDATED = 1

# How an entry stands: "changed" was approved when it said something else, "outdated" by a version
# of Fairlead whose approvals covered less.
Approval: TypeAlias = Literal["approved", "missing", "changed", "outdated"]

_WHY: dict[Approval, str] = {
    "missing": "is not approved",
    "changed": "has changed since it was approved",
    "outdated": "was approved by an earlier version of Fairlead, whose approvals did not cover "
    "everything that can run: it has to be approved again",
}


class NotApproved(ConfigError):
    """A project's file wants something run or reached that nobody has approved."""


class Trust:
    """Approvals, each for one entry as it stands: a changed character asks again.

    The file is read when it is first needed and again before each change, and two processes that
    change it at once wait for each other.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else _usual(local_host_paths())
        self.warnings: list[str] = []
        self._approved: dict[str, Any] | None = None
        self._outdated: list[dict[str, Any]] = []  # approvals that count no longer

    @classmethod
    def of(cls, machine: HostPaths) -> "Trust":
        """The approvals kept on a machine."""
        return cls(_usual(machine))

    def trusts(self, found: FoundServer) -> bool:
        """Whether an entry may run and reach things."""
        return self.approval(found) == "approved"

    def approval(self, found: FoundServer) -> Approval:
        """How an entry stands, and if it may not run, why."""
        known = self._known()
        if found.level != "project" or found.digest in known:
            return "approved"
        if any(_is_about(what, found) for what in known.values()):
            return "changed"
        return "outdated" if any(_is_about(w, found) for w in self._outdated) else "missing"

    def rejection_reason(self, found: FoundServer) -> str:
        """Say why an entry may not run, to be put after its name."""
        return _WHY.get(self.approval(found), "is approved")

    def changes(self, found: FoundServer) -> list[str] | None:
        """Name the parts of an entry that differ from what was approved last.

        None if nothing was approved that can be compared.
        """
        before = self.last(found)
        if before is None:
            return None
        then, now = before.get("parts"), found.part_digests
        if not isinstance(then, dict):
            return None
        changed = [name for name, digest in now.items() if then.get(name) != digest]
        changed += [name for name in then if name not in now]
        # Everything in the entry is also part of its text.
        return [name for name in changed if name != "entry"] or ["other keys, or their order"]

    def last(self, found: FoundServer) -> dict[str, Any] | None:
        """Return the record of what was approved last under that name of that file."""
        about = [what for what in self._known().values() if _is_about(what, found)]
        return about[-1] if about else None

    def require(self, found: FoundServer) -> None:
        """Return if an entry is trusted.

        Raises:
            NotApproved: if it is not.
        """
        if not self.trusts(found):
            why = self.rejection_reason(found)
            raise NotApproved(
                f'Server "{found.name}" comes from a file of the project and {why}',
                path=found.path,
                line=found.line,
            )

    def approve(self, found: FoundServer) -> None:
        """Remember that somebody has seen this entry and wants it.

        Raises:
            OSError: if it cannot be remembered.
        """
        with self._changing() as known:
            known.pop(found.digest, None)  # the last one approved stands last
            known[found.digest] = {**_what(found), "parts": found.part_digests, **_shown(found)}
            self._outdated = [what for what in self._outdated if not _is_about(what, found)]

    def revoke(self, found: FoundServer) -> bool:
        """Forget what was approved under that name of that file, whatever it said.

        Returns whether there was anything.

        Raises:
            OSError: if that cannot be remembered.
        """
        with self._changing() as known:
            gone = [digest for digest, what in known.items() if _is_about(what, found)]
            for digest in gone:
                del known[digest]
            self._outdated = [what for what in self._outdated if not _is_about(what, found)]
        return bool(gone)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """What is approved, as it is now, to be changed while nobody else does."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock_folder(self.path.parent):
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
            approved = data["approved"]
            if data["version"] not in (_VERSION, _OUTDATED) or not isinstance(approved, dict):
                raise TypeError
            outdated = data.get("outdated", [])
            if data["version"] == _OUTDATED:
                approved, outdated = {}, list(approved.values())
            self._outdated = [what for what in outdated if isinstance(what, dict)]
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
        known: dict[str, Any] = {"version": _VERSION, "approved": self._approved}
        if self._outdated:
            known["outdated"] = self._outdated
        content = json.dumps(known, indent=1) + "\n"
        write_atomically(self.path, content.encode(), durable=True)


def _what(found: FoundServer) -> dict[str, str]:
    return {"name": found.name, "path": found.path}


def _is_about(what: Any, found: FoundServer) -> bool:
    return isinstance(what, dict) and _what(found).items() <= what.items()


def _shown(found: FoundServer) -> dict[str, str]:
    """What it runs or reaches, without secrets, to be shown beside what it says later."""
    entry = found.entry
    if isinstance(entry, MCPStdioServerConfig):
        return {"runs": redact(shlex.join([entry.command, *entry.args]))}
    return {"reaches": redact(entry.url)}


def _usual(machine: HostPaths) -> Path:
    return Path(machine.join(machine.own_data, "approvals.json"))
