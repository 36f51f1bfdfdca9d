"""Fairlead: one runtime for the Model Context Protocol."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import MCPClient, MCPClientConfig, MCPTransport
    from .errors import FairleadError, MCPClientError, MCPToolError, RpcError
    from .server import Context, MCPServer, MCPServerConfig, mcp_tool

__all__ = [
    "Context",
    "FairleadError",
    "MCPClient",
    "MCPClientConfig",
    "MCPClientError",
    "MCPServer",
    "MCPServerConfig",
    "MCPToolError",
    "MCPTransport",
    "RpcError",
    "mcp_tool",
]

__version__ = "0.1.0"

# Where each name lives. They are imported when first used, so that a server does not pay for the
# client.
_HOMES = {
    "Context": "server",
    "FairleadError": "errors",
    "MCPClient": "client",
    "MCPClientConfig": "client",
    "MCPClientError": "errors",
    "MCPServer": "server",
    "MCPServerConfig": "server",
    "MCPToolError": "errors",
    "MCPTransport": "client",
    "RpcError": "errors",
    "mcp_tool": "server.modules",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
