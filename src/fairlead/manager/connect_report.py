"""Report about the connection of servers."""

from typing import Literal, TypeAlias

from msgspec import Struct

from .tools.tool import MCPTool

__all__ = ["ConnectReport", "Startup"]

Startup: TypeAlias = Literal["wait", "background"]


class ConnectReport(Struct, frozen=True, kw_only=True):
    """The outcome of connecting, as known when the call returned."""

    tools: list[MCPTool]
    errors: list[dict[str, str]]  # {path, error}
    connected_servers: list[str]
