"""Sessions whose connection to the server was lost."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.gateway import Relay
from tests.support.gateway_servers import serving, until
from tests.support.raw_relay import HANDSHAKE, LIMIT, scene
from tests.support.scripted_stdio_server import heard, program


async def test_a_server_that_came_back_hears_again_what_was_wanted() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        await client.answer_to(client.ask("logging/setLevel", {"level": "error"}))
        await client.answer_to(client.ask("resources/subscribe", {"uri": "x:1"}))
        await server.close()
        calls = [client.ask("tools/list") for _ in range(5)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        methods = [m["method"] for m in server.seen]
        assert methods.count("initialize") == 1
        assert methods.count("logging/setLevel") == 1
        assert methods.count("resources/subscribe") == 1
        assert len(place.servers) == 2  # and not one for each of the calls
        told = [m["method"] for m in client.skipped]
        assert told.count("notifications/tools/list_changed") == 1
        assert told.count("notifications/resources/updated") == 1


async def test_many_calls_at_once_after_a_loss_open_one_connection_for_a_session() -> None:
    async with scene(upstream="per-session") as place:
        client = await place.session()
        server = await place.server()
        await server.close()
        calls = [client.ask("tools/list") for _ in range(8)]
        server = await place.server()
        for _ in calls:
            server.reply(await server.method("tools/list"), {"tools": []})
        for call in calls:
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == 2
        assert len(place.relay.upstream.links) == 1


@pytest.mark.parametrize("upstream", ["shared", "per-session"])
async def test_a_session_of_a_client_that_vanished_gives_its_connection_up(
    upstream: Any, tmp_path: Path
) -> None:
    """It has no stream and makes no call; should the client come back, the session goes on."""
    command = program(tmp_path, SERVER, stateless=False)
    entry = {"command": command[0], "args": command[1:]}
    relay = Relay(entry, "one", upstream=upstream, linger=0.2)
    async with asyncio.timeout(LIMIT * 4), serving(relay) as url, aiohttp.ClientSession() as web:
        opened = await post(web, url, {}, "initialize", INITIALIZE)
        name = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        assert (await (await post(web, url, name, "tools/call", {"name": "t"})).json())["result"]
        await until(lambda: not relay.upstream.links)
        assert (await (await post(web, url, name, "tools/call", {"name": "t"})).json())["result"]
        assert len(heard(tmp_path, "initialize")) == 2
        headers = {**HEADERS, **name, "Accept": "text/event-stream"}
        async with web.get(url, headers=headers) as stream:  # now it may be told something
            assert stream.status == 200
            await post(web, url, name, "tools/call", {"name": "t"})
            [link] = relay.upstream.links
            assert not link.abandoned
        await until(lambda: not relay.upstream.links)


SERVER = """
for message in requests():
    if message.get("method") == "tools/call":
        answer(message, {"content": text("done")})
    elif "id" in message:
        refuse(message)
"""
INITIALIZE = {
    "protocolVersion": HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "c", "version": "1"},
}
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": HANDSHAKE}


async def post(
    web: aiohttp.ClientSession, url: str, more: dict[str, str], method: str, params: Any
) -> aiohttp.ClientResponse:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await web.post(url, json=body, headers={**HEADERS, **more})
