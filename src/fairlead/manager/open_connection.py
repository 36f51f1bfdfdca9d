"""One connection by hand, for those who need no manager."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

from msgspec import Struct

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.client_config import request_timeout
from ..client.server_entry import MCPServerEntry, read_entry
from ..config.found_server import Source
from ..errors import ConnectFailed

__all__ = [
    "MCPServerConnection",
    "Source",
    "call_tool",
    "connect_timeout_error",
    "connect_to_server",
    "disconnect_server",
    "list_tools",
    "open_client",
]

CONNECT_TIMEOUT = 30.0


class MCPServerConnection(Struct, frozen=True, kw_only=True):
    """A server that is connected."""

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
    """Connect one server, within its entry's `timeout` or 30 s in all.

    Raises:
        ConnectFailed, HttpError: it cannot be reached; nothing is left behind.
        ConfigError: the entry is wrong.
    """
    entry = read_entry(entry)
    timeout = CONNECT_TIMEOUT if entry.timeout is None else entry.timeout / 1000
    began = asyncio.get_running_loop().time()
    client = await open_client(name, entry, timeout, config, callbacks)
    latency = asyncio.get_running_loop().time() - began
    return MCPServerConnection(name=name, client=client, entry=entry, latency=latency)


async def open_client(
    name: str,
    entry: MCPServerEntry,
    timeout: float,
    config: MCPClientConfig | None,
    callbacks: Callbacks,
) -> MCPClient:
    """The client of a server; 0 seconds mean no limit. Raises as `connect_to_server` does."""
    config = config or MCPClientConfig()
    # The configured limit is for requests; starting has its own, which may be longer. Who manages
    # connections replaces them, so the client does not.
    starting = replace(config, timeout_seconds=0.0, auto_reconnect=False)
    try:
        async with asyncio.timeout(timeout or None):
            client = await MCPClient.connect_entry(entry, starting, **callbacks)
    except TimeoutError as exc:
        raise connect_timeout_error(name, timeout) from exc
    client.config = replace(config, auto_reconnect=False)
    client.transport.timeout = request_timeout(config.timeout_seconds * 1000)
    return client


def connect_timeout_error(name: str, seconds: float) -> ConnectFailed:
    """What is said of a server that did not connect in time."""
    return ConnectFailed(
        f'Connection to MCP server "{name}" timed out after {seconds * 1000:.0f}ms',
        public=f"did not answer within {seconds:g} s",
    )


async def list_tools(connection: MCPServerConnection) -> list[dict[str, Any]]:
    """The tools of a connected server."""
    return await connection.client.list_tools()


async def call_tool(
    connection: MCPServerConnection,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Call one of them."""
    return await connection.client.call_tool(name, arguments, **options)


async def disconnect_server(connection: MCPServerConnection) -> None:
    """End the connection, and the server if it is a child of ours."""
    await connection.client.close()
