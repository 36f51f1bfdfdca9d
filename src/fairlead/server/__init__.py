"""Writing servers."""

from .config import MCPServerConfig
from .context import Context
from .forms import Elicited
from .media import Audio, File, Image
from .modules import mcp_tool
from .registry import MCPToolRegistry
from .schema import Header
from .server import MCPServer

__all__ = [
    "Audio",
    "Context",
    "Elicited",
    "File",
    "Header",
    "Image",
    "MCPServer",
    "MCPServerConfig",
    "MCPToolRegistry",
    "mcp_tool",
]
