"""Replicas with one server name: load sharing and failover."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import MCPClient, RpcError
from fairlead.client import accept
from fairlead.errors import ConnectFailed
from fairlead.gateway import Gateway, RelaySettings
from fairlead.gateway.backends.backend import Member
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.relay.replicas import Replicas
from fairlead.upstream.server_lists import ServerLists
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    STATELESS,
    config,
    free_port,
    joining,
    make,
    names,
    program,
    serving,
    until,
)
from tests.support.scripted_stdio_server import program as scripted
from tests.support.virtual_time import VirtualTime


def three() -> list[dict[str, object]]:
    return [program("red") for _ in range(3)]


def all_there(gateway: Gateway, count: int = 3) -> bool:
    return len(gateway.upstreams.connected()) == count and gateway.is_ready


@pytest.mark.covers("GTW-12")
async def test_stateless_calls_alternate_between_replicas_and_sessions_do_not() -> None:
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": three()})
        await until(lambda: all_there(gateway))
        async with serving(gateway) as url:
            for joined in (
                MCPClient.connect_http(url, config(STATELESS)),
                joining(gateway, STATELESS),
            ):
                async with joined as client:
                    assert await names(client) == sorted(set(await names(client)))
                    pids = Counter([(await client.call("red_who")).text for _ in range(9)])
                    assert sorted(pids.values()) == [3, 3, 3]
            homes = set()
            for _ in range(3):
                async with MCPClient.connect_http(url, config(HANDSHAKE)) as client:
                    pids = Counter([(await client.call("red_who")).text for _ in range(5)])
                    assert list(pids.values()) == [5]
                    homes |= set(pids)
            assert len(homes) == 3


async def test_a_clients_input_is_sent_to_the_replica_that_requested_it() -> None:
    def on_elicit(question: object) -> object:
        return accept({"value": "Ada"})

    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": three()})
        await until(lambda: all_there(gateway))
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(url, config(STATELESS), on_elicit=on_elicit) as client,
        ):
            answers = [(await client.call("red_ask")).text for _ in range(6)]
            assert all(answer.startswith("Ada to red") for answer in answers)
            assert len(set(answers)) == 3


@pytest.mark.covers("GTW-12")
@pytest.mark.parametrize("version", BOTH)
async def test_calls_are_not_sent_to_a_dead_replica(version: str) -> None:
    # with other settings, a handshake client would get its own process
    shared = RelaySettings(share="all")
    async with asyncio.timeout(LIMIT), Gateway(relay=shared) as gateway:
        await gateway.connect({"red": three()})
        await until(lambda: all_there(gateway))
        async with joining(gateway, version) as client:
            victim = int((await client.call("red_who")).text.split()[1])
            os.kill(victim, signal.SIGKILL)
            await until(lambda: not all_there(gateway))
            for _ in range(6):
                pid = int((await client.call("red_who")).text.split()[1])
                assert pid != victim
            await until(lambda: all_there(gateway))  # restarted


@pytest.mark.parametrize("version", BOTH)
async def test_a_call_that_may_have_been_delivered_is_not_repeated(version: str) -> None:
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": three()})
        await until(lambda: all_there(gateway))
        before = {
            one.name: one.health.calls for one in gateway.members["red"].upstreams if one.health
        }
        async with joining(gateway, version) as client:
            with pytest.raises(RpcError) as caught:
                await client.call_tool("red_die", {})
            assert caught.value.data["source"] == "proxy"
            after = {
                one.name: one.health.calls for one in gateway.members["red"].upstreams if one.health
            }
            assert sum(after.values()) - sum(before.values()) == 1
            assert (await client.call("red_who")).text.startswith("red")


@pytest.mark.parametrize("version", BOTH)
async def test_the_endpoint_of_a_server_uses_a_connected_replica(version: str) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        dead = {"type": "http", "url": f"http://127.0.0.1:{free_port()}/mcp"}
        await gateway.connect({"red": [dead, {"type": "http", "url": red}]})
        await until(lambda: all_there(gateway, 1))
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(f"{url}/red", config(version)) as client,
        ):
            assert "who" in await names(client)
            for _ in range(3):
                assert (await client.call("who")).text.startswith("red")
            rows = {row["name"]: row for row in gateway.status()["servers"]}
            assert rows["red#2"]["status"] == "connected"
            assert rows["red#2"]["error"] is None
            assert rows["red"]["status"] == "failed"


@pytest.mark.covers("GTW-12", "OBS-02")
async def test_repeated_failures_open_the_circuit_until_the_reset_timeout() -> None:
    port = free_port()
    async with asyncio.timeout(LIMIT), Gateway(reset_timeout=0.3) as gateway:
        async with serving(make("red"), port=port):
            await gateway.connect({"red": {"url": f"http://127.0.0.1:{port}/mcp"}})
            await until(lambda: gateway.is_ready)
        health = gateway.members["red"].upstreams[0].health
        assert health is not None
        async with joining(gateway) as client:
            refusals = []
            while health.breaker.state != "open":
                with pytest.raises(RpcError) as caught:
                    await client.call_tool("red_who", {})
                refusals.append(caught.value)
            assert len(refusals) == 5
            with pytest.raises(RpcError) as caught:
                await client.call_tool("red_who", {})
            assert caught.value.data["retryAfter"] <= 0.3
            assert health.calls == 5
            async with serving(make("red"), port=port):
                await until(lambda: health.breaker.state != "open")
                answer = None
                while answer is None or health.breaker.state != "closed":
                    try:
                        answer = await client.call_tool("red_who", {})
                    except RpcError:
                        await asyncio.sleep(0.02)
                assert answer["content"][0]["text"].startswith("red")


async def test_error_responses_of_a_server_do_not_open_the_circuit() -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway) as client:
            for _ in range(8):
                with pytest.raises(RpcError):
                    await client.get_prompt("red_hello", {})
            assert gateway.members["red"].upstreams[0].health.breaker.state == "closed"
            assert (await client.call("red_who")).text.startswith("red")


async def test_lists_are_requested_from_a_connected_replica() -> None:
    dead = {"command": "/nowhere/to/be/found"}
    async with asyncio.timeout(LIMIT), Gateway(deadline=10) as gateway:
        await gateway.connect({"red": [dead, program("red")]})
        async with joining(gateway) as client:
            # the wait continues although one replica failed
            assert "red_who" in await names(client)
            assert (await client.call("red_who")).text.startswith("red")


class FakeUpstream:
    """A connected server that records the times at which its lists are requested."""

    state = "connected"

    def __init__(self, clock: VirtualTime) -> None:
        self.lists = ServerLists(ListKind, for_client=False)
        self.requested: list[float] = []
        self._clock = clock

    def refresh_lists(self) -> None:
        self.requested.append(self._clock.now)


async def test_a_failed_list_is_requested_again_even_shortly_after_the_machine_boots(
    virtual_time: VirtualTime,
) -> None:
    """The monotonic clock may be close to zero shortly after the machine boots."""
    virtual_time.now = 5.0
    upstream = FakeUpstream(virtual_time)
    relay: Any = SimpleNamespace(upstream=upstream, name="red", rank=0)
    replicas = Replicas("red", [relay])
    member = Member("red", replicas, MergedCatalog(), lambda kind: None)
    member.refresh_if_older(60)
    upstream.lists.fail(ListKind.TOOLS, ConnectFailed("no network yet"))
    await asyncio.sleep(1)
    member.refresh_if_older(60)
    upstream.lists.put(ListKind.TOOLS, [])
    assert upstream.requested == [5.0, 6.0]
    member.refresh_if_older(60)  # the list is known now, so it is not fetched again
    await asyncio.sleep(59.9)
    member.refresh_if_older(60)
    assert upstream.requested == [5.0, 6.0]
    await asyncio.sleep(0.1)
    member.refresh_if_older(60)
    assert upstream.requested == [5.0, 6.0, 66.0]


PAGES = """
tool = {"inputSchema": {"type": "object"}}
pages = {
    None: {"tools": [{"name": "a", **tool}], "nextCursor": ""},
    "": {"tools": [{"name": "b", **tool}], "nextCursor": "last"},
    "last": {"tools": [{"name": "c", **tool}]},
}
for request in requests():
    if request["method"] == "tools/list":
        complete(request, **pages[request.get("params", {}).get("cursor")])
    elif "id" in request:
        refuse(request)
"""


@pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "handshake"])
async def test_listing_continues_after_a_page_with_an_empty_cursor(
    tmp_path: Path, stateless: bool
) -> None:
    command, *arguments = scripted(tmp_path, PAGES, stateless=stateless)
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": {"command": command, "args": arguments}})
        async with joining(gateway, STATELESS) as client:
            assert await names(client) == ["red_a", "red_b", "red_c"]
