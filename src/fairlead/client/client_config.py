"""Settings for a client."""

import logging
import os
from dataclasses import dataclass, replace

from ..keyword_arguments import named_settings
from ..limits import LIST_BYTES, LIST_ITEMS
from ..protocol.revisions import NEWEST

__all__ = [
    "MCPClientConfig",
    "config_for_era",
    "request_timeout",
    "require_config",
    "version_for_era",
]

log = logging.getLogger("fairlead.client")

DEFAULT_TIMEOUT_MS = 30_000  # default request timeout in milliseconds
TIMEOUT_VARIABLE = "FAIRLEAD_MCP_TIMEOUT_MS"


@named_settings
@dataclass(kw_only=True)
class MCPClientConfig:
    """Settings for an `MCPClient`. Durations are in seconds."""

    timeout_seconds: float = 30.0  # time limit for a response and for connecting; 0: no limit
    max_retries: int = 3  # maximum number of retries of a request
    retry_delay: float = 0.5  # delay before the first retry
    connection_pool_size: int = 10  # concurrent calls to a server over HTTP; further calls wait
    protocol_version: str = "auto"  # a revision, "latest" (with a handshake) or "auto"
    name: str = "fairlead"  # name of the client, as sent to servers
    version: str = "0.1.0"  # version of the client, as sent to servers
    health_check_interval: float = 0.0  # interval of health checks in the background; 0: none
    auto_reconnect: bool = False  # replace a lost connection
    retry_tool_calls: bool = False  # retry tool calls like reads
    probe_timeout: float = 1.0  # wait for `server/discover` before `initialize` is sent
    max_total_seconds: float = 600.0  # time limit for a call with progress or with input rounds
    input_timeout: float = 600.0  # seconds to wait for the user's input
    max_rounds: int = 20  # maximum number of input rounds per request (stateless era)
    cache: bool = True  # cache results for the time that the server allows (stateless era)
    # Seconds after expiry during which cached results are still returned.
    stale_seconds: float = 0.0
    validate_output: bool = True  # check results against the output schemas in the tool list
    strict: bool = False  # treat an invalid tool response as an error
    max_list_bytes: int = LIST_BYTES.value  # maximum size of a list, including all pages
    max_list_items: int = LIST_ITEMS.value  # maximum number of items of a list


def require_config(config: MCPClientConfig | None) -> MCPClientConfig:
    """Return the settings, or the default settings for None.

    Raises:
        TypeError: The argument has the wrong type.
    """
    if config is None:
        return MCPClientConfig()
    if not isinstance(config, MCPClientConfig):
        raise TypeError(f"config must be an MCPClientConfig, not {config!r}")
    return config


def request_timeout(entry_ms: float | None = None) -> float:
    """Return the request timeout in seconds (TRN-09); 0 means no limit.

    The environment variable overrides the entry's timeout.
    """
    value = os.environ.get(TIMEOUT_VARIABLE)
    if value is not None:
        try:
            milliseconds = float(value)
            if milliseconds >= 0:
                return milliseconds / 1000
        except ValueError:
            pass
        log.warning("ignored %s=%r: expected a number of milliseconds", TIMEOUT_VARIABLE, value)
    return (DEFAULT_TIMEOUT_MS if entry_ms is None else entry_ms) / 1000


def version_for_era(era: str) -> str:
    """Return the `protocol_version` setting that limits a client to an era;
    `auto` means any era.
    """
    return {"handshake": "latest", "stateless": NEWEST.value}.get(era, "auto")


def config_for_era(config: MCPClientConfig, era: str) -> MCPClientConfig:
    """Return the settings for a server of this era, unless they already select a version."""
    if era == "auto" or config.protocol_version != "auto":
        return config
    return replace(config, protocol_version=version_for_era(era))
