"""Configured servers: where they are found, what they need, and who may run them.

`MCPServerConfig` means one configured server here (DEC-01); `fairlead.MCPServerConfig` is the
configuration of a server of our own.
"""

from typing import TYPE_CHECKING

from ..client.entries import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from ..lazy_names import lazy_names
from .commands import Commands
from .expand import Resolved, resolve, resolve_in_thread
from .export import export
from .filters import ExaFilter, Removal, ServerFilter
from .found import Found, Input, Problem, Source
from .load import Filtered, Loaded, SourceMeta, load_all_mcp_configs
from .schema import config_schema
from .trust import NotApproved, Trust
from .validate import is_server_name, validate_server_config
from .write import ConfigFile

if TYPE_CHECKING:
    from .adapters import (
        as_callables,
        run_anthropic,
        run_openai,
        to_anthropic,
        to_openai,
        to_openai_responses,
    )
    from .cache import MCPToolCache
    from .connecting import (
        MCPServerConnection,
        call_tool,
        connect_to_server,
        disconnect_server,
        list_tools,
    )
    from .discovering import discover_and_load_mcp_tools, discover_mcp_servers
    from .manager import MCPManager, StatusEvent
    from .session import ToolSession, create_tool_session
    from .supervisor import Rules
    from .tools import DeferredMCPTool, MCPTool

MCPServerConfig = MCPServerEntry

__all__ = [
    "Commands",
    "ConfigFile",
    "DeferredMCPTool",
    "ExaFilter",
    "Filtered",
    "Found",
    "Input",
    "Loaded",
    "MCPHttpServerConfig",
    "MCPManager",
    "MCPServerConfig",
    "MCPServerConnection",
    "MCPServerEntry",
    "MCPSseServerConfig",
    "MCPStdioServerConfig",
    "MCPTool",
    "MCPToolCache",
    "MCPWebSocketServerConfig",
    "NotApproved",
    "Problem",
    "Removal",
    "Resolved",
    "Rules",
    "ServerFilter",
    "Source",
    "SourceMeta",
    "StatusEvent",
    "ToolSession",
    "Trust",
    "as_callables",
    "call_tool",
    "config_schema",
    "connect_to_server",
    "create_tool_session",
    "disconnect_server",
    "discover_and_load_mcp_tools",
    "discover_mcp_servers",
    "export",
    "is_server_name",
    "list_tools",
    "load_all_mcp_configs",
    "resolve",
    "resolve_in_thread",
    "run_anthropic",
    "run_openai",
    "to_anthropic",
    "to_openai",
    "to_openai_responses",
    "validate_server_config",
]

# Those who only read files do not pay for what connects.
_HOMES = {
    "DeferredMCPTool": "fairlead.manager.tools",
    "MCPManager": "fairlead.manager.manager",
    "MCPServerConnection": "fairlead.manager.connecting",
    "MCPTool": "fairlead.manager.tools",
    "MCPToolCache": "fairlead.manager.cache",
    "Rules": "fairlead.manager.supervisor",
    "StatusEvent": "fairlead.manager.manager",
    "ToolSession": "fairlead.manager.session",
    "as_callables": "fairlead.manager.adapters",
    "call_tool": "fairlead.manager.connecting",
    "connect_to_server": "fairlead.manager.connecting",
    "create_tool_session": "fairlead.manager.session",
    "disconnect_server": "fairlead.manager.connecting",
    "discover_and_load_mcp_tools": "fairlead.manager.discovering",
    "discover_mcp_servers": "fairlead.manager.discovering",
    "list_tools": "fairlead.manager.connecting",
    "run_anthropic": "fairlead.manager.adapters",
    "run_openai": "fairlead.manager.adapters",
    "to_anthropic": "fairlead.manager.adapters",
    "to_openai": "fairlead.manager.adapters",
    "to_openai_responses": "fairlead.manager.adapters",
}

__getattr__ = lazy_names(__name__, _HOMES)
