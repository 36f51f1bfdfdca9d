"""What discovery found: a server as it is configured somewhere, and where that is."""

import hashlib
import json
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..client.entries import MCPServerEntry

__all__ = ["Found", "Input", "Level", "Lookup", "Problem", "Source"]

Level: TypeAlias = Literal["user", "project", "local", "managed"]


class Input(Struct, frozen=True):
    """Something a person has to type before the server can be reached."""

    id: str
    description: str = ""
    password: bool = False
    options: tuple[str, ...] = ()
    default: str | None = None


class Lookup(Struct, frozen=True):
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


class Found(Struct, frozen=True, kw_only=True):
    """One configured server. Nothing in it is expanded, so it may be kept and compared."""

    name: str
    host: str
    host_title: str
    path: str
    line: int
    level: Level
    raw: dict[str, Any]  # as it stands in the file; may hold secrets
    entry: MCPServerEntry
    dialect: str
    enabled: bool = True
    needs_input: tuple[Input, ...] = ()
    lookups: tuple[Lookup, ...] = ()
    env_file: str | None = None
    headers_helper: str | None = None
    startup_timeout: float | None = None  # milliseconds
    only_tools: tuple[str, ...] | None = None  # None: all of them
    without_tools: tuple[str, ...] = ()
    workspace: str = ""  # what `${workspaceFolder}` means
    home: str = ""
    platform: str = "linux"
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def digest(self) -> str:
        """Changes with every character of the entry, its name and its file; holds no secret."""
        text = json.dumps([self.path, self.name, self.raw], sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def __repr__(self) -> str:  # the raw entry may hold secrets, and reprs end up in logs
        return f"<Found {self.name!r} of {self.host_title} ({self.level}) in {self.place}>"

    __str__ = __repr__
