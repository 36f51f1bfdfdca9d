"""How our own server behaves."""

from dataclasses import dataclass

from ..limits import IN_FLIGHT

__all__ = ["MCPServerConfig"]


@dataclass(kw_only=True)
class MCPServerConfig:
    """Settings of one `MCPServer`. Durations are in seconds; 0 means no limit."""

    name: str = "fairlead-mcp-server"
    version: str = "1.0.0"
    title: str | None = None
    transport: str = "stdio"  # or "http": what `run()` serves
    host: str = "127.0.0.1"
    port: int = 8080
    auth_token: str | None = None  # needed to listen for other machines
    instructions: str | None = None
    default_tool_timeout: float = 60.0
    per_tool_timeouts: dict[str, float] | None = None
    rate_limit_rate: float = 50.0
    rate_limit_burst: int = 100
    per_tool_rate: float | dict[str, float] = 0.0  # of each tool, or of those that are named
    per_tool_burst: int = 0  # 0: what one second brings
    warm_up: bool = True
    log_level: str = "INFO"
    input_timeout: float = 600.0
    page_size: int = 100
    max_in_flight: int = IN_FLIGHT.value
    max_message_bytes: int = 16 * 1024 * 1024
    cache_ttl: float = 0.0  # how long stateless clients may keep lists and contents
    cache_scope: str = "private"  # or "public": shared caches may serve them to anybody
    tool_modules: tuple[str, ...] = ()  # imported at start, for their functions marked `mcp_tool`
    tool_entry_points: bool = False  # also those that installed packages name as `fairlead.tools`

    def timeout_of(self, tool: str) -> float:
        """The time limit of one tool."""
        return (self.per_tool_timeouts or {}).get(tool, self.default_tool_timeout)
