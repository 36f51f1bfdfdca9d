"""Writing servers."""

from .config import MCPServerConfig
from .context import Context
from .server import MCPServer

__all__ = ["Context", "MCPServer", "MCPServerConfig"]
