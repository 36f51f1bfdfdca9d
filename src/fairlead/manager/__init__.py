"""Many configured servers in one program: connections, tools and calls for agents.

Names of `fairlead.config` that programs need are exported here as well.

`MCPServerConfig` means one configured server here (DEC-01); `fairlead.MCPServerConfig` is the
configuration of a server of our own.
"""

from typing import TYPE_CHECKING

from ..client.server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from ..config.discovery import DiscoveredServers, Filtered, SourceMeta, load_all_mcp_configs
from ..config.edit.export_entry import export
from ..config.edit.own_file import ConfigFile
from ..config.edit.own_file_schema import config_schema
from ..config.found_server import FoundServer, Input, Problem, Source
from ..config.server_filters import ExaFilter, Removal, ServerFilter
from ..config.trust import NotApproved, Trust
from ..config.validate import is_server_name, validate_server_config
from ..config.variables.resolve import Resolved, resolve, resolve_in_thread
from ..config.variables.secret_commands import SecretCommands
from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .discover_tools import discover_and_load_mcp_tools, discover_mcp_servers
    from .manager import MCPManager
    from .open_connection import (
        MCPServerConnection,
        call_tool,
        connect_to_server,
        disconnect_server,
        list_tools,
    )
    from .status_events import StatusEvent
    from .supervisor import Rules
    from .tools.provider_adapters import (
        as_callables,
        run_anthropic,
        run_openai,
        to_anthropic,
        to_openai,
        to_openai_responses,
    )
    from .tools.tool import DeferredMCPTool, MCPTool
    from .tools.tool_cache import MCPToolCache
    from .tools.tool_session import ToolSession, create_tool_session

MCPServerConfig = MCPServerEntry

__all__ = [
    "ConfigFile",
    "DeferredMCPTool",
    "DiscoveredServers",
    "ExaFilter",
    "Filtered",
    "FoundServer",
    "Input",
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
    "SecretCommands",
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
    "DeferredMCPTool": "fairlead.manager.tools.tool",
    "MCPManager": "fairlead.manager.manager",
    "MCPServerConnection": "fairlead.manager.open_connection",
    "MCPTool": "fairlead.manager.tools.tool",
    "MCPToolCache": "fairlead.manager.tools.tool_cache",
    "Rules": "fairlead.manager.supervisor",
    "StatusEvent": "fairlead.manager.status_events",
    "ToolSession": "fairlead.manager.tools.tool_session",
    "as_callables": "fairlead.manager.tools.provider_adapters",
    "call_tool": "fairlead.manager.open_connection",
    "connect_to_server": "fairlead.manager.open_connection",
    "create_tool_session": "fairlead.manager.tools.tool_session",
    "disconnect_server": "fairlead.manager.open_connection",
    "discover_and_load_mcp_tools": "fairlead.manager.discover_tools",
    "discover_mcp_servers": "fairlead.manager.discover_tools",
    "list_tools": "fairlead.manager.open_connection",
    "run_anthropic": "fairlead.manager.tools.provider_adapters",
    "run_openai": "fairlead.manager.tools.provider_adapters",
    "to_anthropic": "fairlead.manager.tools.provider_adapters",
    "to_openai": "fairlead.manager.tools.provider_adapters",
    "to_openai_responses": "fairlead.manager.tools.provider_adapters",
}

__getattr__ = lazy_names(__name__, _HOMES)
