"""Writing servers."""

from typing import TYPE_CHECKING

from ..errors import CannotAsk
from ..lazy_names import lazy_names
from ..transport.http.server.settings import HttpSettings
from .config import MCPServerConfig
from .context.context import Context
from .context.elicitation_forms import Elicited
from .features.tool_modules import mcp_tool
from .features.tool_registry import MCPToolRegistry
from .results.media import Audio, File, Image
from .schema.param_headers import Header
from .server import MCPServer

if TYPE_CHECKING:
    from ..transport.http.server.sessions.session_store import MemorySessionStore, SessionStore
    from ..transport.http.server.sessions.sqlite_session_store import SqliteSessionStore

__all__ = [
    "Audio",
    "CannotAsk",
    "Context",
    "Elicited",
    "File",
    "Header",
    "HttpSettings",
    "Image",
    "MCPServer",
    "MCPServerConfig",
    "MCPToolRegistry",
    "MemorySessionStore",
    "SessionStore",
    "SqliteSessionStore",
    "mcp_tool",
]

# Stores of sessions are loaded by those who have some.
__getattr__ = lazy_names(
    __name__,
    {
        "MemorySessionStore": "fairlead.transport.http.server.sessions.session_store",
        "SessionStore": "fairlead.transport.http.server.sessions.session_store",
        "SqliteSessionStore": "fairlead.transport.http.server.sessions.sqlite_session_store",
    },
)
