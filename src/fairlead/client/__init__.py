"""The client side: `MCPClient`, its configuration, callbacks and transports."""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names, public_names

if TYPE_CHECKING:
    from ..errors import InputNotGiven, OutputMismatch, UrlElicitationRequired
    from ..protocol.trace_context import tracing
    from ..transport.http.client.one_shot import call_mcp
    from ..wire.sse import parse_sse
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

# The module of each public name. Names are imported on first use: most commands need only the
# entries of configured servers, not the client.
_HOMES = {
    "AbortSignal": "fairlead.client.mcp_transport.mcp_transport",
    "Callbacks": "fairlead.client.callbacks",
    "Called": "fairlead.client.api.typed_results",
    "Change": "fairlead.client.connection.change_stream",
    "HttpTransport": "fairlead.client.mcp_transport.factory",
    "InputNotGiven": "fairlead.errors",
    "MCPClient": "fairlead.client.client",
    "MCPClientConfig": "fairlead.client.client_config",
    "MCPHttpServerConfig": "fairlead.client.server_entry",
    "MCPServerEntry": "fairlead.client.server_entry",
    "MCPSseServerConfig": "fairlead.client.server_entry",
    "MCPStdioServerConfig": "fairlead.client.server_entry",
    "MCPTransport": "fairlead.client.mcp_transport.mcp_transport",
    "MCPWebSocketServerConfig": "fairlead.client.server_entry",
    "Message": "fairlead.client.api.typed_results",
    "OutputMismatch": "fairlead.errors",
    "Prompted": "fairlead.client.api.typed_results",
    "Question": "fairlead.client.input.answers",
    "RequestOptions": "fairlead.client.mcp_transport.mcp_transport",
    "StdioTransport": "fairlead.client.mcp_transport.factory",
    "ToolCallResult": "fairlead.client.api.typed_results",
    "UrlElicitationRequired": "fairlead.errors",
    "WebSocketTransport": "fairlead.client.mcp_transport.factory",
    "accept": "fairlead.client.input.answers",
    "call_mcp": "fairlead.transport.http.client.one_shot",
    "cancel": "fairlead.client.input.answers",
    "create_http_transport": "fairlead.client.mcp_transport.factory",
    "create_stdio_transport": "fairlead.client.mcp_transport.factory",
    "create_transport": "fairlead.client.mcp_transport.factory",
    "create_websocket_transport": "fairlead.client.mcp_transport.factory",
    "decline": "fairlead.client.input.answers",
    "parse_sse": "fairlead.wire.sse",
    "register_transport": "fairlead.client.mcp_transport.factory",
    "tracing": "fairlead.protocol.trace_context",
}

# Hidden from type checkers, which would otherwise accept any misspelled name.
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
    __dir__ = public_names(__name__)
