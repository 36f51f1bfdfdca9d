"""Isolation of gateway clients: each gets only the items in its view and its own messages."""

import asyncio
import contextlib
import gc
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.client.server_entry import read_entry
from fairlead.config.server_spec import ServerSpec
from fairlead.errors import FairleadError
from fairlead.gateway import Gateway, View
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.manager import MCPManager
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    STATELESS,
    Ears,
    config,
    joining,
    make,
    names,
    program,
    until,
)
from tests.support.gateway_servers import serving as serving_http

ROUNDS = 150  # number of sessions that the leak test opens
TOKENS = {"a": "alice", "b": "bob"}
BOB = View(
    servers=("red",),
    deny=("red_secret", "red://item/9*"),
    hide=("red_grow",),
    rename={"red_who": "whoami"},
)


@contextlib.asynccontextmanager
async def two_clients(
    version: str, **options: Any
) -> AsyncIterator[tuple[Gateway, str, MCPClient, MCPClient]]:
    """Connect Alice, whose view is unrestricted, and Bob, whose view is restricted."""
    async with (
        serving_http(make("red")) as red,
        serving_http(make("blue")) as blue,
        Gateway(views={"bob": BOB}, **options) as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        await until(lambda: gateway.is_ready)
        async with (
            serving_http(gateway, verify_token=TOKENS.get) as url,
            contextlib.AsyncExitStack() as stack,
        ):
            clients = [
                await stack.enter_async_context(
                    MCPClient.connect_http(
                        url, config(version), headers={"Authorization": f"Bearer {token}"}
                    )
                )
                for token in TOKENS
            ]
            yield gateway, url, clients[0], clients[1]


async def refused(work: Any) -> int:
    with pytest.raises(RpcError) as caught:
        await work
    return caught.value.code


@pytest.mark.parametrize("version", BOTH)
async def test_a_view_applies_to_list_call_read_and_completion_requests(version: str) -> None:
    async with asyncio.timeout(LIMIT), two_clients(version) as (_, _, alice, bob):
        assert {"red_who", "blue_secret", "red_secret"} <= set(await names(alice))
        listed = await names(bob)
        assert "whoami" in listed
        assert not {"red_secret", "red_grow", "red_who"} & set(listed)
        assert not [name for name in listed if name.startswith("blue")]
        assert (await bob.call("whoami")).text.startswith("red")
        # the view hides this tool from lists, but does not deny calls
        assert (await bob.call("red_grow", {"tool": "x"})).text == "grown"
        for name in ("red_secret", "secret", "red_who", "blue_secret", "blue_who"):
            assert await refused(bob.call_tool(name, {})) == -32602

        assert [one["uri"] for one in await bob.list_resources()] == [
            "red://fixed",
            "shared://note",
        ]
        assert (await bob.read_resource("red://item/1"))["contents"][0]["text"] == "1 of red"
        for uri in (
            "blue://fixed",
            "red://item/99",
            "RED://item/9",
            "red://item/%39",
            "red://item/x/../9",
        ):
            await refused(bob.read_resource(uri))
        assert (await alice.read_resource("red://item/99"))["contents"][0]["text"] == "99 of red"

        assert [one["name"] for one in await bob.list_prompts()] == ["red_hello"]
        await refused(bob.get_prompt("blue_hello", {"city": "x"}))
        await refused(bob.complete("prompt", "blue_hello", "city", ""))
        await refused(bob.complete("resource", "blue://item/{key}", "key", ""))
        assert (await bob.complete("prompt", "red_hello", "city", "bonn")).values == ["red-Bonn"]
        assert bob.instructions == "red: how to use red"


@pytest.mark.parametrize("version", BOTH)
async def test_a_view_applies_at_the_endpoint_of_a_server(version: str) -> None:
    async with asyncio.timeout(LIMIT), two_clients(version) as (_, url, _, _):
        async with contextlib.AsyncExitStack() as stack:

            async def enter(token: str, server: str) -> MCPClient:
                return await stack.enter_async_context(
                    MCPClient.connect_http(
                        f"{url}/{server}",
                        config(version),
                        headers={"Authorization": f"Bearer {token}"},
                    )
                )

            alice, bob = await enter("a", "red"), await enter("b", "red")
            assert {"who", "secret", "grow"} <= set(await names(alice))
            assert (await alice.call("secret")).text == "the secret of red"
            listed = await names(bob)
            assert "who" in listed
            assert not {"secret", "grow", "red_secret"} & set(listed)
            assert (await bob.call("who")).text.startswith("red")
            for name in ("secret", "red_secret", "nothing"):
                assert await refused(bob.call_tool(name, {})) == -32602
            assert (await bob.read_resource("red://item/1"))["contents"][0]["text"] == "1 of red"
            await refused(bob.read_resource("red://item/9"))
            assert [one["uri"] for one in await bob.list_resources()] == [
                "red://fixed",
                "shared://note",
            ]
            assert (await bob.complete("prompt", "hello", "city", "bo")).values == ["red-Bonn"]
            assert await refused(bob.request("tasks/list")) == -32601
            with pytest.raises(FairleadError, match="404"):
                blue = await enter("b", "blue")
                await names(blue)


async def test_updates_of_items_outside_of_a_view_are_not_sent() -> None:
    quiet = Ears()
    async with (
        asyncio.timeout(LIMIT),
        serving_http(make("red")) as red,
        Gateway(view=View(deny=("red://fixed",))) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, STATELESS, on_notification=quiet) as client:
            with contextlib.suppress(RpcError):
                await client.subscribe("red://fixed")
            await client.subscribe("shared://note")
            await client.call("red_touch", {"uri": "red://fixed"})
            await client.call("red_touch", {"uri": "shared://note"})
            await quiet.hear("notifications/resources/updated", uri="shared://note")
        async with joining(gateway, HANDSHAKE) as client:
            assert await refused(client.subscribe("red://fixed")) == -32002


async def test_interceptors_get_merged_names_at_every_endpoint() -> None:
    class NoSecrets:
        def __init__(self) -> None:
            self.seen: list[tuple[str, str | None]] = []

        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            self.seen.append((exchange.method, exchange.target))
            if exchange.target == "red_secret":
                raise RpcError(-32602, "no secrets")
            return await proceed(exchange)

    rule = NoSecrets()
    async with (
        asyncio.timeout(LIMIT),
        serving_http(make("red")) as red,
        Gateway(interceptors=[rule]) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with (
            serving_http(gateway) as url,
            MCPClient.connect_http(url, config()) as merged,
            MCPClient.connect_http(f"{url}/red", config()) as alone,
        ):
            await refused(merged.call_tool("red_secret", {}))
            await refused(alone.call_tool("secret", {}))
            assert (await alone.call("who")).text.startswith("red")
            assert ("tools/call", "red_who") in rule.seen


async def test_tools_excluded_in_the_configuration_are_not_listed_and_cannot_be_called() -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving_http(make("red")) as red,
        Gateway() as gateway,
    ):
        entry = read_entry({"type": "http", "url": red})
        await gateway.connect({"red": ServerSpec(entry=entry, without_tools=("secret",))})
        await until(lambda: gateway.is_ready)
        async with (
            serving_http(gateway) as url,
            MCPClient.connect_http(url, config()) as merged,
            MCPClient.connect_http(f"{url}/red", config()) as alone,
        ):
            assert "red_secret" not in await names(merged)
            await refused(merged.call_tool("red_secret", {}))
            assert "secret" not in await names(alone)
            await refused(alone.call_tool("secret", {}))


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("upstream", ["2025-11-25", "auto"])
async def test_log_messages_are_sent_only_to_the_client_whose_call_caused_them(
    version: str, upstream: str
) -> None:
    received: list[list[str]] = [[], []]
    async with (
        asyncio.timeout(LIMIT),
        MCPManager(config=config(upstream), on_roots=None) as manager,
        Gateway(manager) as gateway,
    ):
        await gateway.connect({"red": program("red")})
        await until(lambda: gateway.is_ready)
        async with contextlib.AsyncExitStack() as stack:
            clients = []
            for mine in received:
                joined = joining(
                    gateway,
                    version,
                    on_log=lambda level, data, logger, mine=mine: mine.append(data),
                )
                clients.append(await stack.enter_async_context(joined))
                await clients[-1].set_log_level("info")
            for n in range(5):
                await clients[0].call("red_speak", {"text": f"one {n}"})
                await clients[1].call("red_speak", {"text": f"two {n}"})
            await until(lambda: len(received[0]) == len(received[1]) == 5)
            # During concurrent calls, a message may be dropped but must not reach the wrong client.
            await asyncio.gather(
                *(clients[n % 2].call("red_speak", {"text": f"{n % 2} at once"}) for n in range(10))
            )
        assert all(text.startswith(("one", "0 at")) for text in received[0])
        assert all(text.startswith(("two", "1 at")) for text in received[1])


@pytest.mark.parametrize("upstream", ["stdio", "http"])
async def test_a_roots_request_is_sent_to_the_client_whose_call_is_in_progress(
    upstream: str,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(LIMIT))
        target: dict[str, Any] = program("red")
        if upstream == "http":
            target = {"url": await stack.enter_async_context(serving_http(make("red")))}
        gateway = await stack.enter_async_context(Gateway())
        await gateway.connect({"red": target})
        await until(lambda: gateway.is_ready)
        for version in BOTH:
            clients = [
                await stack.enter_async_context(
                    joining(gateway, version, on_roots=lambda place=place: [place])
                )
                for place in ("/one", "/two", "/three")
            ]
            answers = await asyncio.gather(*(client.call("red_folders") for client in clients))
            assert [answer.text for answer in answers] == [
                "file:///one",
                "file:///two",
                "file:///three",
            ]


HEARS = """
import json, sys
received = []
for line in sys.stdin:
    asked = json.loads(line)
    method = asked["method"]
    if "id" not in asked:
        received.append(method)
        continue
    reply = {"jsonrpc": "2.0", "id": asked["id"]}
    if method == "initialize":
        reply["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "receives", "version": "1"}}
    elif method == "tools/list":
        reply["result"] = {"tools": [{"name": "received", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        reply["result"] = {"content": [{"type": "text", "text": " ".join(received)}]}
    else:
        reply["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(reply), flush=True)
"""


async def test_principals_do_not_share_an_upstream_connection_that_has_a_session() -> None:
    entry: dict[str, Any] = {"command": sys.executable, "args": ["-c", HEARS]}
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"one": entry})
        await until(lambda: gateway.is_ready)
        async with (
            serving_http(gateway, verify_token=TOKENS.get) as url,
            contextlib.AsyncExitStack() as stack,
        ):
            received = {}
            for token in ("a", "b", "a"):
                headers = {"Authorization": f"Bearer {token}"}
                connecting = MCPClient.connect_http(url, config(), headers=headers)
                client = await stack.enter_async_context(connecting)
                before = (await client.call("one_received")).text
                await client.transport.notify(f"notifications/{token}")
                received[token] = before
                while received[token] == before:
                    received[token] = (await client.call("one_received")).text
            assert "notifications/b" not in received["a"]
            assert "notifications/a" not in received["b"]
            assert received["a"].split().count("notifications/a") >= 2


async def test_servers_are_notified_when_the_roots_of_their_client_change() -> None:
    entry: dict[str, Any] = {"command": sys.executable, "args": ["-c", HEARS]}
    changed = "notifications/roots/list_changed"
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"one": entry, "two": entry})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, on_roots=lambda: ["/x"]) as client, joining(gateway) as other:
            assert changed not in (await client.call("one_received")).text
            await client.call("two_received")
            await client.roots_changed()
            for name in ("one", "two"):
                text = (await client.call(f"{name}_received")).text
                assert text.split().count(changed) == 1
                assert text.split().count("notifications/initialized") == 1
                assert changed not in (await other.call(f"{name}_received")).text


@pytest.mark.parametrize("transport", ["ws", "sse"])
async def test_a_view_applies_over_every_transport(transport: str) -> None:
    headers = {"Authorization": "Bearer b"}
    async with asyncio.timeout(LIMIT), two_clients(HANDSHAKE) as (_, url, _, _):
        if transport == "ws":
            target = url.replace("http://", "ws://").replace("/mcp", "/ws")
            connecting = MCPClient.connect_websocket(target, config(), headers=headers)
        else:
            target = url.replace("/mcp", "/sse")
            connecting = MCPClient.connect_http(target, config(), mode="sse", headers=headers)
        async with connecting as bob:
            assert "whoami" in await names(bob)
            assert "red_secret" not in await names(bob)
            assert await refused(bob.call_tool("red_secret", {})) == -32602


async def test_clients_with_the_same_request_ids_get_their_own_responses() -> None:
    head = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": HANDSHAKE,
            "capabilities": {},
            "clientInfo": {"name": "same", "version": "1"},
        },
    }

    async def post(session: aiohttp.ClientSession, url: str, body: Any, **extra: str) -> Any:
        async with session.post(url, json=body, headers={**head, **extra}) as answer:
            text = await answer.text()
            given = answer.headers.get("Mcp-Session-Id", "")
        for line in text.splitlines():
            if line.startswith("data: {"):
                text = line[6:]
        return given, (json.loads(text) if text else None), answer.status

    async with (
        asyncio.timeout(LIMIT),
        serving_http(make("red")) as red,
        Gateway() as gateway,
        aiohttp.ClientSession() as web,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with serving_http(gateway) as url:
            ids = [(await post(web, url, hello))[0] for _ in range(2)]
            assert len(set(ids)) == 2
            assert gateway.clients == 2
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            for each in ids:
                await post(web, url, ready, **{"Mcp-Session-Id": each})

            def call(text: str) -> dict[str, Any]:
                arguments = {"name": "red_speak", "arguments": {"text": text}}
                return {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": arguments}

            answers = await asyncio.gather(
                *(post(web, url, call(f"{n}"), **{"Mcp-Session-Id": ids[n % 2]}) for n in (0, 1))
            )
            for n, (_, answer, _) in enumerate(answers):
                assert answer["id"] == 2
                assert answer["result"]["content"][0]["text"] == str(n)
            async with web.delete(url, headers={"Mcp-Session-Id": ids[0]}) as gone:
                assert gone.status in (200, 204)
            await until(lambda: gateway.clients == 1)
            _, _, status = await post(web, url, call("x"), **{"Mcp-Session-Id": ids[0]})
            assert status == 404
            _, answer, _ = await post(web, url, call("y"), **{"Mcp-Session-Id": ids[1]})
            assert answer["result"]["content"][0]["text"] == "y"


@pytest.mark.parametrize("front", ["memory", "http"])
async def test_a_disconnect_cancels_the_call_of_a_client(front: str) -> None:
    server, called, cancelled = MCPServer("red"), asyncio.Event(), asyncio.Event()

    @server.tool()
    async def wait() -> str:
        called.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    async with (
        asyncio.timeout(LIMIT),
        serving_http(server) as red,
        Gateway() as gateway,
        serving_http(gateway) as url,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        for version in BOTH:
            called.clear(), cancelled.clear()
            joined = (
                joining(gateway, version)
                if front == "memory"
                else MCPClient.connect_http(url, config(version))
            )
            async with joined as client:
                call = asyncio.create_task(client.call_tool("red_wait", {}))
                await called.wait()
            await cancelled.wait()
            await asyncio.wait((call,))
            assert call.exception() is not None
        assert gateway.clients == 0


@pytest.mark.slow
@pytest.mark.parametrize("front", ["memory", "http"])
async def test_ended_sessions_of_a_gateway_leave_no_objects_in_memory(front: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        red = await stack.enter_async_context(serving_http(make("red")))
        gateway = await stack.enter_async_context(Gateway())
        await gateway.connect({"red": [{"url": red}, {"url": red}]})
        await until(lambda: gateway.is_ready)
        url = await stack.enter_async_context(serving_http(gateway))

        async def come_and_go() -> None:
            joined = (
                joining(gateway) if front == "memory" else MCPClient.connect_http(url, config())
            )
            async with joined as client:
                await client.subscribe("red://fixed")
                await client.call("red_who")
                await client.list_tools()

        async def objects_after(rounds: int) -> int:
            for _ in range(rounds):
                await come_and_go()
            await until(lambda: gateway.clients == 0)
            gc.collect()
            return len(gc.get_objects())

        await objects_after(20)
        # Count again before failing, because other code creates objects as well.
        for _ in range(3):
            before = await objects_after(20)
            after = await objects_after(ROUNDS)
            if after - before < ROUNDS:
                break
        assert after - before < ROUNDS, "each session leaves objects behind"
        member = gateway.members["red"]
        assert not member.replicas._sticky
        assert not gateway._clients.merged
        assert not len(gateway.upstream_subscriptions)
        pools = [relay.pool for relay in member.replicas]
        assert not any(one.sessions for pool in pools for one in pool.connections)


async def test_closing_a_gateway_disconnects_its_sessions_and_stops_its_servers() -> None:
    gateway = Gateway()
    await gateway.connect({"red": program("red"), "blue": program("blue")})
    async with asyncio.timeout(LIMIT):
        await until(lambda: gateway.is_ready)
        clients = [await joining(gateway, version, on_elicit=lambda q: None) for version in BOTH]
        pids = {
            int((await client.call(f"{name}_who")).text.split()[1])
            for client in clients
            for name in ("red", "blue")
        }
        await gateway.close()
        for client in clients:
            assert not client.connected or client.protocol_version == "2026-07-28"
            await client.close()
        await until(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
