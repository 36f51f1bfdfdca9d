"""How a client behaves."""

import logging
import os
from dataclasses import dataclass

from ..limits import LIST_BYTES, LIST_ITEMS

__all__ = ["MCPClientConfig", "request_timeout"]

log = logging.getLogger("fairlead.client")

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
    stale_seconds: float = 0.0  # and hand them out for so long after, while they are read again
    validate_output: bool = True  # hold results against schemas that were listed
    strict: bool = False  # a result that breaks the contract of tool calls is an error
    max_list_bytes: int = LIST_BYTES.value  # of one list, all pages together
    max_list_items: int = LIST_ITEMS.value


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
