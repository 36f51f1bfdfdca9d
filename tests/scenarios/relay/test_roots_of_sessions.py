"""Roots of client sessions, which need separate connections to a server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.gateway import Gateway, Relay
from tests.support.gateway_servers import HANDSHAKE, LIMIT, config, joining, until
from tests.support.scripted_stdio_server import heard, program

SOURCE = """
roots = "none"
for message in requests():
    method = message.get("method")
    if method == "notifications/initialized":
        send({"jsonrpc": "2.0", "id": "r", "method": "roots/list"})
    elif "result" in message:
        roots = message["result"]["roots"][0]["uri"]
    elif method == "tools/list":
        answer(message, {"tools": [{"name": "where", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        answer(message, {"content": text(roots)})
    elif method is not None and "id" in message:
        refuse(message)
"""
FOLDERS = ("file:///a", "file:///b", "file:///c")


def entry(folder: Path) -> dict[str, Any]:
    command = program(folder, SOURCE, stateless=False)
    return {"command": command[0], "args": command[1:]}


@asynccontextmanager
async def aclosing_of(between: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await between.close()


def roots_of(folder: str) -> Any:
    return lambda: [{"uri": folder}]


@pytest.mark.covers("GTW-05")
@pytest.mark.parametrize("kind", ["gateway", "relay"])
@pytest.mark.parametrize("together", [False, True], ids=["in-sequence", "together"])
async def test_a_server_gets_the_roots_of_each_session_separately(
    tmp_path: Path, kind: str, together: bool
) -> None:
    between: Any = Gateway() if kind == "gateway" else Relay(entry(tmp_path), "one")
    tool = "one_where" if kind == "gateway" else "where"
    async with asyncio.timeout(LIMIT), aclosing_of(between):
        if kind == "gateway":
            await between.connect({"one": entry(tmp_path)})
            await until(lambda: between.is_ready)
        async with AsyncExitStack() as stack:
            for folder in FOLDERS:
                client: MCPClient = await stack.enter_async_context(
                    joining(between, HANDSHAKE, on_roots=roots_of(folder))
                )
                await until(lambda client=client: client.connected)
                found = await client.call(tool)
                # as with a direct connection, the first call may arrive before the roots
                if kind == "relay" and found.text == "none":
                    found = await client.call(tool)
                assert found.text == folder
                if not together:
                    await client.close()
    started = len(heard(tmp_path, "initialize"))
    assert started == len(FOLDERS) + (kind == "gateway")


async def test_clients_without_roots_share_an_upstream_connection(tmp_path: Path) -> None:
    def on_elicit(question: Any) -> Any:
        raise AssertionError(question)

    relay = Relay(entry(tmp_path), "one")
    async with asyncio.timeout(LIMIT), aclosing_of(relay):
        for _ in range(3):
            async with MCPClient.connect_inprocess(
                relay, config(HANDSHAKE), on_elicit=on_elicit, on_roots=None
            ) as client:
                assert (await client.call("where")).text == "none"
    assert len(heard(tmp_path, "initialize")) == 1
