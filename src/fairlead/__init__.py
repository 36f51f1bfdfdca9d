"""Fairlead: one runtime for the Model Context Protocol.

Write servers: `MCPServer`, `MCPServerConfig`, `Context`, `Image`, `Audio`, `File`, `mcp_tool`.

Call servers: `MCPClient`, `MCPClientConfig`, `MCPTransport`.

Manage many servers: `MCPManager`, `MCPTool`, `DeferredMCPTool`, `MCPToolCache`,
`discover_mcp_servers`, `discover_and_load_mcp_tools`.

Errors: `FairleadError` (also as `MCPClientError`), `RpcError`, `MCPToolError`.

Gateways and relays are in `fairlead.gateway`, interceptors in `fairlead.interceptor`, OAuth and
stored logins in `fairlead.auth`.
"""

from typing import TYPE_CHECKING, Any

from .lazy_names import late_functions, lazy_names, public_names

if TYPE_CHECKING:
    from .client import MCPClient, MCPClientConfig, MCPTransport
    from .errors import FairleadError, MCPClientError, MCPToolError, RpcError
    from .manager.discover_tools import discover_and_load_mcp_tools, discover_mcp_servers
    from .manager.manager import MCPManager
    from .manager.tools.tool import DeferredMCPTool, MCPTool
    from .server import Audio, Context, File, Image, MCPServer, MCPServerConfig, mcp_tool
    from .upstream.memory.tool_cache import MCPToolCache

__all__ = [
    "Audio",
    "Context",
    "DeferredMCPTool",
    "FairleadError",
    "File",
    "Image",
    "MCPClient",
    "MCPClientConfig",
    "MCPClientError",
    "MCPManager",
    "MCPServer",
    "MCPServerConfig",
    "MCPTool",
    "MCPToolCache",
    "MCPToolError",
    "MCPTransport",
    "RpcError",
    "discover_and_load_mcp_tools",
    "discover_mcp_servers",
    "mcp_tool",
]

__version__ = "0.1.0"

# The module of each public name. Names are imported on first use, so that a program that only runs
# a server does not spend time and memory on the client.
_HOMES = {
    "Audio": "fairlead.server",
    "Context": "fairlead.server",
    "DeferredMCPTool": "fairlead.manager.tools.tool",
    "FairleadError": "fairlead.errors",
    "File": "fairlead.server",
    "Image": "fairlead.server",
    "MCPClient": "fairlead.client",
    "MCPClientConfig": "fairlead.client",
    "MCPClientError": "fairlead.errors",
    "MCPManager": "fairlead.manager.manager",
    "MCPServer": "fairlead.server",
    "MCPServerConfig": "fairlead.server",
    "MCPTool": "fairlead.manager.tools.tool",
    "MCPToolCache": "fairlead.upstream.memory.tool_cache",
    "MCPToolError": "fairlead.errors",
    "MCPTransport": "fairlead.client",
    "RpcError": "fairlead.errors",
    "discover_and_load_mcp_tools": "fairlead.manager.discover_tools",
    "discover_mcp_servers": "fairlead.manager.discover_tools",
    "mcp_tool": "fairlead.server.features.tool_modules",
}

# Names of FastMCP and of the official SDK, and what to use instead of them.
_REPLACED = {
    "Client": "use `MCPClient.connect(target)`",
    "ClientSession": "use `MCPClient.connect(target)`",
    "Depends": "dependencies are not injected; use `lifespan=` of `MCPServer` and `ctx.state`",
    "FastMCP": "use `MCPServer`",
    "Server": "use `MCPServer`",
    "ToolError": "use `MCPToolError`",
}


def _configured_entry(name: str) -> Any:
    """Return an awaitable for the entry of a configured server, for `MCPClient.connect`."""
    from .config.configured_servers import configured_entry

    return configured_entry(name)


def _authorizer_for(entry: Any, **options: Any) -> Any:
    """Return the source of a server's credentials, for `MCPClient`."""
    from .config.stored_logins import authorizer_for

    return authorizer_for(entry, **options)


# `client` is a lower layer than `config` and cannot import it.
late_functions["configured_entry"] = _configured_entry
late_functions["authorizer_for"] = _authorizer_for

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES, _REPLACED)
    __dir__ = public_names(__name__)
