"""Calling servers."""

from .client import MCPClient
from .config import MCPClientConfig, MCPStdioServerConfig
from .transports import (
    AbortSignal,
    MCPTransport,
    RequestOptions,
    StdioTransport,
    create_stdio_transport,
    create_transport,
    register_transport,
)

__all__ = [
    "AbortSignal",
    "MCPClient",
    "MCPClientConfig",
    "MCPStdioServerConfig",
    "MCPTransport",
    "RequestOptions",
    "StdioTransport",
    "create_stdio_transport",
    "create_transport",
    "register_transport",
]
