"""Format of a tape: one JSON object per line, each with a message, and a companion file.

    {"seq":1,"at":0.0012,"dir":"client_to_server","session":"s1","message":{"jsonrpc":"2.0",...}}

Lines are only appended, so a tape can be read while it is written, and a truncated tape is valid up
to its last complete line. `NAME.tape.jsonl` contains the lines, `NAME.tape.json` the metadata.
Messages contain the ids and progress tokens that the client used, not those of the server.
"""

import os
import shlex
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Raw, Struct, field

from ...protocol.envelope import Direction
from ...wire import RequestId

if TYPE_CHECKING:
    from ...client.server_entry import MCPServerEntry

__all__ = [
    "ABOUT",
    "LINES",
    "VERSION",
    "TapeEntry",
    "TapeInfo",
    "about_entry",
    "base_of",
    "command_of",
]

VERSION: Final = 1  # version of the tape format
LINES: Final = ".tape.jsonl"
ABOUT: Final = ".tape.json"

# Seconds since the epoch, up to the year 9987, because dates end in the year 9999.
Moment: TypeAlias = Annotated[float, Meta(ge=0, lt=253_000_000_000)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class TapeEntry(Struct, omit_defaults=True, kw_only=True):
    """A message on a tape."""

    seq: int
    at: float  # seconds since the tape started
    dir: Direction
    message: Raw
    # label of a client's connection; None if the message is for all clients
    session: str | None = None
    # Id of the client's request during which a server sent the message.
    related: RequestId | None = None
    server: str | None = None  # name of the server, if several servers share an endpoint
    transport: dict[str, Any] | None = None
    did: list[str] | None = None  # notes of interceptors
    stopped: bool = False  # True if the message was not forwarded


class TapeInfo(Struct, omit_defaults=True, kw_only=True):
    """The content of the companion file."""

    version: int = VERSION
    name: str = ""
    began: Moment = 0.0
    ended: Moment | None = None
    status: Literal["recording", "complete", "cut"] = "recording"
    tags: list[str] = field(default_factory=list)
    entries: Count = 0
    lost: Count = 0  # number of messages that could not be written
    parts: Annotated[int, Meta(ge=1)] = 1  # number of files; more than 1 if the tape was rotated
    redacted: bool = True
    fairlead: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # the command or URL that was recorded


def about_entry(entry: "MCPServerEntry | None") -> dict[str, Any]:
    """Return a server's description for the companion file."""
    if entry is None:
        return {}
    if entry.type == "stdio":
        return {"command": [entry.command, *entry.args]}
    return {"url": entry.url}


def command_of(info: TapeInfo) -> list[str]:
    """Return the recorded command as a list, even if it is stored as one string.

    The list is empty if there is no command or its quotes are unbalanced.
    """
    command = info.about.get("command")
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError:  # unbalanced quotes
            return []
    return [str(word) for word in command] if isinstance(command, list) else []


def base_of(path: str | os.PathLike[str]) -> str:
    """Return a tape's path without its suffix."""
    return os.fspath(path).removesuffix(LINES).removesuffix(ABOUT)
