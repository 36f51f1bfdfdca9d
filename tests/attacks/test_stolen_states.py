"""Attacks with the request state of another client."""

import asyncio
from typing import Any, Literal

import aiohttp
import pytest

from fairlead.gateway import Gateway
from fairlead.relay.relay import Relay
from tests.support.gateway_servers import LIMIT, make, serving, until

META = "io.modelcontextprotocol/"


async def call(web: aiohttp.ClientSession, url: str, token: str, **params: Any) -> Any:
    meta = {
        f"{META}protocolVersion": "2026-07-28",
        f"{META}clientCapabilities": {"elicitation": {"form": {}}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": params["name"],
    }
    async with web.post(url, json=body, headers=headers) as answer:
        return await answer.json()


@pytest.mark.parametrize(("path", "tool"), [("", "red_ask"), ("/red", "ask")])
async def test_a_request_state_is_rejected_if_another_client_sends_it(path: str, tool: str) -> None:
    """Use a stateless upstream server, which would accept the state from any client."""
    server = make("red")
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as behind,
        Gateway() as gateway,
        serving(gateway, verify_token=lambda token: token) as url,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": {"type": "http", "url": behind}})
        await until(lambda: gateway.is_ready)
        await steal(web, url + path, tool)


async def steal(web: aiohttp.ClientSession, url: str, tool: str) -> None:
    """Check that only the client that received a state can continue the call with it."""
    question = (await call(web, url, "ada", name=tool))["result"]
    assert question["resultType"] == "input_required"
    [key] = question["inputRequests"]
    answers = {key: {"action": "accept", "content": {"value": "Ada"}}}
    returned = {"requestState": question["requestState"], "inputResponses": answers}
    stolen = await call(web, url, "eve", name=tool, **returned)
    assert stolen["error"]["code"] == -32602
    assert "issued to another client" in stolen["error"]["message"]
    done = (await call(web, url, "ada", name=tool, **returned))["result"]
    assert done["content"][0]["text"].startswith("Ada to red")


@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize("transport", ["http", "memory"])
async def test_a_relay_rejects_a_request_state_that_another_client_sends(
    transport: str, era: Literal["stateless", "handshake"]
) -> None:
    server = make("red")
    async with asyncio.timeout(LIMIT), serving(server) as behind:
        relay = Relay({"type": "http", "url": behind} if transport == "http" else server, era=era)
        async with (
            serving(relay, verify_token=lambda token: token) as url,
            aiohttp.ClientSession() as web,
        ):
            await steal(web, url, "ask")
