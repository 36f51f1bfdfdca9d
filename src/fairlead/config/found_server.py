"""What discovery found: a server as it is configured somewhere, and where that is."""

import hashlib
import json
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from ..client.server_entry import MCPServerEntry

__all__ = [
    "EnvironmentReference",
    "FoundServer",
    "Input",
    "Level",
    "NormalizedEntry",
    "Problem",
    "Source",
]

Level: TypeAlias = Literal["user", "project", "local", "managed"]


class Input(Struct, frozen=True):
    """Something a person has to type before the server can be reached."""

    id: str
    description: str = ""
    password: bool = False
    options: tuple[str, ...] = ()
    default: str | None = None


class EnvironmentReference(Struct, frozen=True):
    """A value that is not in the file: it is the environment variable of that name."""

    field: Literal["env", "headers"]
    key: str
    variable: str
    template: str = "{}"  # how the value is spelled in its place: `Bearer {}`


class Source(Struct, frozen=True):
    """Where a server comes from, as far as that is known."""

    provider: str | None = None  # the program whose configuration names it
    provider_name: str | None = None
    path: str | None = None
    level: Level | None = None
    line: int | None = None


class Problem(Struct, frozen=True):
    """Something wrong in a file: what, and where."""

    path: str
    line: int
    reason: str
    harmless: bool = False  # everything works all the same

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class NormalizedEntry(Struct, frozen=True, kw_only=True):
    """An entry in our words, and what our entries have no word for."""

    entry: MCPServerEntry
    enabled: bool = True
    lookups: tuple[EnvironmentReference, ...] = ()
    env_file: str | None = None
    headers_helper: str | None = None
    startup_timeout: float | None = None  # milliseconds
    only_tools: tuple[str, ...] | None = None  # None: all of them
    without_tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    settings: dict[str, Any] = {}  # of its connections; they decide nothing that it runs


class FoundServer(NormalizedEntry, frozen=True, kw_only=True):
    """One configured server. Nothing in it is expanded, so it may be kept and compared."""

    name: str
    host: str
    host_title: str
    path: str
    line: int
    level: Level
    raw: dict[str, Any]  # as it stands in the file; may hold secrets
    dialect: str
    needs_input: tuple[Input, ...] = ()
    workspace: str = ""  # what `${workspaceFolder}` means
    home: str = ""
    platform: str = "linux"
    # The definitions of the inputs it refers to, as they stand in the file.
    declared_inputs: tuple[dict[str, Any], ...] = ()
    # Files that a project's entry refers to, by absolute path, as they were when it was read; None
    # for one that is missing. Only this content is ever used for the entry.
    contents: dict[str, bytes | None] = {}

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def source(self) -> Source:
        return Source(self.host, self.host_title, self.path, self.level, self.line)

    @property
    def in_folder(self) -> bool:
        """Whether it belongs to the folder `workspace` and starts there."""
        return self.level in ("project", "local") and bool(self.workspace)

    @property
    def digest(self) -> str:
        """Changes with every part of the entry; holds no secret."""
        return _hash(list(self.parts.items()))

    @property
    def part_digests(self) -> dict[str, str]:
        """A short hash of each part, to tell later which of them have changed."""
        return {name: _hash(value)[:16] for name, value in self.parts.items()}

    @property
    def parts(self) -> dict[str, Any]:
        """Everything in files that decides what the entry runs, reaches and sends, in order.

        What belongs to the user is not among it: the environment, answers to inputs, and the
        switches that enable a server.
        """
        entry = structs.asdict(self.entry)
        entry.pop(
            "enabled"
        )  # the user's `enabledServers` changes it; `entry` below has it as written
        parts: dict[str, Any] = {"name": self.name, "file": self.path, "folder": self.workspace}
        for key in ("command", "args", "cwd", "url", "type"):
            if key in entry:
                parts[key] = entry.pop(key)
        for field in ("env", "headers"):
            for name, value in entry.pop(field, {}).items():
                parts[f"{field}.{name}"] = value
        for one in self.lookups:
            parts[f"variable for {one.field}.{one.key}"] = [one.variable, one.template]
        parts["envFile"] = self.env_file
        parts["headersHelper"] = self.headers_helper
        for input in self.needs_input:
            parts[f"input {input.id}"] = structs.asdict(input)
        for path, content in self.contents.items():
            parts[f"content of {path}"] = content and hashlib.sha256(content).hexdigest()
        parts["tools"] = [self.only_tools, self.without_tools]
        parts["settings"] = [self.dialect, self.startup_timeout, entry]
        written = {key: value for key, value in self.raw.items() if key not in self.settings}
        parts["entry"] = [written, self.declared_inputs]
        return parts

    def __repr__(self) -> str:  # the raw entry may hold secrets, and reprs end up in logs
        return f"<Found {self.name!r} of {self.host_title} ({self.level}) in {self.place}>"

    __str__ = __repr__


def _hash(value: Any) -> str:
    """Hash a value in its order: of two headers that differ in case only, the last may count."""
    text = json.dumps(value, separators=(",", ":"), default=repr)  # ASCII, also for surrogates
    return hashlib.sha256(text.encode()).hexdigest()
