"""Tests of change notifications in both eras."""

import asyncio
import json
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification
from tests.support.raw_server_client import META, wire_to

KEY = "io.modelcontextprotocol/subscriptionId"


def server_with_everything() -> MCPServer:
    server = MCPServer("s")
    server.register_tool("t", {"type": "object"}, lambda: "x")
    server.register_resource("r://1", "one", content_provider="1")
    server.register_resource("r://2", "two", content_provider="2")
    server.register_prompt("p", template="x")
    return server


def told(kind: str, tag: Any = None, **params: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": f"notifications/{kind}"}
    if tag is not None:
        params["_meta"] = {KEY: tag}
    return message | ({"params": params} if params else {})


@pytest.mark.covers("SRV-12", "PRO-16")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_sessions_are_notified_of_changed_lists_once_per_loop_iteration(version: str) -> None:
    server = server_with_everything()
    async with wire_to(server) as wire:
        capabilities = (await wire.greet(version))["capabilities"]
        assert capabilities["tools"] == {"listChanged": True}
        assert capabilities["resources"] == {"subscribe": True, "listChanged": True}
        assert capabilities["prompts"] == {"listChanged": True}
        for number in range(100):
            server.register_tool(f"t{number}", {"type": "object"}, lambda: "x")
        server.remove_tool("t")
        server.remove_resource("r://2")
        server.remove_prompt("p")
        assert [await wire.next() for _ in range(3)] == [
            told("tools/list_changed"),
            told("resources/list_changed"),
            told("prompts/list_changed"),
        ]
        await wire.ask("ping")  # the next message is this response, so no other message was sent
        assert (server.tool_count, server.resource_count, server.prompt_count) == (100, 1, 0)


@pytest.mark.covers("SRV-12")
async def test_a_session_is_notified_only_of_changes_to_declared_capabilities() -> None:
    server = MCPServer("s")
    async with wire_to(server) as wire:
        assert "prompts" not in (await wire.greet())["capabilities"]
        server.register_prompt("p", template="x")
        server.register_tool("t", {"type": "object"}, lambda: "x")
        assert await wire.next() == told("tools/list_changed")
        await wire.ask("ping")


@pytest.mark.covers("SRV-12")
async def test_a_tool_in_a_thread_can_register_another_tool() -> None:
    server = MCPServer("s")

    @server.tool()
    def grow() -> str:
        server.register_tool("new", {"type": "object"}, lambda: "x")
        return "grown"

    async with wire_to(server) as wire:
        await wire.greet()
        wire.send("tools/call", {"name": "grow"}, id=7)
        messages = [await wire.next(), await wire.next()]
        assert told("tools/list_changed") in messages


async def test_a_session_is_not_notified_before_the_handshake_is_complete() -> None:
    server = server_with_everything()
    async with wire_to(server) as wire:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        await wire.ask("initialize", hello)
        server.remove_tool("t")
        await wire.ask("ping", id=2)
        await wire.ask("ping", id=3)


@pytest.mark.covers("PRO-35", "SRV-15")
async def test_a_session_is_notified_of_subscribed_resources() -> None:
    server = server_with_everything()
    async with wire_to(server) as wire:
        await wire.greet()
        server.resource_updated("r://1")
        assert (await wire.ask("resources/subscribe", {"uri": "r://1"}))["result"] == {}
        for _ in range(10):
            server.resource_updated("r://1")
            server.resource_updated("r://2")
        assert await wire.next() == told("resources/updated", uri="r://1")
        assert (await wire.ask("resources/unsubscribe", {"uri": "r://1"}))["result"] == {}
        server.resource_updated("r://1")
        await wire.ask("ping")
        unknown = await wire.ask("resources/subscribe", {"uri": "r://none"})
        assert unknown["error"]["code"] == -32002
        assert (await wire.ask("resources/subscribe", {}))["error"]["code"] == -32602


async def test_the_number_of_subscriptions_per_session_is_limited() -> None:
    server = MCPServer("s")
    server.resource("n://{number}")(lambda number: number)
    async with wire_to(server) as wire:
        await wire.greet()
        for number in range(1000):
            wire.send("resources/subscribe", {"uri": f"n://{number}"}, id=number)
            assert (await wire.next())["result"] == {}
        again = await wire.ask("resources/subscribe", {"uri": "n://1"})
        assert again["result"] == {}
        assert (
            "1000" in (await wire.ask("resources/subscribe", {"uri": "n://x"}))["error"]["message"]
        )


@pytest.mark.covers("PRO-23", "SRV-15")
@pytest.mark.parametrize("tag", [5, "five"])
async def test_the_acknowledgement_precedes_the_notifications_of_a_listener(tag: Any) -> None:
    server = server_with_everything()
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["r://1"]}
    async with wire_to(server) as wire:
        wire.send("subscriptions/listen", {"notifications": wanted, "_meta": META}, id=tag)
        assert await wire.next() == told("subscriptions/acknowledged", tag, notifications=wanted)
        server.remove_prompt("p")
        server.resource_updated("r://2")
        server.resource_updated("r://1")
        server.remove_tool("t")
        assert await wire.next() == told("resources/updated", tag, uri="r://1")
        assert await wire.next() == told("tools/list_changed", tag)
        wire.send("notifications/cancelled", {"requestId": tag})
        await wire.ask("tools/list", {"_meta": META}, id="after")
        server.resource_updated("r://1")
        # The next message is this response, so no notification was sent.
        await wire.ask("tools/list", {"_meta": META}, id="later")


@pytest.mark.covers("PRO-23")
async def test_unsupported_filters_are_left_out_of_the_acknowledgement() -> None:
    server = MCPServer("s")
    wanted = {"promptsListChanged": True, "toolsListChanged": False, "resourceSubscriptions": ["x"]}
    async with wire_to(server) as wire:
        wire.send("subscriptions/listen", {"notifications": wanted, "_meta": META}, id=1)
        assert await wire.next() == told("subscriptions/acknowledged", 1, notifications={})
        without = await wire.ask("subscriptions/listen", {"_meta": META}, id=2)
        assert without["error"]["code"] == -32602
        tasks = {"notifications": {"taskIds": ["a"]}, "_meta": META}
        refused = await wire.ask("subscriptions/listen", tasks, id=3)
        assert refused["error"]["code"] == -32021


@pytest.mark.covers("PRO-23")
async def test_a_server_that_stops_sends_final_results_to_its_listeners() -> None:
    server = server_with_everything()
    async with wire_to(server) as wire:
        wanted = {"notifications": {"toolsListChanged": True}, "_meta": META}
        wire.send("subscriptions/listen", wanted, id="l")
        await wire.next()
        ending = asyncio.create_task(server.close())
        assert await wire.next() == {
            "jsonrpc": "2.0",
            "id": "l",
            "result": {"resultType": "complete", "_meta": {KEY: "l"}},
        }
        await ending


async def test_the_number_of_listen_requests_per_connection_is_limited() -> None:
    server = server_with_everything()
    async with wire_to(server) as wire:
        wanted = {"notifications": {"toolsListChanged": True}, "_meta": META}
        for number in range(32):
            wire.send("subscriptions/listen", wanted, id=number)
            await wire.next()
        assert "error" in await wire.ask("subscriptions/listen", wanted, id=99)
        server.remove_tool("t")
        heard = [(await wire.next())["params"]["_meta"][KEY] for _ in range(32)]
        assert sorted(heard) == list(range(32))


@pytest.mark.covers("PRO-23")
async def test_each_era_rejects_the_subscription_method_of_the_other_era() -> None:
    server = server_with_everything()
    async with wire_to(server) as wire:
        modern = await wire.ask("resources/subscribe", {"uri": "r://1", "_meta": META})
        assert modern["error"]["code"] == -32601
        await wire.greet()
        old = await wire.ask("subscriptions/listen", {"notifications": {}})
        assert old["error"]["code"] == -32601
    alone = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}
    answer = await server.handle_request({**alone, "params": {"notifications": {}, "_meta": META}})
    assert answer is not None
    assert answer["error"]["code"] == -32600


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_equal_changes_are_merged_for_a_slow_reader(era: str) -> None:
    server = MCPServer("s")
    big = "r://" + "x" * 60_000
    server.register_resource(big, "big", content_provider="1")
    async with wire_to(server, reading=False) as wire:
        if era == "stateless":
            wanted = {"notifications": {"resourceSubscriptions": [big]}, "_meta": META}
            wire.send("subscriptions/listen", wanted, id=0)
            before = 1
        else:
            hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
            wire.send("initialize", hello, id=0)
            wire.send("notifications/initialized")
            wire.send("resources/subscribe", {"uri": big}, id=1)
            before = 2
        for _ in range(500):  # the client does not read during these loop iterations
            server.resource_updated(big)
            await asyncio.sleep(0)
        wire.read()
        for _ in range(before):
            await wire.next()
        heard = 0
        wire.send("tools/list", {"_meta": META}, id="end")
        while "id" not in await wire.next():
            heard += 1
        assert 0 < heard < 100  # the notifications that fit below the high-water mark, and one more


async def test_cancelling_serve_sends_final_results_to_its_listeners() -> None:
    server = server_with_everything()
    left, right = memory_pair()
    serving = asyncio.create_task(server.serve(right))
    frames: asyncio.Queue[Any] = asyncio.Queue()
    reading = asyncio.create_task(left.run(frames.put_nowait))
    wanted = {"notifications": {"toolsListChanged": True}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 3, "method": "subscriptions/listen", "params": wanted}
    left.write(json.dumps(message).encode() + b"\n")
    async with asyncio.timeout(5):
        assert isinstance(await frames.get(), Notification)
        serving.cancel()
        answer = await frames.get()
        assert (answer.id, json.loads(bytes(answer.result))["_meta"]) == (3, {KEY: 3})
        await asyncio.wait((serving, reading))
    await left.close()
