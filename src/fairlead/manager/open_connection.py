"""Connections to single servers, for programs that do not need a manager."""

import asyncio
from collections.abc import Mapping
from typing import Any, Unpack

from msgspec import Struct

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.server_entry import MCPServerEntry, read_entry
from ..config.found_server import Source
from ..upstream.open_client import open_client

__all__ = [
    "MCPServerConnection",
    "Source",
    "call_tool",
    "connect_to_server",
    "disconnect_server",
    "list_tools",
]

CONNECT_TIMEOUT = 30.0  # seconds for connecting to a server, unless its entry has a `timeout`


class MCPServerConnection(Struct, frozen=True, kw_only=True):
    """A connected server."""

    name: str
    client: MCPClient
    entry: MCPServerEntry
    generation: int = 1
    source: Source = Source()
    latency: float | None = None  # seconds that connecting took


async def connect_to_server(
    name: str,
    entry: MCPServerEntry | dict[str, Any],
    *,
    config: MCPClientConfig | None = None,
    **callbacks: Unpack[Callbacks],
) -> MCPServerConnection:
    """Connect to a server, within its entry's `timeout` or 30 s.

    Raises:
        ConnectFailed, HttpError: The server cannot be reached; no process or connection remains.
        ConfigError: The entry is invalid.
    """
    entry = read_entry(entry)
    timeout = CONNECT_TIMEOUT if entry.timeout is None else entry.timeout / 1000
    began = asyncio.get_running_loop().time()
    client = await open_client(name, entry, timeout, config, callbacks)
    latency = asyncio.get_running_loop().time() - began
    return MCPServerConnection(name=name, client=client, entry=entry, latency=latency)


async def list_tools(connection: MCPServerConnection) -> list[dict[str, Any]]:
    """Return the tools of a connected server."""
    return await connection.client.list_tools()


async def call_tool(
    connection: MCPServerConnection,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Call a tool of a connected server."""
    result: dict[str, Any] = await connection.client.call_tool(name, arguments, **options)
    return result


async def disconnect_server(connection: MCPServerConnection) -> None:
    """Close the connection, and terminate the server if it is a child process."""
    await connection.client.close()
