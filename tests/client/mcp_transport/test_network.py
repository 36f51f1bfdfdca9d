"""Tests of HTTP failures, raised as exceptions or returned as envelopes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer
from fairlead.client import create_transport
from fairlead.client.mcp_transport.factory import StdioTransport, create_http_transport
from fairlead.client.mcp_transport.network import HttpTransport, WebSocketTransport
from fairlead.client.server_entry import (
    MCPHttpServerConfig,
    MCPSseServerConfig,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
    read_entry,
)
from fairlead.errors import ConfigError, HttpError, RequestTimeout

LIMIT = 10.0


@contextlib.asynccontextmanager
async def serving(server: MCPServer, **options: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result, **options))
    try:
        async with asyncio.timeout(LIMIT):
            yield await ready
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.mark.covers("HTT-11", "CON-08", "CON-09")
@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
async def test_a_refusal_over_http_is_raised_or_returned_as_an_envelope(version: str) -> None:
    server, known = MCPServer("s"), {"good": "ada"}
    server.tool(name="t")(lambda: "x")
    config = MCPClientConfig(protocol_version=version)
    headers = {"Authorization": "Bearer good"}
    async with serving(server, verify_token=known.get) as url:
        async with MCPClient.connect_http(url, config, headers=headers) as client:
            assert (await client.call("t")).text == "x"
            known.clear()
            with pytest.raises(HttpError, match="HTTP 401") as caught:
                await client.call_tool("t")
            assert caught.value.www_authenticate == "Bearer"
            envelope = await client.call_tool("t", errors="envelope")
            assert envelope["error"]["code"] == 401
            assert envelope["error"]["data"]["kind"] == "http"


@pytest.mark.covers("HTT-10", "SSE-06", "CON-09")
@pytest.mark.parametrize("version", ["auto", "2025-11-25"])
async def test_a_call_whose_stream_does_not_end_in_time_raises_a_timeout(version: str) -> None:
    server = MCPServer("s")
    cancelled = asyncio.Event()

    @server.tool()
    async def drag(ctx: Context) -> str:
        await ctx.progress(1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    config = MCPClientConfig(protocol_version=version)
    async with serving(server) as url, MCPClient.connect_http(url, config) as client:
        with pytest.raises(RequestTimeout, match="SSE response timeout after 200ms"):
            await client.call_tool("drag", timeout=0.2)
        async with asyncio.timeout(LIMIT):
            await cancelled.wait()
        envelope = await client.call_tool("drag", timeout=0.2, errors="envelope")
        assert envelope["error"]["code"] == 408
        assert envelope["error"]["data"]["kind"] == "timeout"


@pytest.mark.covers("CON-10", "TRN-03", "DEC-03", "DEC-09")
def test_entries_may_use_the_field_names_of_other_programs() -> None:
    other = read_entry({"transport": "http", "endpoint": "http://x/mcp", "requestTimeoutMs": 5})
    assert other == MCPHttpServerConfig(url="http://x/mcp", timeout=5)
    for kind in ("streamableHttp", "streamable-http", "streamable_http"):
        assert read_entry({"type": kind, "url": "http://x"}) == MCPHttpServerConfig(url="http://x")
    assert isinstance(read_entry({"type": "sse", "url": "http://x"}), MCPSseServerConfig)
    assert isinstance(read_entry({"type": "ws", "url": "ws://x"}), MCPWebSocketServerConfig)
    assert isinstance(read_entry({"command": "x"}), MCPStdioServerConfig)
    for wrong in ({"type": "pigeon"}, {"type": "http"}, {"type": "stdio"}, {"command": 7}):
        with pytest.raises(ConfigError):
            read_entry(wrong)


@pytest.mark.covers("TRN-03", "TRN-05", "TRN-19")
async def test_the_type_of_an_entry_selects_the_transport() -> None:
    assert isinstance(create_transport({"command": "x"}), StdioTransport)
    for kind in ("http", "sse"):
        transport = create_transport({"type": kind, "url": "http://127.0.0.1:1/mcp"})
        assert isinstance(transport, HttpTransport)
        assert not transport.connected
    assert isinstance(create_transport({"type": "ws", "url": "ws://x"}), WebSocketTransport)
    server = MCPServer("s")
    server.tool(name="t")(lambda: "x")
    async with serving(server) as url:
        transport = await create_http_transport({"type": "http", "url": url})
        assert transport.connected  # counts as connected before any request is sent
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x"}}
        hello["clientInfo"] = {"name": "x", "version": "1"}
        result = await transport.request("initialize", hello)
        assert result["protocolVersion"] == "2025-11-25"
        await transport.notify("notifications/initialized")
        called = await transport.request("tools/call", {"name": "t"})
        assert called["content"][0]["text"] == "x"
        await transport.close()
