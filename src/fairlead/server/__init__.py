"""Writing servers."""

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
    "mcp_tool",
]
