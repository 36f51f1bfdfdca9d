"""Clients of a server in the same process, without a socket."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fairlead import MCPServer
from fairlead.client import MCPClient, MCPClientConfig
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.memory import memory_pair

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@contextlib.asynccontextmanager
async def client_of(server: MCPServer, version: str = "auto") -> AsyncIterator[MCPClient]:
    """Connect a client with this protocol version to a server in memory."""
    left, right = memory_pair()
    peer = server.attach(right, ANONYMOUS)

    async def open_channel():  # type: ignore[no-untyped-def]
        return left

    config = MCPClientConfig(protocol_version=version)
    try:
        async with MCPClient.connect_channel(open_channel, config) as client:
            yield client
    finally:
        await peer.close()


async def ask(server: MCPServer, method: str, params: Any = None) -> dict[str, Any]:
    """Send one request without a connection."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    if params is not None:
        message["params"] = params
    answer = await server.handle_request(message)
    assert answer is not None
    return answer
