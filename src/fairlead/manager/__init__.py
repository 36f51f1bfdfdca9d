"""Many configured servers in one program: connections, tools and calls for agents.

The names of `fairlead.config` that programs need are also exported here.

In this package, `MCPServerConfig` is a server in a configuration file (DEC-01);
`fairlead.MCPServerConfig` configures a server written with Fairlead.
"""

from typing import TYPE_CHECKING

from ..client.server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from ..config.discovery import load_all_mcp_configs
from ..config.edit.config_file import ConfigFile
from ..config.found_server import FoundServer, Source
from ..config.server_filters import Removal, ServerFilter
from ..config.trust import NotApproved, Trust
from ..config.validate import validate_server_config
from ..lazy_names import lazy_names, public_names

if TYPE_CHECKING:
    from ..config.upstream_settings import Rules
    from ..upstream.memory.tool_cache import MCPToolCache
    from ..upstream.status_events import StatusEvent
    from .discover_tools import discover_and_load_mcp_tools, discover_mcp_servers
    from .manager import MCPManager
    from .open_connection import (
        MCPServerConnection,
        call_tool,
        connect_to_server,
        disconnect_server,
        list_tools,
    )
    from .tools.provider_adapters import (
        run_anthropic,
        run_openai,
        run_openai_messages,
        run_openai_responses,
        to_anthropic,
        to_openai,
        to_openai_responses,
    )
    from .tools.tool import DeferredMCPTool, MCPTool
    from .tools.tool_callables import as_callables
    from .tools.tool_session import ToolSession, create_tool_session

MCPServerConfig = MCPServerEntry

__all__ = [
    "ConfigFile",
    "DeferredMCPTool",
    "FoundServer",
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
    "Removal",
    "Rules",
    "ServerFilter",
    "Source",
    "StatusEvent",
    "ToolSession",
    "Trust",
    "as_callables",
    "call_tool",
    "connect_to_server",
    "create_tool_session",
    "disconnect_server",
    "discover_and_load_mcp_tools",
    "discover_mcp_servers",
    "list_tools",
    "load_all_mcp_configs",
    "run_anthropic",
    "run_openai",
    "run_openai_messages",
    "run_openai_responses",
    "to_anthropic",
    "to_openai",
    "to_openai_responses",
    "validate_server_config",
]

# Imported on first use, so that programs that only read files do not load the connection modules.
_NAMES = {
    "discover_tools": ["discover_and_load_mcp_tools", "discover_mcp_servers"],
    "manager": ["MCPManager"],
    "open_connection": [
        "MCPServerConnection",
        "call_tool",
        "connect_to_server",
        "disconnect_server",
        "list_tools",
    ],
    "tools.provider_adapters": [
        "run_anthropic",
        "run_openai",
        "run_openai_messages",
        "run_openai_responses",
        "to_anthropic",
        "to_openai",
        "to_openai_responses",
    ],
    "tools.tool_callables": ["as_callables"],
    "tools.tool": ["DeferredMCPTool", "MCPTool"],
    "tools.tool_session": ["ToolSession", "create_tool_session"],
}

if not TYPE_CHECKING:  # otherwise a type checker would accept any misspelled name
    __getattr__ = lazy_names(
        __name__,
        {
            "MCPToolCache": "fairlead.upstream.memory.tool_cache",
            "Rules": "fairlead.config.upstream_settings",
            "StatusEvent": "fairlead.upstream.status_events",
            **{name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names},
        },
    )
    __dir__ = public_names(__name__)
