"""Credentials of the clients of a gateway, searched for in everything that its servers receive.

The gateway is a process with clients over HTTP in both eras, HTTP+SSE and WebSocket, and one server
for each transport, which records its environment, its headers and all messages.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from fairlead import MCPClient, MCPClientConfig
from tests.support.gateway_servers import free_port, make
from tests.support.login_command import Fairlead
from tests.support.token_issuer import running_issuer

LIMIT = 50.0
MARK = "PLANTED"
STATIC, ADMIN, PEER = f"static-{MARK}-1", f"admin-{MARK}-2", f"peer-{MARK}-3"
# Credentials that clients send in addition to their token.
HEADERS = {
    "Cookie": f"session={MARK}",
    "DPoP": f"{MARK}.proof",
    "Proxy-Authorization": f"Basic {MARK}",
    "X-Admin-Token": ADMIN,
    "X-Api-Key": MARK,
}
FILE = """
listen = "127.0.0.1:{port}"
admin_token = "${{ADMIN}}"
[servers.stdio]
command = "{python}"
args = ["{program}", "{report}"]
[servers.http]
url = "{base}/mcp"
[servers.sse]
type = "sse"
url = "{base}/sse"
[servers.ws]
type = "ws"
url = "{socket}/ws"
[clients.static]
token_env = "STATIC"
[clients.peer]
token = "${{PEER}}"
[auth]
issuer = "{issuer}"
public_url = "http://127.0.0.1:{port}"
audience = "gateway"
[[auth.rules]]
client = "users"
"""
# Copies its input to a file, like `tee`, and passes it on to a server in the same process.
PROGRAM = """
import json, os, sys, threading
sys.path[:0] = {path!r}
from tests.support.gateway_servers import make

report = open(sys.argv[1], "ab", buffering=0)
report.write(json.dumps([sys.argv, dict(os.environ)]).encode())
source, (reading, writing) = os.dup(0), os.pipe()
os.dup2(reading, 0)

def copy():
    while chunk := os.read(source, 65536):
        report.write(chunk)
        os.write(writing, chunk)
    os.close(writing)

threading.Thread(target=copy, daemon=True).start()
make("stdio").run()
"""


class RecordingApp:
    """ASGI application that records the requests and messages for another one."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.seen: dict[str, list[str]] = {"/mcp": [], "/sse": [], "/messages": [], "/ws": []}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        kept = self.seen[scope["path"].rstrip("/")]
        kept.append(repr((scope["headers"], scope["query_string"])))

        async def recorded() -> Any:
            event = await receive()
            kept.append(repr(event))
            return event

        await self._app(scope, recorded, send)


@contextlib.asynccontextmanager
async def recording() -> AsyncIterator[tuple[RecordingApp, str]]:
    """Serve a recorded server over HTTP, HTTP+SSE and WebSocket, and yield its origin."""
    app = RecordingApp(make("remote").create_http_app())
    port = free_port()
    runner = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    task = asyncio.create_task(runner.serve())
    try:
        while not runner.started:
            await asyncio.sleep(0.01)
        yield app, f"http://127.0.0.1:{port}"
    finally:
        runner.should_exit = True
        await task


def connections(base: str, headers: dict[str, str]) -> list[Any]:
    """Return a client for each transport and era of the gateway."""
    handshake = MCPClientConfig(protocol_version="2025-11-25", timeout_seconds=LIMIT)
    stateless = MCPClientConfig(protocol_version="2026-07-28", timeout_seconds=LIMIT)
    sse = {"type": "sse", "url": f"{base}/sse", "headers": headers}
    ws = {"type": "ws", "url": f"{base.replace('http', 'ws')}/ws", "headers": headers}
    return [
        MCPClient.connect_http(f"{base}/mcp", handshake, headers=headers),
        MCPClient.connect_http(f"{base}/mcp", stateless, headers=headers),
        MCPClient.connect_entry(sse, handshake),
        MCPClient.connect_entry(ws, handshake),
    ]


async def use(client: MCPClient, names: dict[str, str]) -> None:
    """Send each kind of request to each server; `names` are prefixes of tools by server."""
    tools = {tool["name"] for tool in await client.list_tools()}
    for server, prefix in names.items():
        assert {f"{prefix}who", f"{prefix}speak"} <= tools, server
        assert (await client.call(f"{prefix}speak", {"text": f"to {server}"})).text
        with contextlib.suppress(Exception):
            await client.call(f"{prefix}nothing", {})
    await client.read_resource("shared://note")


@pytest.mark.covers("AUT-06")
@pytest.mark.attack(
    "a server of a gateway that reads its environment, headers and messages for tokens of clients",
    "only headers of the protocol are sent; variables with tokens are not inherited",
    "no credential of a client over stdio, HTTP, HTTP+SSE and WebSocket",
)
@pytest.mark.slow
async def test_credentials_of_gateway_clients_are_not_sent_to_servers(tmp_path: Path) -> None:
    file, report, program = (tmp_path / name for name in ("gateway.toml", "report", "program.py"))
    program.write_text(PROGRAM.format(path=[str(Path.cwd())]))
    async with asyncio.timeout(LIMIT), running_issuer() as issuer, recording() as (app, origin):
        port = free_port()
        file.write_text(
            FILE.format(
                port=port,
                python=sys.executable,
                program=program,
                report=report,
                base=origin,
                socket=origin.replace("http", "ws"),
                issuer=issuer.issuer,
            )
        )
        fairlead = Fairlead(tmp_path / "home", STATIC=STATIC, ADMIN=ADMIN, PEER=PEER, KEPT="kept")
        gateway = await fairlead.start("gateway", str(file), "--json")
        try:
            assert gateway.stdout is not None
            await gateway.stdout.readuntil(b"\n}\n")
            base = f"http://127.0.0.1:{port}"
            token = issuer.token("gateway", email=f"{MARK}@example.com")
            everywhere = {one: f"{one}_" for one in ("stdio", "http", "sse", "ws")}
            for bearer in (STATIC, PEER, token):
                headers = {**HEADERS, "Authorization": f"Bearer {bearer}"}
                for attempt in connections(base, headers):
                    async with attempt as client:
                        await use(client, everywhere)
                for one in everywhere:
                    url = f"{base}/mcp/{one}"
                    async with MCPClient.connect_http(url, headers=headers) as client:
                        await use(client, {one: ""})
        finally:
            gateway.terminate()
            await gateway.communicate()
    seen = {"stdio": [report.read_text()], **app.seen}
    for place, texts in seen.items():
        text = "\n".join(texts)
        assert place == "/sse" or "speak" in text, f"{place} was not used"
        assert "authorization" not in text.lower()
        for secret in (MARK, token, *token.split(".")):
            assert secret not in text, place
    assert json.dumps("kept") in seen["stdio"][0]  # other variables are inherited
