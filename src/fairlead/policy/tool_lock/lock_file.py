"""Lock file with the definition and digest of each tool, by server.

    {"version": 1, "servers": {"notes": {"tools": {"add": {"digest": "sha256:...",
     "definition": {"name": "add", ...}}}}}}

The definition is stored with its digest, so that differences can be shown. It is the text that a
model reads, and the file can be reviewed like source code.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from ...config.files.config_reader import stamp_of
from ...errors import ConfigError
from ...protocol.targets.name_forms import normalize_name
from ...store.atomic_write import write_atomically

__all__ = [
    "FILE",
    "LockFileWatcher",
    "LockedServer",
    "LockedTool",
    "ToolLockData",
    "canonical",
    "digest_of",
    "lock_tools",
    "read_lock",
    "write_lock",
]

VERSION: Final = 1  # version of the file format
FILE: Final = "fairlead.lock.json"
# minimum number of seconds between two checks of the file, which messages trigger
LOOK_AGAIN: Final = 0.5
# Members that are not part of the definition: metadata added by intermediaries, and icons.
_BESIDE: Final = ("_meta", "icons")

log = logging.getLogger("fairlead.gateway.lock")


class LockedTool(Struct, frozen=True):
    """An approved tool."""

    digest: str
    definition: dict[str, Any]


class LockedServer(Struct, frozen=True):
    """The tools of one server."""

    tools: dict[str, LockedTool] = field(default_factory=dict)


class ToolLockData(Struct, frozen=True):
    """All approved tools."""

    version: int = VERSION
    servers: dict[str, LockedServer] = field(default_factory=dict)

    def tool(self, server: str, name: str) -> LockedTool | None:
        locked = self.servers.get(server)
        return None if locked is None else locked.tools.get(name)

    def listed_as(self, server: str, name: str) -> str:
        """Return a tool's name in the lock file.

        It differs from `name` if a call uses another spelling that the server may accept.
        """
        locked = self.servers.get(server)
        if locked is None or name in locked.tools:
            return name
        spelled = normalize_name(name).casefold()
        alike = (one for one in locked.tools if normalize_name(one).casefold() == spelled)
        return next(alike, name)


def canonical(definition: Mapping[str, Any]) -> bytes:
    """Encode a definition; equal definitions give the same bytes (sorted members,
    no whitespace).
    """
    told = {key: value for key, value in definition.items() if key not in _BESIDE}
    text = json.dumps(told, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return text.encode()


def digest_of(definition: Mapping[str, Any]) -> str:
    """Return the digest of a definition."""
    return f"sha256:{hashlib.sha256(canonical(definition)).hexdigest()}"


def lock_tools(tools: Iterable[Mapping[str, Any]]) -> LockedServer:
    """Approve tools in their current form."""
    known = {}
    for tool in sorted(tools, key=lambda one: str(one.get("name"))):
        plain = {key: value for key, value in tool.items() if key not in _BESIDE}
        known[str(tool.get("name"))] = LockedTool(digest_of(tool), plain)
    return LockedServer(known)


def read_lock(path: str | os.PathLike[str]) -> ToolLockData:
    """Read and verify a lock file.

    Raises:
        ConfigError: The file is missing, is not a lock file of this version, or has a digest that
            does not match its definition.
    """
    name = os.fspath(path)
    try:
        raw = Path(path).read_bytes()
    except OSError as exc:
        raise ConfigError(f"cannot be read: {exc.strerror or exc}", path=name) from exc
    try:
        lock = msgspec.json.decode(raw, type=ToolLockData)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ConfigError(f"is not a lock file: {exc}", path=name) from exc
    if lock.version != VERSION:
        raise ConfigError(
            f"has lock file version {lock.version}; this Fairlead reads version {VERSION}",
            path=name,
        )
    for server, locked in lock.servers.items():
        for tool, one in locked.tools.items():
            if one.digest != digest_of(one.definition):
                raise ConfigError(
                    f"{server}/{tool}: the digest does not match the definition; "
                    "run `fairlead lock` to approve the tools again",
                    path=name,
                )
    return lock


def write_lock(path: str | os.PathLike[str], lock: ToolLockData) -> None:
    """Replace the file atomically.

    Raises:
        OSError: The file cannot be written.
    """
    ordered = {name: lock.servers[name] for name in sorted(lock.servers)}
    text = json.dumps(msgspec.to_builtins(ToolLockData(lock.version, ordered)), indent=2)
    write_atomically(Path(path), text.encode() + b"\n", mode=None)


class LockFileWatcher:
    """A lock file that is reloaded when it changes, so that new approvals take effect.

    If the file is invalid, the error is logged and the previous lock stays active.
    """

    def __init__(self, path: str | os.PathLike[str], *, interval: float = LOOK_AGAIN) -> None:
        """Read the file.

        Raises:
            ConfigError: The file is missing or is not a lock file.
        """
        self.path = os.fspath(path)
        self._interval = interval
        # The stamp is read before the file, so that a change in between is detected later.
        self._read = stamp_of(self.path)
        self.lock: ToolLockData = read_lock(path)
        self._look_at = time.monotonic() + interval

    def reload_if_changed(self) -> bool:
        """Read the file again if it has changed; return True if it was reloaded."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + self._interval
        stamp = stamp_of(self.path)
        if stamp == self._read:
            return False
        # Set before reading, so that an invalid file is reported only once.
        self._read = stamp
        try:
            self.lock = read_lock(self.path)
        except ConfigError as exc:
            log.error("the tool lock was not reloaded: %s", exc)
            return False
        log.info("%s: reloaded the tool lock", self.path)
        return True
