"""Calling servers."""

from .answers import Question, accept, cancel, decline
from .callbacks import Callbacks
from .client import MCPClient
from .config import MCPClientConfig, MCPStdioServerConfig
from .known import OutputMismatch
from .rounds import InputNotGiven
from .transports import (
    AbortSignal,
    MCPTransport,
    RequestOptions,
    StdioTransport,
    create_stdio_transport,
    create_transport,
    register_transport,
)
from .typed import Called, Message, Prompted

__all__ = [
    "AbortSignal",
    "Callbacks",
    "Called",
    "InputNotGiven",
    "MCPClient",
    "MCPClientConfig",
    "MCPStdioServerConfig",
    "MCPTransport",
    "Message",
    "OutputMismatch",
    "Prompted",
    "Question",
    "RequestOptions",
    "StdioTransport",
    "accept",
    "cancel",
    "create_stdio_transport",
    "create_transport",
    "decline",
    "register_transport",
]
