"""Settings of a gateway that affect the connections to its servers."""

import asyncio
from pathlib import Path

import pytest

from fairlead import MCPClient
from fairlead.errors import RequestTimeout
from fairlead.gateway import Gateway, GatewaySettings, RelaySettings
from tests.support.gateway_servers import LIMIT, joining, until
from tests.support.scripted_stdio_server import heard, program


async def test_connections_to_servers_have_the_limits_of_the_gateway() -> None:
    relay = RelaySettings(hang_timeout=2.0, connect_timeout=7.0)
    settings = GatewaySettings(relay=relay, max_list_bytes=1000, max_list_items=10)
    async with Gateway(settings=settings) as gateway:
        assert gateway.upstreams.settings == relay
        await gateway.connect({"red": {"command": "does-not-exist"}})
        upstream = gateway.upstreams["red"]
        assert (upstream.settings, upstream.timeout) == (relay, 7.0)
        config = upstream._config
        assert (config.max_list_bytes, config.max_list_items) == (1000, 10)


async def test_a_server_that_hangs_is_replaced_after_the_hang_timeout(tmp_path: Path) -> None:
    source = """
    for request in requests():
        if request["method"] == "tools/list":
            answer(request, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        elif request["method"] == "tools/call":
            time.sleep(60)
        elif "id" in request:
            refuse(request)
    """
    command = program(tmp_path, source, stateless=False)
    settings = GatewaySettings(relay=RelaySettings(hang_timeout=0.2))
    async with asyncio.timeout(LIMIT), Gateway(settings=settings) as gateway:
        await gateway.connect({"one": {"command": command[0], "args": command[1:]}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway) as client:
            assert isinstance(client, MCPClient)
            with pytest.raises(RequestTimeout):
                await client.call_tool("one_t", {}, 0.1)
            await until(lambda: len(heard(tmp_path, "initialize")) == 2)


async def test_a_known_handshake_server_is_not_probed_again(
    tmp_path: Path,
) -> None:
    source = """
    for request in requests():
        if request["method"] == "tools/list":
            answer(request, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        elif request["method"] == "tools/call":
            answer(request, {"content": text("done")})
        elif "id" in request:
            refuse(request)
    """
    command = program(tmp_path, source, stateless=False)
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"one": {"command": command[0], "args": command[1:]}})
        await until(lambda: gateway.is_ready)
        probes = len(heard(tmp_path, "server/discover"))
        # A client that supports input requests gets its own process.
        async with joining(gateway, "2026-07-28", on_elicit=lambda _: None) as client:
            assert (await client.call("one_t")).text == "done"
        assert len(heard(tmp_path, "initialize")) == 2
        assert len(heard(tmp_path, "server/discover")) == probes
