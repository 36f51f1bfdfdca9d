"""Calling servers."""

from typing import TYPE_CHECKING

from ..errors import InputNotGiven, OutputMismatch, UrlElicitationRequired
from ..lazy_names import lazy_names
from ..protocol.tracing import tracing
from .answers import Question, accept, cancel, decline
from .callbacks import Callbacks
from .changes import Change
from .client import MCPClient
from .config import MCPClientConfig
from .entries import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)
from .transport import AbortSignal, MCPTransport, RequestOptions
from .transports import (
    HttpTransport,
    StdioTransport,
    WebSocketTransport,
    create_http_transport,
    create_stdio_transport,
    create_transport,
    create_websocket_transport,
    register_transport,
)
from .values import Called, Message, Prompted

if TYPE_CHECKING:
    from ..transport.http.direct import call_mcp
    from ..wire.sse import parse_sse

__all__ = [
    "AbortSignal",
    "Callbacks",
    "Called",
    "Change",
    "HttpTransport",
    "InputNotGiven",
    "MCPClient",
    "MCPClientConfig",
    "MCPHttpServerConfig",
    "MCPServerEntry",
    "MCPSseServerConfig",
    "MCPStdioServerConfig",
    "MCPTransport",
    "MCPWebSocketServerConfig",
    "Message",
    "OutputMismatch",
    "Prompted",
    "Question",
    "RequestOptions",
    "StdioTransport",
    "UrlElicitationRequired",
    "WebSocketTransport",
    "accept",
    "call_mcp",
    "cancel",
    "create_http_transport",
    "create_stdio_transport",
    "create_transport",
    "create_websocket_transport",
    "decline",
    "parse_sse",
    "register_transport",
    "tracing",
]

# `call_mcp` needs the HTTP client, `parse_sse` hardly anybody.
__getattr__ = lazy_names(
    __name__, {"call_mcp": "fairlead.transport.http.direct", "parse_sse": "fairlead.wire.sse"}
)
