"""Servers that hang are replaced; busy servers are left alone."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from fairlead.config.upstream_settings import Rules
from fairlead.errors import RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.manager.manager import MCPManager
from tests.scenarios.relay.test_faulty_servers import call, raw_client
from tests.support.faulty_servers import Rough, nothing_left, run, until
from tests.support.gateway_servers import joining
from tests.support.raw_relay import Client

pytestmark = pytest.mark.slow  # runs with `make test-all`

HANGS: dict[str, Any] = {"hang": "tools/call", "deaf": True}
CALL = {"name": "whoami", "arguments": {}}


def give_up(client: Client, request_id: Any) -> None:
    client.tell("notifications/cancelled", {"requestId": request_id})


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_relay_replaces_a_server_that_hangs(tmp_path: Path, era: str) -> None:
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        rough = Rough(tmp_path, "rough", HANGS, {})
        relay = Relay(rough.entry, "rough", era="handshake", hang_timeout=0.3)
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        if era == "handshake":
            await client.initialize()
        ask = client.ask if era == "handshake" else client.stateless
        first, second = ask("tools/call", CALL), ask("tools/call", CALL)
        await rough.got("tools/call", 1)
        give_up(client, first)  # as clients do after their own timeout
        told = (await client.answer_to(second))["error"]
        assert "server 'rough' does not respond" in told["message"]
        assert told["data"] == {"source": "proxy", "server": "rough"}
        works = await client.answer_to(ask("tools/call", CALL))
        assert works["result"]["content"][0]["text"] == f"rough {rough.pids[1]}"
        assert len(rough.pids) == 2


async def test_a_timeout_in_the_relay_starts_a_check_of_the_server(tmp_path: Path) -> None:
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        rough = Rough(tmp_path, "rough", HANGS, {})
        relay = Relay(rough.entry, "rough", call_timeout=0.2, hang_timeout=0.2)
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        await client.initialize()
        assert "did not answer within" in (await call(client))["error"]["message"]
        await until(lambda: not relay.pool.connections)
        assert "result" in await call(client)
        assert len(rough.pids) == 2


async def test_a_busy_server_that_answers_pings_is_not_replaced(tmp_path: Path) -> None:
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        rough = Rough(tmp_path, "rough")
        relay = Relay(rough.entry, "rough", era="handshake", hang_timeout=0.2)
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        await client.initialize()
        long, other = (client.ask("tools/call", {"name": "wait"}) for _ in range(2))
        await rough.got("tools/call", 1)
        give_up(client, other)
        await rough.got("ping", 1)
        (link,) = relay.pool.connections
        assert "result" in await call(client)
        assert relay.pool.connections == [link]
        assert len(link.calls) == 1
        assert len(rough.pids) == 1
        give_up(client, long)


async def test_a_server_that_responds_late_is_not_replaced(tmp_path: Path) -> None:
    async with nothing_left(tmp_path), AsyncExitStack() as stack:
        # This server handles one request at a time, including pings.
        rough = Rough(tmp_path, "rough")
        relay = Relay(rough.entry, "rough", era="handshake", hang_timeout=0.5)
        stack.push_async_callback(relay.close)
        client = await raw_client(relay, tmp_path, stack)
        await client.initialize()
        arguments = {"name": "sleep", "arguments": {"seconds": 0.7}}
        calls = [client.ask("tools/call", arguments) for _ in range(3)]
        await rough.got("tools/call", 1)
        give_up(client, calls[0])
        for one in calls[1:]:
            answer = await client.answer_to(one)
            assert answer["result"]["content"][0]["text"] == f"rough {rough.pids[0]}"
        assert len(rough.pids) == 1


@pytest.mark.covers("GTW-12")
async def test_a_gateway_replaces_a_server_that_hangs(tmp_path: Path) -> None:
    rules = Rules(hang_timeout=0.3, health_interval=0)
    async with (
        nothing_left(tmp_path),
        MCPManager(on_roots=None, rules=rules) as manager,
        Gateway(manager) as gateway,
    ):
        rough = Rough(tmp_path, "rough", HANGS, {})
        await gateway.connect({"rough": rough.entry})
        async with joining(gateway) as client, joining(gateway) as other:
            await client.list_tools()
            waiting = asyncio.ensure_future(other.call_tool("rough_whoami"))
            await rough.got("tools/call", 1)
            with pytest.raises(TimeoutError):
                await client.call_tool("rough_whoami", timeout=0.1)
            with pytest.raises(RpcError, match="server 'rough' does not respond"):
                await waiting
            result = await client.call_tool("rough_whoami")
            assert result["content"][0]["text"] == f"rough {rough.pids[1]}"


@pytest.mark.covers("HST-22")
async def test_a_manager_replaces_a_server_that_hangs(tmp_path: Path) -> None:
    rules = Rules(hang_timeout=0.3, health_interval=0)
    async with nothing_left(tmp_path), MCPManager(tmp_path, rules=rules) as manager:
        rough = Rough(tmp_path, "a", HANGS, {})
        await manager.connect_servers({"a": rough.entry})
        assert "timeout after 100ms" in await run(manager, "mcp_a_whoami", timeout=0.1)
        await until(lambda: manager.get_connection_status("a") != "connected")
        assert await run(manager, "mcp_a_whoami") == f"a {rough.pids[1]}"
