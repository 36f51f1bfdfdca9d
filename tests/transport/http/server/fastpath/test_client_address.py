"""The address of a client behind a proxy, which is the same on the fast path and on ASGI."""

import asyncio
from typing import Any

import aiohttp
import pytest

from fairlead import MCPServer
from fairlead.interceptor import Answer, Exchange, Proceed
from tests.support.gateway_servers import LIMIT, serving

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
BODY = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
STATELESS = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}
# The second value of `Accept` is unusual, so ASGI handles the request.
ACCEPTS = ("application/json, text/event-stream", "text/event-stream, application/json")


@pytest.mark.parametrize("accept", ACCEPTS, ids=["fast path", "ASGI"])
@pytest.mark.parametrize(
    ("trusted", "address"), [("127.0.0.1", "203.0.113.9"), ("192.0.2.1", "127.0.0.1")]
)
async def test_the_address_in_x_forwarded_for_is_used_if_the_proxy_is_trusted(
    accept: str, trusted: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    seen: list[Any] = []

    async def look(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(exchange.transport.peer_address)
        return await proceed(exchange)

    headers = {"X-Forwarded-For": "198.51.100.7, 203.0.113.9", "Accept": accept, **STATELESS}
    async with (
        asyncio.timeout(LIMIT),
        serving(MCPServer("s", interceptors=[look])) as url,
        aiohttp.ClientSession() as web,
        web.post(url, json=BODY, headers=headers) as answer,
    ):
        assert answer.status == 200
    assert seen == [address]
