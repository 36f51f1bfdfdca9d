"""Entries that describe servers, with the field names of configuration files."""

import logging
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import ConfigError

__all__ = [
    "MCPHttpServerConfig",
    "MCPServerEntry",
    "MCPSseServerConfig",
    "MCPStdioServerConfig",
    "MCPWebSocketServerConfig",
    "read_entry",
]

log = logging.getLogger("fairlead.client")

_CREDENTIALS = re.compile(r"[^/?#]*//[^/?#]*@")  # `https://user:password@`

InheritEnv: TypeAlias = Literal["all", "safe"] | Sequence[str]


class _Entry(Struct, kw_only=True, rename="camel"):
    """Fields that all kinds of entries have."""

    enabled: bool = True  # False: the server is not used
    timeout: float | None = None  # time limit of a request, in milliseconds
    # form of the ids of requests to the server
    request_id_format: Literal["integer", "string"] = "integer"
    lazy: bool = False  # connect on the first call
    # The era used with the server; auto tries both.
    era: Literal["auto", "handshake", "stateless"] = "auto"
    auth: Any = None  # how to log in to the server
    oauth: Any = None  # how to log in, as in the files of other programs


class MCPStdioServerConfig(_Entry, kw_only=True, rename="camel"):
    """A server that runs as a child process."""

    command: str  # program that runs the server
    args: list[str] = []  # arguments of the program
    env: dict[str, str] = {}  # environment variables in addition to inherited ones
    cwd: str | None = None  # working directory of the program
    # inherited variables: all, a safe selection, or the given names
    inherit_env: InheritEnv = "all"
    type: Literal["stdio"] = "stdio"  # kind of the entry


class _Remote(_Entry, kw_only=True, rename="camel"):
    url: str  # URL of the MCP endpoint
    headers: dict[str, str] = {}  # headers that are sent with every request

    @property
    def has_authorization(self) -> bool:
        """True if the headers or the URL contain credentials, which are used instead of a login."""
        named = any(name.lower() == "authorization" for name in self.headers)
        return named or _CREDENTIALS.match(self.url) is not None


class MCPHttpServerConfig(_Remote, kw_only=True, rename="camel"):
    """A server over HTTP, in any era; HTTP+SSE (2024-11-05) is tried last."""

    type: Literal["http"] = "http"  # kind of the entry


class MCPSseServerConfig(_Remote, kw_only=True, rename="camel"):
    """A server over HTTP, in any era; HTTP+SSE (2024-11-05) is tried first."""

    type: Literal["sse"] = "sse"  # kind of the entry


class MCPWebSocketServerConfig(_Remote, kw_only=True, rename="camel"):
    """A server over WebSocket."""

    # "toolcall": frames that contain only tool calls
    dialect: Literal["jsonrpc", "toolcall"] = "jsonrpc"
    type: Literal["ws"] = "ws"  # kind of the entry


MCPServerEntry: TypeAlias = (
    MCPStdioServerConfig | MCPHttpServerConfig | MCPSseServerConfig | MCPWebSocketServerConfig
)

_KINDS: dict[str, type[Any]] = {
    "stdio": MCPStdioServerConfig,
    "http": MCPHttpServerConfig,
    "streamableHttp": MCPHttpServerConfig,
    "streamable-http": MCPHttpServerConfig,
    "streamable_http": MCPHttpServerConfig,
    "sse": MCPSseServerConfig,
    "ws": MCPWebSocketServerConfig,
    "websocket": MCPWebSocketServerConfig,
}
# Field names in other programs' configuration files.
_OTHER_NAMES = {"transport": "type", "endpoint": "url", "requestTimeoutMs": "timeout"}


def read_entry(entry: MCPServerEntry | dict[str, Any]) -> MCPServerEntry:
    """Validate a mapping from a configuration file and return it as an entry.

    Raises:
        ConfigError: The entry is invalid; the message contains the reason.
    """
    if isinstance(entry, _Entry):
        return entry
    if not isinstance(entry, dict):
        raise ConfigError(f"invalid server entry: expected an object, not {entry!r:.100}")
    fields = {k: v for k, v in entry.items() if k not in _OTHER_NAMES}
    for other, name in _OTHER_NAMES.items():
        if other in entry:
            fields.setdefault(name, entry[other])
    kind = fields.pop("type", None)
    if kind is None and "url" in fields and "command" not in fields:
        log.warning('a server entry with a url and no "type" is read as "http"')
        kind = "http"
    made = _KINDS.get(kind or "stdio")
    if made is None:
        raise ConfigError(f"Unknown server type: {kind}")
    try:
        found: MCPServerEntry = msgspec.convert(fields, made)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"invalid server entry: {exc}") from exc
    return found
