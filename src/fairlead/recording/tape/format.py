"""What a tape is: one JSON object per line, each a message and how it came; and a file about it.

    {"seq":1,"at":0.0012,"dir":"client_to_server","session":"s1","message":{"jsonrpc":"2.0",...}}

Lines are only ever added, so a tape can be read while it is written, and one that was cut off is
good up to its last whole line. `NAME.tape.jsonl` has the lines, `NAME.tape.json` what they are.
Messages carry the names that the client gave: progress has the client's token.
"""

import os
import shlex
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Raw, Struct, field

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

VERSION: Final = 1
LINES: Final = ".tape.jsonl"
ABOUT: Final = ".tape.json"


class TapeEntry(Struct, omit_defaults=True, kw_only=True):
    """One message on a tape."""

    seq: int
    at: float  # seconds since the tape began
    dir: Direction
    message: Raw
    session: str | None = None  # one client's connection; None: it is for all of them
    related: RequestId | None = None  # the request of the client during which a server spoke
    server: str | None = None  # which one, where several are behind one endpoint
    transport: dict[str, Any] | None = None
    did: list[str] | None = None  # what interceptors did to it
    stopped: bool = False  # it was not passed on


class TapeInfo(Struct, omit_defaults=True, kw_only=True):
    """The companion file: what is on a tape."""

    version: int = VERSION
    name: str = ""
    began: float = 0.0  # seconds since the epoch
    ended: float | None = None
    status: Literal["recording", "complete", "cut"] = "recording"
    tags: list[str] = field(default_factory=list)
    entries: int = 0
    lost: int = 0  # messages that could not be written
    parts: int = 1  # files, where it was rotated
    redacted: bool = True
    fairlead: str = ""
    about: dict[str, Any] = field(default_factory=dict)  # the command or URL that was recorded


def about_entry(entry: "MCPServerEntry | None") -> dict[str, Any]:
    """What a tape says of the server that an entry describes."""
    if entry is None:
        return {}
    if entry.type == "stdio":
        return {"command": [entry.command, *entry.args]}
    return {"url": entry.url}


def command_of(info: TapeInfo) -> list[str]:
    """The command that was recorded, if it was one; it may be written as one text."""
    command = info.about.get("command")
    if isinstance(command, str):
        try:
            return shlex.split(command)
        except ValueError:  # a quotation that does not end
            return []
    return [str(word) for word in command] if isinstance(command, list) else []


def base_of(path: str | os.PathLike[str]) -> str:
    """The path of a tape without its ending."""
    return os.fspath(path).removesuffix(LINES).removesuffix(ABOUT)
