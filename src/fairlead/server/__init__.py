"""The public API for writing MCP servers."""

from typing import TYPE_CHECKING

from ..errors import CannotAsk
from ..lazy_names import lazy_names, public_names
from .context.context import Context
from .features.tool_registry import MCPToolRegistry
from .results.media import Audio, File, Image
from .schema.header_annotation import Header
from .server import MCPServer
from .server_config import MCPServerConfig

if TYPE_CHECKING:
    from ..auth.server.server_auth import Introspection, ServerAuth, StaticClient, TokenIssuer
    from ..transport.http.server.http_settings import HttpSettings
    from ..transport.http.server.sessions.session_store import MemorySessionStore, SessionStore
    from ..transport.http.server.sessions.sqlite_session_store import SqliteSessionStore
    from .context.elicitation_forms import Elicited
    from .features.tool_modules import mcp_tool

__all__ = [
    "Audio",
    "CannotAsk",
    "Context",
    "Elicited",
    "File",
    "Header",
    "HttpSettings",
    "Image",
    "Introspection",
    "MCPServer",
    "MCPServerConfig",
    "MCPToolRegistry",
    "MemorySessionStore",
    "ServerAuth",
    "SessionStore",
    "SqliteSessionStore",
    "StaticClient",
    "TokenIssuer",
    "mcp_tool",
]

# Most servers do not use these names, and importing their modules slows down start-up.
# With a visible `__getattr__`, a type checker would accept any misspelt name.
if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "Elicited": "fairlead.server.context.elicitation_forms",
            "HttpSettings": "fairlead.transport.http.server.http_settings",
            "Introspection": "fairlead.auth.server.server_auth",
            "ServerAuth": "fairlead.auth.server.server_auth",
            "StaticClient": "fairlead.auth.server.server_auth",
            "TokenIssuer": "fairlead.auth.server.server_auth",
            "MemorySessionStore": "fairlead.transport.http.server.sessions.session_store",
            "SessionStore": "fairlead.transport.http.server.sessions.session_store",
            "SqliteSessionStore": "fairlead.transport.http.server.sessions.sqlite_session_store",
            "mcp_tool": "fairlead.server.features.tool_modules",
        },
    )
    __dir__ = public_names(__name__)
