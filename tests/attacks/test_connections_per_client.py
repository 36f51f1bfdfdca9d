"""Declared capabilities select connections and cannot exhaust those of other clients."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead import MCPClient, MCPServer
from fairlead.errors import ConnectFailed, FairleadError, ServerBusy
from fairlead.gateway import Gateway
from fairlead.protocol.caller import ANONYMOUS, Caller, Principal
from fairlead.protocol.revisions import NEWEST
from fairlead.relay.relay_settings import RelaySettings
from fairlead.transport.channel import Channel
from fairlead.transport.memory import memory_pair
from fairlead.upstream.connection.connection_opener import MOST_BACKOFFS
from fairlead.upstream.connection.connection_pool import UpstreamPool
from fairlead.upstream.connection.upstream_connection import UpstreamConnection
from fairlead.upstream.server_target import ServerTarget, target_for
from tests.support.virtual_time import VirtualTime

LIMIT = 30.0


# Each of these declarations needs its own connection.
KINDS = [
    msgspec.json.encode({**elicitation, **sampling, **roots})
    for elicitation, sampling, roots in product(
        ({}, *({"elicitation": modes} for modes in ({"form": {}}, {"url": {}}))),
        ({}, {"sampling": {}}, {"sampling": {"tools": {}}}),
        ({}, {"roots": {}}, {"roots": {}, "extensions": {"io.modelcontextprotocol/ui": {}}}),
    )
]


def caller(principal: Principal, kind: int = 0) -> Caller:
    return Caller(NEWEST, True, principal, KINDS[kind])


@asynccontextmanager
async def connections(max_connections: int, **settings: Any) -> AsyncIterator[UpstreamPool]:
    """Yield the connection pool of a handshake-era server."""
    limits = {"max_connections": max_connections, **settings}
    found = UpstreamPool(target_for(MCPServer("s")), RelaySettings(era="handshake", **limits))
    try:
        async with asyncio.timeout(LIMIT):
            yield found
    finally:
        await found.close()


def held_by(place: UpstreamPool, principal: Principal) -> list[UpstreamConnection]:
    return [connection for connection in place.connections if connection.principal == principal]


@pytest.mark.attack(
    "different capabilities in each request, so that each needs another connection to the server",
    "half of a server's connections per client",
    'the client gets a "busy" error; other clients still get connections',
)
async def test_a_client_gets_at_most_half_of_the_connections_to_a_server() -> None:
    async with connections(8) as place:
        for kind in range(4):
            await place.for_caller(caller("greedy", kind))
        with pytest.raises(ServerBusy):
            await place.for_caller(caller("greedy", 4))
        assert len(held_by(place, "greedy")) == 4
        for kind in range(4):
            await place.for_caller(caller("other", kind))
        await place.for_caller(caller("greedy", 1))  # the client can still use its open connections


@pytest.mark.attack(
    "unknown capabilities that differ in each request",
    "unknown capabilities do not select a connection",
    "the client has one connection",
)
async def test_unknown_capabilities_do_not_open_connections() -> None:
    async with connections(8) as place:
        for number in range(20):
            declared = b'{"experimental":{"kind%d":{}},"invented%d":{}}' % (number, number)
            await place.for_caller(Caller(NEWEST, True, "greedy", declared))
        assert len(held_by(place, "greedy")) == 1


async def test_a_busy_error_names_the_time_until_an_idle_connection_is_evicted(
    virtual_time: VirtualTime,
) -> None:
    async with connections(2) as place:
        began = virtual_time.now
        first = await place.for_caller(caller("greedy", 0))
        with pytest.raises(ServerBusy) as refused:
            await place.for_caller(caller("greedy", 1))
        assert held_by(place, "greedy") == [first]
        assert (refused.value.retry_after, virtual_time.now) == (5.0, began)
        await asyncio.sleep(refused.value.retry_after)
        second = await place.for_caller(caller("greedy", 1))
        assert first not in place.connections
        assert held_by(place, "greedy") == [second]


async def test_connections_that_are_being_opened_count_towards_the_limit() -> None:
    async with connections(8) as place:
        opening = (place.for_caller(caller("greedy", kind)) for kind in range(20))
        outcomes = await asyncio.gather(*opening, return_exceptions=True)
        assert sum(isinstance(one, UpstreamConnection) for one in outcomes) == 4
        assert sum(isinstance(one, ServerBusy) for one in outcomes) == 16


async def test_a_client_at_its_limit_evicts_its_own_idle_connection() -> None:
    async with connections(4) as place:
        first = await place.for_caller(caller("greedy", 0))
        await place.for_caller(caller("greedy", 1))
        await place.for_caller(caller("other"))
        place.evictable_after = 0.0
        await place.for_caller(caller("greedy", 2))
        assert first not in place.connections
        assert len(held_by(place, "greedy")) == 2
        assert len(held_by(place, "other")) == 1


async def test_a_connection_of_the_principal_with_most_connections_is_evicted() -> None:
    async with connections(4) as place:
        await place.for_caller(caller("modest"))
        for kind in range(3):
            await place.for_caller(caller(ANONYMOUS, kind))
        place.evictable_after = 0.0
        await place.for_caller(caller("new"))
        assert [len(held_by(place, who)) for who in ("modest", ANONYMOUS, "new")] == [1, 2, 1]


async def test_failed_attempts_of_one_principal_do_not_delay_another() -> None:
    open_server = target_for(MCPServer("s")).open
    failing = True

    async def dial() -> Channel:
        if failing:
            raise ConnectFailed("exited with code 1")
        return await open_server()

    target = ServerTarget(name="s", open=dial, is_process=True)
    place = UpstreamPool(target, RelaySettings(era="handshake"))
    try:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(ConnectFailed):
                await place.for_caller(caller("breaks-it"))
            failing = False
            # The principal whose attempts failed must wait for its backoff.
            with pytest.raises(ConnectFailed, match="cannot be reached"):
                await place.for_caller(caller("breaks-it"))
            assert (await place.for_caller(caller("other"))).alive
    finally:
        await place.close()


async def test_the_number_of_principals_with_remembered_failures_is_limited() -> None:
    async def dial() -> Channel:
        raise ConnectFailed("exited with code 1")

    target = ServerTarget(name="s", open=dial, is_process=True)
    place = UpstreamPool(target, RelaySettings(era="handshake"))
    async with asyncio.timeout(LIMIT):
        for number in range(MOST_BACKOFFS + 10):
            with pytest.raises(ConnectFailed):
                await place.for_caller(caller(f"principal-{number}"))
    assert len(place.opener._backoffs) == MOST_BACKOFFS
    await place.close()


# A handshake-era server that exits if the client declares sampling.
_EXITS = """
import json, sys

for line in sys.stdin:
    request = json.loads(line)
    params = request.get("params", {})
    match request["method"]:
        case "initialize":
            if "sampling" in params["capabilities"]:
                sys.exit(3)
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
        case "ping":
            result = {}
        case method:
            if "id" in request:
                error = {"code": -32601, "message": "unknown method"}
                answer = {"jsonrpc": "2.0", "id": request["id"], "error": error}
                print(json.dumps(answer), flush=True)
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@pytest.mark.attack(
    "repeated declarations of capabilities that make a server exit",
    "a client whose own process exits during start-up shares the first one; no failure is counted",
    "all clients are served",
)
async def test_a_process_that_exits_for_one_client_does_not_affect_others(tmp_path: Path) -> None:
    program = tmp_path / "exits.py"
    program.write_text(_EXITS)
    entry = {"command": sys.executable, "args": [str(program)]}

    async def sample(*_: object) -> dict[str, object]:
        return {}

    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"s": entry})
        async with MCPClient.connect_inprocess(gateway) as client:
            assert (await client.call_tool("s_echo", {"text": "a"}))["content"][0]["text"] == "a"
            async with MCPClient.connect_inprocess(gateway, on_sample=sample) as attacker:
                # the client's own process exits, so it shares the first process, without sampling
                for _ in range(10):
                    served = await attacker.call_tool("s_echo", {"text": "x"})
                    assert served["content"][0]["text"] == "x"
                result = await client.call_tool("s_echo", {"text": "b"})
                assert result["content"][0]["text"] == "b"


@pytest.mark.attack(
    "an authenticated client whose declared capabilities make its own process exit",
    "a named client is never moved to the process of others, so the call fails",
    "the client does not reach the process of other clients",
)
async def test_an_authenticated_client_is_not_moved_to_the_process_of_others(
    tmp_path: Path,
) -> None:
    program = tmp_path / "exits.py"
    program.write_text(_EXITS)
    entry = {"command": sys.executable, "args": [str(program)]}

    async def sample(*_: object) -> dict[str, object]:
        return {}

    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"s": entry})
        async with MCPClient.connect_inprocess(gateway) as client:
            assert (await client.call_tool("s_echo", {"text": "a"}))["content"][0]["text"] == "a"

        async def as_eve() -> Channel:
            near, far = memory_pair()
            gateway.attach(far, "eve")
            return near

        async with MCPClient.connect_channel(as_eve, on_sample=sample) as eve:
            with pytest.raises(FairleadError, match="exited with code 3"):
                await eve.call_tool("s_echo", {"text": "x"})
