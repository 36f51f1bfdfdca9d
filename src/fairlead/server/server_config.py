"""Configuration of an `MCPServer`."""

from dataclasses import dataclass
from typing import Literal

from ..keyword_arguments import named_settings
from ..limits import IN_FLIGHT

__all__ = ["MCPServerConfig"]

_DEFAULT_RATE = 50.0  # default of `rate_limit_rate`, in requests per second
_LEVELS = ("DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")


@named_settings
@dataclass(kw_only=True)
class MCPServerConfig:
    """Settings of one `MCPServer`. Durations are in seconds; 0 means no limit."""

    name: str = "fairlead-mcp-server"  # name that clients see
    version: str = "1.0.0"  # version of the server, for clients
    title: str | None = None  # name for display, if it differs from `name`
    transport: Literal["stdio", "http"] = "stdio"  # transport that `run()` serves
    host: str = "127.0.0.1"  # address on which `run()` listens
    port: int = 8080  # port on which `run()` listens; 0: any free port
    auth_token: str | None = None  # required to listen on an address other than loopback
    instructions: str | None = None  # instructions for models, sent to each client
    default_tool_timeout: float = 60.0  # time limit for a tool call
    per_tool_timeouts: dict[str, float] | None = None  # time limits of single tools, by name
    # tool calls per second; the default applies to network callers, an explicit rate to all callers
    rate_limit_rate: float = _DEFAULT_RATE
    rate_limit_burst: int = 100  # calls that are accepted at once
    # calls per second: one rate for every tool, or a rate by tool name
    per_tool_rate: float | dict[str, float] = 0.0
    per_tool_burst: int = 0  # 0: as many calls as the rate allows in one second
    warm_up: bool = True  # encode lists and compile schemas before the first connection
    log_level: str = "INFO"  # lowest level of log messages for sessions that set none
    input_timeout: float = 600.0  # time limit for input that a tool requests from the client
    page_size: int = 100  # items per page of a list
    max_in_flight: int = IN_FLIGHT.value  # concurrent requests per connection; further ones wait
    max_message_bytes: int = 16 * 1024 * 1024  # maximum size of a message and of a result
    cache_ttl: float = 0.0  # seconds that stateless clients may cache lists and contents
    # "public" allows shared caches to serve lists and contents to any client
    cache_scope: Literal["private", "public"] = "private"
    tool_modules: tuple[str, ...] = ()  # imported at start-up for their functions marked `mcp_tool`
    tool_entry_points: bool = False  # also load the `fairlead.tools` entry points of packages

    def __post_init__(self) -> None:
        """Check the settings that have special values.

        Raises:
            ValueError: A value is invalid.
        """
        level = str(self.log_level).upper()
        if level not in _LEVELS:
            expected = ", ".join(_LEVELS)
            raise ValueError(f"log_level must be one of {expected}, not {self.log_level!r}")
        if isinstance(self.port, int) and self.port > 65535:
            raise ValueError(f"port must be a number from 0 to 65535, not {self.port!r}")

    @property
    def local_rate_limit_rate(self) -> float:
        """Rate for callers over stdio and in the same process: 0 unless a rate was configured."""
        # Compared by identity: 50.0 may also be given explicitly.
        return 0.0 if self.rate_limit_rate is _DEFAULT_RATE else self.rate_limit_rate

    def timeout_of(self, tool: str) -> float:
        """Return the timeout of a tool in seconds."""
        return (self.per_tool_timeouts or {}).get(tool, self.default_tool_timeout)
