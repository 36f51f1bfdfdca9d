"""Servers that are taken away and put back while clients call them, listen to them, or come."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.errors import RequestTimeout
from fairlead.gateway import Gateway
from fairlead.gateway.catalog.views import View
from fairlead.limits import LIST_SECONDS
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    Ears,
    config,
    joining,
    make,
    names,
    program,
    serving,
    until,
)

ERAS = ["2025-11-25", "2026-07-28"]
UPDATED = "notifications/resources/updated"

STUBBORN = r"""
import json, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "stubborn", "version": "0"}}
    elif asked.get("method") == "tools/list":
        result = {"tools": [{"name": "hang", "inputSchema": {"type": "object"}}]}
    elif asked.get("method") == "ping":
        result = {}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
while True:
    signal.pause()
"""


def stubborn() -> dict[str, Any]:
    """A program that answers no call, and does not end when it is asked to."""
    return {"command": sys.executable, "args": ["-c", STUBBORN]}


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("path", ["", "/red"])
async def test_a_call_under_way_is_answered_when_its_server_is_taken_away(
    version: str, path: str
) -> None:
    called, server = asyncio.Event(), MCPServer("red")

    @server.tool()
    async def hang() -> str:
        called.set()
        await asyncio.Event().wait()
        return "never"

    async with (
        asyncio.timeout(LIMIT),
        serving(server) as red,
        Gateway() as gateway,
        serving(gateway) as url,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with MCPClient.connect_http(f"{url}{path}", config(version)) as client:
            call = asyncio.create_task(client.call_tool("hang" if path else "red_hang", {}))
            await called.wait()
            await gateway.disconnect("red")
            with pytest.raises(RpcError, match="server 'red' closed the connection"):
                await call


async def test_a_server_may_be_put_back_while_the_old_one_is_still_ending() -> None:
    """Its end takes seconds, because it does not listen; the new one must not go with it."""
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": stubborn()})
        await until(lambda: gateway.is_ready)
        leaving = asyncio.create_task(gateway.disconnect("red"))
        await until(lambda: "red" not in gateway.members)
        assert not leaving.done()
        await gateway.connect({"red": program("red")})
        assert leaving.done()
        async with joining(gateway) as client:
            assert (await client.call("red_secret")).text == "the secret of red"
            assert "red_hang" not in await names(client)


async def test_who_gives_up_taking_a_server_away_does_not_keep_half_of_it() -> None:
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": stubborn()})
        await until(lambda: gateway.is_ready)
        leaving = asyncio.create_task(gateway.disconnect("red"))
        await until(lambda: "red" not in gateway.members)
        leaving.cancel()
        await asyncio.wait((leaving,))
        await gateway.disconnect("red")  # waits for the end that is under way
        assert "red" not in gateway.upstreams


async def test_what_a_server_lists_while_it_is_taken_away_is_not_kept() -> None:
    listing, go_on, server = asyncio.Event(), asyncio.Event(), make("red")

    class Slow:
        """Holds the answer to every list of resources."""

        async def __call__(self, exchange: Any, proceed: Any) -> Any:
            if exchange.method == "resources/list":
                listing.set()
                await go_on.wait()
            return await proceed(exchange)

    server = MCPServer("red", interceptors=[Slow()])
    server.tool(name="who")(lambda: "x")
    server.resource("red://fixed")(lambda: "x")
    async with asyncio.timeout(LIMIT), serving(server) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        await listing.wait()
        leaving = asyncio.create_task(gateway.disconnect("red"))
        await until(lambda: "red" not in gateway.members)
        go_on.set()
        await leaving
        assert [gateway.catalog.count(kind) for kind in ListKind] == [0, 0, 0, 0]


@pytest.mark.parametrize("version", ERAS)
async def test_a_subscription_outlives_that_its_server_is_replaced(version: str) -> None:
    """A changed entry in a file is a server taken away and another put in its place."""
    ears, first, second = Ears(), make("red"), make("red")
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        async with serving(first) as url:
            await gateway.connect({"red": {"url": url}})
            await until(lambda: gateway.is_ready)
            async with joining(gateway, version, on_notification=ears) as client:
                await client.subscribe("red://fixed")
                first.resource_updated("red://fixed")
                await ears.hear(UPDATED, uri="red://fixed")
                await gateway.disconnect("red")
                async with serving(second) as other:
                    await gateway.connect({"red": {"url": other}})
                    # Once because it may be another now, and then because it has changed.
                    await ears.hear(UPDATED, uri="red://fixed")
                    await until(lambda: gateway.upstream_subscriptions._asked)
                    ears.drain()
                    second.resource_updated("red://fixed")
                    await ears.hear(UPDATED, uri="red://fixed")
        await until(lambda: len(gateway.upstream_subscriptions) == 0)


@pytest.mark.parametrize("version", ERAS)
async def test_who_watched_a_server_that_never_comes_back_leaves_nothing_behind(
    version: str,
) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, version) as client:
            await client.subscribe("red://fixed")
            await gateway.disconnect("red")
        await until(lambda: len(gateway.upstream_subscriptions) == 0)


async def test_who_listens_at_the_door_of_a_server_hears_that_it_was_taken_away() -> None:
    """Also while the server is not there, and there is nothing to hear."""
    async with asyncio.timeout(LIMIT), Gateway() as gateway, serving(gateway) as url:
        async with serving(make("red")) as red:
            await gateway.connect({"red": {"url": red}})
            await until(lambda: gateway.is_ready)
            client = await MCPClient.connect_http(f"{url}/red", config(ERAS[1]))
            await client.listen("tools")
            await until(lambda: gateway.endpoints["red"].listeners)
        endpoint = gateway.endpoints["red"]
        await gateway.disconnect("red")
        await until(lambda: not endpoint.listeners)
        await client.close()


async def test_two_subscriptions_on_one_connection_are_kept_apart() -> None:
    """When one of them ends, the other is still subject to what its client may see."""
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        listeners = gateway.subscriptions.listeners
        async with joining(gateway, ERAS[1]) as client:

            def listen(**wanted: Any) -> "asyncio.Task[Any]":
                asking = {"notifications": wanted}
                peer = client.transport.peer
                return asyncio.create_task(peer.request("subscriptions/listen", asking, timeout=0))

            watching = listen(resourceSubscriptions=["red://fixed"])
            await until(lambda: len(listeners) == 1)
            other = listen(toolsListChanged=True)
            await until(lambda: len(listeners) == 2)
            other.cancel()
            await until(lambda: len(listeners) == 1)
            gateway.show({}, View(deny=("red://*",)))
            await watching  # it is ended; who asks again gets what it may hear


HALF = r"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "half", "version": "0"},
                  "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}
    elif asked.get("method") == "tools/list":
        result = {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}
    elif asked.get("method") == "resources/list":
        result = {"resources": [{"uri": "half://r", "name": "r"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_a_list_that_hangs_keeps_no_other_list_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIST_SECONDS, "value", 0.2)
    half = {"command": sys.executable, "args": ["-c", HALF]}
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"half": half})
        await gateway.members["half"].introduced.wait()
        assert gateway.catalog.names(ListKind.TOOLS, View.everything()) == ["half_a"]
        assert gateway.catalog.names(ListKind.RESOURCES, View.everything()) == ["half://r"]
        await until(lambda: gateway.members["half"].error is not None)
        error = gateway.members["half"].error
        assert isinstance(error, RequestTimeout)
        assert (error.seconds, error.method) == (0.2, "prompts/list")


# What several servers have belongs to the one that is configured first, whoever comes first.


NOTE = "shared://note"


async def text(client: Any) -> str:
    return str((await client.read_resource(NOTE, cache=False))["contents"][0]["text"])


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", ["red", "blue"])
async def test_the_order_of_configuration_decides_whose_a_resource_is(
    version: str, first: str
) -> None:
    second = "blue" if first == "red" else "red"
    async with Gateway() as gateway, joining(gateway, version) as client:
        for name in (second, first):
            await gateway.connect({name: program(name)})
            await until(lambda: gateway.is_ready)
        gateway.arrange([first, second])
        assert await text(client) == f"note of {first}"
        assert list(gateway.members) == [first, second]
        await gateway.disconnect(first)
        assert await text(client) == f"note of {second}"
        await gateway.connect({first: program(first)})
        await until(lambda: gateway.is_ready)
        assert await text(client) == f"note of {first}"


@pytest.mark.parametrize("slow", ["red", "blue"])
async def test_who_starts_slowly_does_not_lose_what_is_its_own(tmp_path: Path, slow: str) -> None:
    gate = tmp_path / "gate"
    entry = program(slow)
    # Each process waits here, also one that a handshake client gets for itself.
    wait = f'until [ -e {gate} ]; do sleep 0.02; done; exec "$0" "$@"'
    gated = {"command": "sh", "args": ["-c", wait, entry["command"], *entry["args"]]}
    entries = {name: gated if name == slow else program(name) for name in ("red", "blue")}
    async with Gateway(deadline=20.0) as gateway, joining(gateway) as client:
        await gateway.connect(entries)
        await until(lambda: any(member.listed.is_set() for member in gateway.members.values()))
        reading = asyncio.ensure_future(text(client))
        gate.touch()
        async with asyncio.timeout(20):
            assert await reading == "note of red"  # which is the first of the two


async def test_an_order_that_is_the_same_changes_nothing() -> None:
    async with Gateway() as gateway:
        await gateway.connect({"red": program("red"), "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        before = [gateway.catalog.version(kind) for kind in ListKind]
        gateway.arrange(["red", "blue"])
        gateway.arrange(["red", "others", "blue"])
        assert [gateway.catalog.version(kind) for kind in ListKind] == before
