"""Configured servers: where they are found, what they need, and who may run them.

`MCPServerConfig` means one configured server here (DEC-01); `fairlead.MCPServerConfig` is the
configuration of a server of our own.
"""

from ..client.entries import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from .commands import Commands
from .expand import Resolved, resolve, resolve_in_thread
from .export import export
from .filters import ExaFilter, Removal, ServerFilter
from .found import Found, Input, Problem
from .load import Filtered, Loaded, SourceMeta, load_all_mcp_configs
from .schema import config_schema
from .trust import NotApproved, Trust
from .validate import is_server_name, validate_server_config
from .write import ConfigFile

MCPServerConfig = MCPServerEntry

__all__ = [
    "Commands",
    "ConfigFile",
    "ExaFilter",
    "Filtered",
    "Found",
    "Input",
    "Loaded",
    "MCPHttpServerConfig",
    "MCPServerConfig",
    "MCPServerEntry",
    "MCPSseServerConfig",
    "MCPStdioServerConfig",
    "MCPWebSocketServerConfig",
    "NotApproved",
    "Problem",
    "Removal",
    "Resolved",
    "ServerFilter",
    "SourceMeta",
    "Trust",
    "config_schema",
    "export",
    "is_server_name",
    "load_all_mcp_configs",
    "resolve",
    "resolve_in_thread",
    "validate_server_config",
]
