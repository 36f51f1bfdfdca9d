"""Settings of a gateway that affect the connections to its servers."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from fairlead import MCPClient
from fairlead.config.upstream_settings import Rules
from fairlead.errors import RequestTimeout
from fairlead.gateway import Gateway, GatewaySettings, RelaySettings
from fairlead.manager.manager import MCPManager
from tests.support.gateway_servers import LIMIT, joining, until
from tests.support.scripted_stdio_server import heard, program


async def test_the_limits_of_the_gateway_apply_to_connections_to_servers() -> None:
    relay = RelaySettings(hang_timeout=2.0, connect_timeout=7.0)
    settings = GatewaySettings(relay=relay, max_list_bytes=1000, max_list_items=10)
    async with Gateway(settings=settings) as gateway:
        assert gateway.upstreams.settings == relay
        await gateway.connect({"red": {"command": "does-not-exist"}})
        upstream = gateway.upstreams["red"]
        assert upstream.settings == relay
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


async def test_the_rules_of_a_manager_take_precedence_over_the_settings_of_its_gateway() -> None:
    relay = RelaySettings(hang_timeout=2.0, idle_close=3.0, call_timeout=4.0)
    manager = MCPManager(rules=Rules(idle_stop=9.0))
    async with asyncio.timeout(LIMIT), manager, Gateway(manager, relay=relay) as gateway:
        await gateway.connect({"red": {"command": "does-not-exist"}})
        expected = structs.replace(relay, idle_close=9.0)
        assert gateway.upstreams["red"].settings == gateway.settings.relay == expected


async def test_the_timeout_of_an_entry_limits_the_opening_of_every_connection() -> None:
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": {"command": "does-not-exist", "timeout": 7000}})
        upstream = gateway.upstreams["red"]
        assert upstream.pool.opener.settings.connect_timeout == 7.0
        gateway.update_settings(RelaySettings(connect_timeout=9.0), {"red": [upstream.spec]})
        assert upstream.settings.connect_timeout == 7.0
