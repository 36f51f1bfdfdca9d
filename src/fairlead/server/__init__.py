"""Writing servers."""

from typing import TYPE_CHECKING, Any

from ..errors import CannotAsk
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


def __getattr__(name: str) -> Any:
    """Stores of sessions are loaded by those who have some."""
    if name in ("MemorySessionStore", "SessionStore"):
        from ..transport.http import session_store

        return getattr(session_store, name)
    if name == "SqliteSessionStore":
        from ..transport.http.sqlite_sessions import SqliteSessionStore

        return SqliteSessionStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
