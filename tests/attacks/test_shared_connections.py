"""Clients that share a connection to a server cannot disturb each other."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import Raw

from fairlead.gateway import Relay
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.envelope import TransportContext
from fairlead.protocol.revisions import NEWEST
from fairlead.wire import Notification, to_json

SERVER = """
import asyncio, sys
from fairlead import MCPServer

server = MCPServer("slow")
gate = None

@server.tool()
async def wait() -> str:
    global gate
    gate = asyncio.Event()
    await gate.wait()
    return "finished"

@server.tool()
async def open_gate() -> str:
    while gate is None:
        await asyncio.sleep(0.01)
    gate.set()
    return "open"

server.run()
"""


@pytest.mark.attack(
    "cancelling calls of other clients of a proxy by guessing ids",
    "notifications that name a request are not forwarded for stateless clients",
    "the notification is dropped",
)
async def test_a_stateless_client_cannot_cancel_the_call_of_another(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    relay = Relay({"command": sys.executable, "args": [str(program)]})
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(relay.run_http(port=0, started=ready.set_result))
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }

    async def call(http: aiohttp.ClientSession, name: str, number: int) -> dict[str, Any]:
        params = {"name": name, "arguments": {}, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        headers = {
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
            "Accept": "application/json, text/event-stream",
        }
        async with http.post(url, json=body, headers=headers) as response:
            result: dict[str, Any] = await response.json(content_type=None)
            return result

    try:
        async with asyncio.timeout(30), aiohttp.ClientSession() as http:
            url = await ready
            waiting = asyncio.create_task(call(http, "wait", 1))
            caller = Caller(NEWEST, True, principal=ANONYMOUS)
            context = TransportContext(transport_type="http")
            while not relay.pool.connections:
                await asyncio.sleep(0.01)
            for number in range(30):
                params = {"requestId": number, "_meta": meta}
                note = Notification("notifications/cancelled", Raw(to_json(params)))
                relay.on_stateless_notification(note, caller, context)
            assert "result" in await call(http, "open_gate", 2)
            assert (await waiting)["result"]["content"][0]["text"] == "finished"
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
