"""Results of discovery: configured servers and the files they come from."""

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
    """A value that the user must enter before the server is connected, unless it has a default."""

    id: str
    description: str = ""
    password: bool = False
    options: tuple[str, ...] = ()
    default: str | None = None


class EnvironmentReference(Struct, frozen=True):
    """A value in `env` or `headers` that is read from an environment variable."""

    field: Literal["env", "headers"]
    key: str
    variable: str
    template: str = "{}"  # for example `Bearer {}`


class Source(Struct, frozen=True):
    """The configuration file and host program in which a server was found.

    Unknown fields are None.
    """

    provider: str | None = None  # the host program whose file configures the server
    provider_name: str | None = None
    path: str | None = None
    level: Level | None = None
    line: int | None = None


class Problem(Struct, frozen=True):
    """A problem in a configuration file, with its position."""

    path: str
    line: int
    reason: str
    harmless: bool = False  # True if the server works despite the problem

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class NormalizedEntry(Struct, frozen=True, kw_only=True):
    """An entry in Fairlead's format, with values that have no field in `MCPServerEntry`."""

    entry: MCPServerEntry
    enabled: bool = True
    lookups: tuple[EnvironmentReference, ...] = ()
    env_file: str | None = None
    headers_helper: str | None = None
    startup_timeout: float | None = None  # time limit for connecting, in milliseconds
    only_tools: tuple[str, ...] | None = None  # None means all tools
    without_tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    # Connection settings: not part of an approval, as they do not change the command or URL.
    settings: dict[str, Any] = {}


class FoundServer(NormalizedEntry, frozen=True, kw_only=True):
    """A configured server. Its variables are unresolved, so it may be stored and compared."""

    name: str
    host: str
    host_title: str
    path: str
    line: int
    level: Level
    raw: dict[str, Any]  # as written in the file; may contain secrets
    dialect: str
    needs_input: tuple[Input, ...] = ()
    workspace: str = ""  # the value of `${workspaceFolder}`
    home: str = ""
    platform: str = "linux"
    # The definitions of the inputs that the entry refers to, as written in the file.
    declared_inputs: tuple[dict[str, Any], ...] = ()
    # Contents of the files that a project's entry refers to, by absolute path, at the time of
    # reading; None for a missing file. Resolving uses only these contents, so an approval covers
    # them.
    contents: dict[str, bytes | None] = {}

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def source(self) -> Source:
        return Source(self.host, self.host_title, self.path, self.level, self.line)

    @property
    def in_folder(self) -> bool:
        """Return True if the entry belongs to the folder `workspace`; its command starts there."""
        return self.level in ("project", "local") and bool(self.workspace)

    @property
    def digest(self) -> str:
        """Return a hash of `parts`, which an approval covers; it does not reveal secrets."""
        return _hash(list(self.parts.items()))

    @property
    def part_digests(self) -> dict[str, str]:
        """Return a short hash of each part of the entry, to detect later which parts changed."""
        return {name: _hash(value)[:16] for name, value in self.parts.items()}

    @property
    def parts(self) -> dict[str, Any]:
        """Return all content of files that determines the command, the connection and the sent
        values.

        Values from the user are not included: the environment, entered inputs, and the lists that
        enable a server.
        """
        entry = structs.asdict(self.entry)
        # The user's `enabledServers` changes `enabled`, whose written value is in the part `entry`
        # below. `era` is a connection setting.
        del entry["enabled"], entry["era"]
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

    # The raw entry may contain secrets, and a repr may be written to logs.
    def __repr__(self) -> str:
        return f"<Found {self.name!r} of {self.host_title} ({self.level}) in {self.place}>"

    __str__ = __repr__


def _hash(value: Any) -> str:
    """Hash a value. Keys are not sorted, because the order of headers can change their meaning."""
    # ASCII output, even for surrogates.
    text = json.dumps(value, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode()).hexdigest()
