"""How a client behaves, and how a server it connects to is described."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ..errors import ConfigError

__all__ = ["MCPClientConfig", "MCPStdioServerConfig", "read_entry", "request_timeout"]

log = logging.getLogger("fairlead.client")

InheritEnv: TypeAlias = Literal["all", "safe"] | Sequence[str]

DEFAULT_TIMEOUT_MS = 30_000
TIMEOUT_VARIABLE = "FAIRLEAD_MCP_TIMEOUT_MS"


@dataclass(kw_only=True)
class MCPClientConfig:
    """Settings of one `MCPClient`. Durations are in seconds."""

    timeout_seconds: float = 30.0
    max_retries: int = 3
    retry_delay: float = 0.5
    connection_pool_size: int = 10
    protocol_version: str = "auto"
    name: str = "fairlead"
    version: str = "0.1.0"
    health_check_interval: float = 0.0
    auto_reconnect: bool = False
    retry_tool_calls: bool = False
    probe_timeout: float = 1.0
    max_total_seconds: float = 600.0
    input_timeout: float = 600.0  # for the answers of our own user
    max_rounds: int = 20  # how often a stateless server may ask back during one request
    cache: bool = True  # keep results as long as the server says (stateless era)
    validate_output: bool = True  # hold results against schemas that were listed


class MCPStdioServerConfig(Struct, kw_only=True, rename="camel"):
    """One configured server that runs as a child process, spelled as in configuration files."""

    command: str
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None
    inherit_env: InheritEnv = "all"
    type: Literal["stdio"] = "stdio"
    enabled: bool = True
    timeout: float | None = None  # milliseconds
    request_id_format: Literal["integer", "string"] = "integer"


def read_entry(entry: "MCPStdioServerConfig | dict[str, Any]") -> MCPStdioServerConfig:
    """An entry as it stands in a file, checked.

    Raises:
        ConfigError: saying what is wrong with it.
        NotImplementedError: for a kind of server that cannot be reached yet.
    """
    if isinstance(entry, MCPStdioServerConfig):
        return entry
    kind = entry.get("type", entry.get("transport"))
    if kind is None and "url" in entry and "command" not in entry:
        log.warning('a server entry with a url and no "type" is read as "http"')
        kind = "http"
    if kind in _NETWORK:
        raise NotImplementedError(f"servers of type {kind!r} cannot be reached yet; 'stdio' can")
    if kind not in (None, "stdio"):
        raise ConfigError(f"Unknown server type: {kind}")
    fields = {k: v for k, v in entry.items() if k not in ("transport", "requestTimeoutMs")}
    if "requestTimeoutMs" in entry:
        fields.setdefault("timeout", entry["requestTimeoutMs"])
    try:
        return msgspec.convert({**fields, "type": "stdio"}, MCPStdioServerConfig)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"the server entry is wrong: {exc}") from exc


def request_timeout(entry_ms: float | None = None) -> float:
    """TRN-09, in seconds: the environment overrides the entry; 0 means no limit."""
    value = os.environ.get(TIMEOUT_VARIABLE)
    if value is not None:
        try:
            milliseconds = float(value)
            if milliseconds >= 0:
                return milliseconds / 1000
        except ValueError:
            pass
        log.warning("%s=%r is no number of milliseconds and is ignored", TIMEOUT_VARIABLE, value)
    return (DEFAULT_TIMEOUT_MS if entry_ms is None else entry_ms) / 1000


_NETWORK = {"http", "sse", "ws", "streamableHttp", "streamable-http", "streamable_http"}
