"""Clients at the endpoint of one server cannot undo subscriptions of other clients."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.client.client_config import MCPClientConfig
from fairlead.gateway import Gateway

# A handshake-era server that sends updates for subscribed resources.
_SERVER = """
import json, sys

def send(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)

watched = set()
for line in sys.stdin:
    request = json.loads(line)
    params, result = request.get("params", {}), {}
    match request["method"]:
        case "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {"subscribe": True}},
                "serverInfo": {"name": "s", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": "change", "inputSchema": {"type": "object"}}]}
        case "resources/list":
            result = {"resources": [{"uri": "memo://x", "name": "x"}]}
        case "resources/templates/list":
            result = {"resourceTemplates": []}
        case "resources/subscribe":
            watched.add(params["uri"])
        case "resources/unsubscribe":
            watched.discard(params["uri"])
        case "tools/call":
            for uri in watched:
                send(method="notifications/resources/updated", params={"uri": uri})
            result = {"content": [{"type": "text", "text": str(sorted(watched))}]}
        case "ping":
            pass
        case _:
            if "id" in request:
                send(id=request["id"], error={"code": -32601, "message": "unknown method"})
            continue
    if "id" in request:
        send(id=request["id"], result=result)
"""


@pytest.mark.attack(
    "unsubscribe from a resource that other clients watch",
    "a client can only cancel its own subscriptions at the server",
    "other clients still receive notifications",
)
async def test_a_client_cannot_end_subscriptions_of_other_clients(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(_SERVER)
    heard = asyncio.Event()

    def on_notification(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/resources/updated":
            heard.set()

    handshake = MCPClientConfig(protocol_version="2025-11-25")
    async with asyncio.timeout(30), Gateway() as gateway:
        await gateway.connect({"s": {"command": sys.executable, "args": [str(program)]}})
        connect = MCPClient.connect_inprocess
        async with (
            connect(gateway, handshake, on_notification=on_notification) as watcher,
            connect(gateway.endpoints["s"], handshake) as other,
        ):
            await watcher.subscribe("memo://x")
            await other.request("resources/unsubscribe", {"uri": "memo://x"})
            result = await other.call_tool("change", {})
            assert result["content"][0]["text"] == "['memo://x']"
            await heard.wait()
