"""Calling servers."""

from typing import Any

from ..errors import InputNotGiven, OutputMismatch, UrlElicitationRequired
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


def __getattr__(name: str) -> Any:
    """`call_mcp` needs the HTTP client, `parse_sse` hardly anybody: imported when first used."""
    if name == "call_mcp":
        from ..transport.http.direct import call_mcp

        return call_mcp
    if name == "parse_sse":
        from ..wire.sse import parse_sse

        return parse_sse
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
