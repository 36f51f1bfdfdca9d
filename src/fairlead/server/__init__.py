"""Writing servers."""

from typing import TYPE_CHECKING

from ..errors import CannotAsk
from ..lazy_names import lazy_names
from ..transport.http.settings import HttpSettings
from .config import MCPServerConfig
from .context import Context
from .forms import Elicited
from .headers import Header
from .media import Audio, File, Image
from .modules import mcp_tool
from .registry import MCPToolRegistry
from .server import MCPServer

if TYPE_CHECKING:
    from ..transport.http.session_store import MemorySessionStore, SessionStore
    from ..transport.http.sqlite_sessions import SqliteSessionStore

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
        "MemorySessionStore": "fairlead.transport.http.session_store",
        "SessionStore": "fairlead.transport.http.session_store",
        "SqliteSessionStore": "fairlead.transport.http.sqlite_sessions",
    },
)
