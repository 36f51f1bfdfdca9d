"""Servers that are removed and added again while they have calls and listen streams."""

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
    """Return the entry of a program that never responds to calls and ignores SIGTERM."""
    return {"command": sys.executable, "args": ["-c", STUBBORN]}


@pytest.mark.parametrize("version", ERAS)
@pytest.mark.parametrize("path", ["", "/red"])
async def test_a_pending_call_is_answered_when_its_server_is_removed(
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


async def test_a_server_can_be_added_while_the_old_one_is_still_stopping() -> None:
    """Stopping takes seconds because the program ignores SIGTERM. The new server must survive."""
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


async def test_a_cancelled_disconnect_still_removes_the_server() -> None:
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": stubborn()})
        await until(lambda: gateway.is_ready)
        leaving = asyncio.create_task(gateway.disconnect("red"))
        await until(lambda: "red" not in gateway.members)
        leaving.cancel()
        await asyncio.wait((leaving,))
        await gateway.disconnect("red")  # waits for the removal in progress
        assert "red" not in gateway.upstreams


async def test_lists_received_during_the_removal_of_a_server_are_dropped() -> None:
    listing, go_on, server = asyncio.Event(), asyncio.Event(), make("red")

    class Slow:
        """A server that delays the response to each list of resources."""

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
        assert [gateway.catalog.names(kind, View.everything()) for kind in ListKind] == [[]] * 4


@pytest.mark.parametrize("version", ERAS)
async def test_a_subscription_is_moved_to_a_new_server_with_the_same_name(version: str) -> None:
    """A server whose entry in a file has changed is removed and added again."""
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
                    # One update is sent for the new server, another one for the change below.
                    await ears.hear(UPDATED, uri="red://fixed")
                    await until(lambda: gateway.upstream_subscriptions._asked)
                    ears.drain()
                    second.resource_updated("red://fixed")
                    await ears.hear(UPDATED, uri="red://fixed")
        await until(lambda: len(gateway.upstream_subscriptions) == 0)


@pytest.mark.parametrize("version", ERAS)
async def test_subscriptions_at_a_removed_server_end_when_the_client_disconnects(
    version: str,
) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, version) as client:
            await client.subscribe("red://fixed")
            await gateway.disconnect("red")
        await until(lambda: len(gateway.upstream_subscriptions) == 0)


async def test_listen_streams_at_the_endpoint_of_a_removed_server_end() -> None:
    """The server has stopped before the gateway removes it."""
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


async def test_two_listen_streams_of_one_connection_are_independent() -> None:
    """After one stream has ended, the other still follows the client's view."""
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
            await watching  # ends because the view does not permit the resource


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


async def test_a_list_request_that_hangs_does_not_block_other_lists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


# If several servers list an item, the first configured server owns it.


NOTE = "shared://note"


async def text(client: Any) -> str:
    return str((await client.read_resource(NOTE, cache=False))["contents"][0]["text"])


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", ["red", "blue"])
async def test_the_first_configured_server_owns_a_resource(version: str, first: str) -> None:
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
async def test_the_first_configured_server_owns_a_resource_even_if_it_starts_slowly(
    tmp_path: Path, slow: str
) -> None:
    gate = tmp_path / "gate"
    entry = program(slow)
    # Every process waits for this file, including one for a handshake client.
    wait = f'until [ -e {gate} ]; do sleep 0.02; done; exec "$0" "$@"'
    gated = {"command": "sh", "args": ["-c", wait, entry["command"], *entry["args"]]}
    entries = {name: gated if name == slow else program(name) for name in ("red", "blue")}
    async with Gateway(deadline=20.0) as gateway, joining(gateway) as client:
        await gateway.connect(entries)
        await until(lambda: any(member.listed.is_set() for member in gateway.members.values()))
        reading = asyncio.ensure_future(text(client))
        gate.touch()
        async with asyncio.timeout(20):
            assert await reading == "note of red"  # the first server in the configuration


async def test_setting_the_same_order_of_servers_has_no_effect() -> None:
    async with Gateway() as gateway:
        await gateway.connect({"red": program("red"), "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        before = [gateway.catalog.version(kind) for kind in ListKind]
        gateway.arrange(["red", "blue"])
        gateway.arrange(["red", "others", "blue"])
        assert [gateway.catalog.version(kind) for kind in ListKind] == before
