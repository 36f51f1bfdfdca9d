"""The client side: `MCPClient`, its configuration, callbacks and transports."""

from typing import TYPE_CHECKING

from ..errors import InputNotGiven, OutputMismatch, UrlElicitationRequired
from ..lazy_names import lazy_names
from ..protocol.trace_context import tracing
from .api.typed_results import Called, Message, Prompted, ToolCallResult
from .callbacks import Callbacks
from .client import MCPClient
from .client_config import MCPClientConfig
from .connection.change_stream import Change
from .input.answers import Question, accept, cancel, decline
from .mcp_transport.factory import (
    HttpTransport,
    StdioTransport,
    WebSocketTransport,
    create_http_transport,
    create_stdio_transport,
    create_transport,
    create_websocket_transport,
    register_transport,
)
from .mcp_transport.mcp_transport import AbortSignal, MCPTransport, RequestOptions
from .server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
)

if TYPE_CHECKING:
    from ..transport.http.client.one_shot import call_mcp
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
    "ToolCallResult",
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

# Imported on first use: `call_mcp` needs the HTTP client, and `parse_sse` is rarely used.
# Hidden from type checkers, which would otherwise accept any misspelt name.
if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {"call_mcp": "fairlead.transport.http.client.one_shot", "parse_sse": "fairlead.wire.sse"},
    )
