"""Tests of mounting one server in another."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from fairlead import Context, MCPServer, RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.server.features.tool_entry import tool_from_schema
from fairlead.server.mount import mount
from tests.support.raw_server_client import META, wire_to
from tests.support.single_exchange import exchange

KEY = "io.modelcontextprotocol/serverInfo"


def weather() -> MCPServer:
    server = MCPServer("weather")

    @server.tool(inline=True)
    def forecast(city: str) -> str:
        return f"rain in {city}"

    @server.prompt()
    def ask(tone: Literal["kind", "rude"], city: str) -> str:
        return f"{tone} {city}"

    @server.completion("ask", "city")
    def cities(typed: str) -> list[str]:
        return ["Rome"]

    server.register_resource("weather://today", "today", content_provider="rain")
    server.resource("weather://{day}/rain")(lambda day: day)
    return server


async def test_entries_of_a_mounted_server_are_registered_with_a_prefix() -> None:
    outer = MCPServer("outer")
    outer.register_tool("own", {"type": "object"}, lambda: "own")
    outer.mount(weather(), prefix="w")
    async with wire_to(outer) as wire:
        await wire.greet()
        tools = (await wire.ask("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["own", "w_forecast"]
        call = {"name": "w_forecast", "arguments": {"city": "Rome"}}
        result = (await wire.ask("tools/call", call))["result"]
        assert result["content"][0]["text"] == "rain in Rome"
        given = {"name": "w_ask", "arguments": {"tone": "kind", "city": "Rome"}}
        got = (await wire.ask("prompts/get", given))["result"]
        assert got["messages"][0]["content"]["text"] == "kind Rome"
        for uri, text in (("weather://today", "rain"), ("weather://monday/rain", "monday")):
            read = (await wire.ask("resources/read", {"uri": uri}))["result"]
            assert read["contents"][0]["text"] == text
        for argument, values in (("city", ["Rome"]), ("tone", ["kind", "rude"])):
            params = {
                "ref": {"type": "ref/prompt", "name": "w_ask"},
                "argument": {"name": argument, "value": ""},
            }
            found = (await wire.ask("completion/complete", params))["result"]["completion"]
            assert found["values"] == values


@pytest.mark.covers("SRV-12")
async def test_changes_of_a_mounted_server_are_announced_by_the_outer_server() -> None:
    outer, middle, inner = MCPServer("outer"), MCPServer("middle"), weather()
    middle.mount(inner, "w")
    outer.mount(middle, "m")
    async with wire_to(outer) as wire:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["weather://today"]}
        wire.send("subscriptions/listen", {"notifications": wanted, "_meta": META}, id=1)
        await wire.next()
        inner.resource_updated("weather://today")
        assert (await wire.next())["params"]["uri"] == "weather://today"
        inner.register_tool("more", {"type": "object"}, lambda: "x")
        assert (await wire.next())["method"] == "notifications/tools/list_changed"
        inner.remove_tool("forecast")
        assert (await wire.next())["method"] == "notifications/tools/list_changed"
        tools = (await wire.ask("tools/list", {"_meta": META}, id=2))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["m_w_more"]


def test_duplicate_names_and_recursive_mounts_are_rejected() -> None:
    outer = MCPServer("outer")
    with pytest.raises(ValueError, match="itself"):
        outer.mount(outer)
    outer.mount(weather())
    with pytest.raises(ValueError, match="already"):
        outer.mount(weather())


def failed(answer: dict[str, Any]) -> str:
    assert answer["result"]["isError"] is True
    return str(json.loads(answer["result"]["content"][0]["text"])["code"])


@pytest.mark.parametrize("meta", [{}, META])
async def test_interceptors_of_a_mounted_server_handle_requests_for_its_entries(
    meta: dict[str, Any],
) -> None:
    seen: list[str] = []

    def watch(name: str) -> Any:
        async def watcher(exchange: Exchange, proceed: Proceed) -> Answer:
            seen.append(f"{name}: {exchange.method} {exchange.target}")
            if exchange.target == "secret":
                raise RpcError(-32602, "not for you")
            return await proceed(exchange)

        return watcher

    outer = MCPServer("outer", interceptors=[watch("outer")])
    middle = MCPServer("middle")
    inner = MCPServer("inner", interceptors=[watch("inner")])
    inner.tool("secret")(lambda: "x")
    inner.tool("open", inline=True)(lambda: "y")
    inner.prompt("words")(lambda: "z")
    inner.register_resource("r://1", "r", content_provider="r")
    middle.mount(inner, "i")
    outer.mount(middle, "m")
    own = {"_meta": meta} if meta else {}
    async with wire_to(outer) as wire:
        if not meta:
            await wire.greet()
        seen.clear()
        opened = (await wire.ask("tools/call", {"name": "m_i_open", **own}))["result"]
        assert opened["content"][0]["text"] == "y"
        if meta:  # stateless results contain the info of the outer server
            signed = opened["_meta"]["io.modelcontextprotocol/serverInfo"]
            assert (signed["name"], opened["resultType"]) == ("outer", "complete")
        refusal = (await wire.ask("tools/call", {"name": "m_i_secret", **own}))["error"]
        assert refusal == {"code": -32602, "message": "not for you"}
        got = (await wire.ask("prompts/get", {"name": "m_i_words", **own}))["result"]
        assert got["messages"][0]["content"]["text"] == "z"
        read = (await wire.ask("resources/read", {"uri": "r://1", **own}))["result"]
        assert read["contents"][0]["text"] == "r"
    assert seen == [
        "outer: tools/call m_i_open",
        "inner: tools/call open",
        "outer: tools/call m_i_secret",
        "inner: tools/call secret",
        "outer: prompts/get m_i_words",
        "inner: prompts/get words",
        "outer: resources/read r://1",
        "inner: resources/read r://1",
    ]


@pytest.mark.covers("SRV-23", "SRV-24")
async def test_limits_of_a_mounted_server_apply_to_its_tools() -> None:
    inner = MCPServer(
        "inner", rate_limit_rate=0, per_tool_timeouts={"slow": 0.02}, per_tool_rate={"rare": 0.001}
    )
    inner.tool("rare")(lambda: "once")

    @inner.tool()
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    outer = MCPServer("outer", rate_limit_rate=0.001, rate_limit_burst=3)
    outer.mount(inner, "i")
    async with wire_to(outer) as wire:
        await wire.greet()
        assert failed(await wire.ask("tools/call", {"name": "i_slow"})) == "TIMEOUT"
        assert "isError" not in (await wire.ask("tools/call", {"name": "i_rare"}))["result"]
        assert failed(await wire.ask("tools/call", {"name": "i_rare"})) == "RATE_LIMITED"
        assert failed(await wire.ask("tools/call", {"name": "i_slow"})) == "RATE_LIMITED"
    assert outer.metrics()["rate_limit"]["limited"] == 1
    (mounted,) = outer.metrics()["mounted"]
    assert mounted["rate_limit"]["limited_by_tool"] == {"rare": 1}
    result = await outer.registry.execute("i_slow")
    assert json.loads(result["content"][0]["text"])["code"] == "TIMEOUT"


async def test_mounted_tools_get_the_state_of_their_server_and_stay_inline() -> None:
    @asynccontextmanager
    async def lifespan(server: MCPServer) -> AsyncIterator[str]:
        yield f"state of {server.name}"

    inner = MCPServer("inner", lifespan=lifespan)

    @inner.tool(inline=True)
    def where(ctx: Context) -> str:
        return f"{ctx.state}, {threading.current_thread() is threading.main_thread()}"

    outer = MCPServer("outer", lifespan=lifespan)
    outer.mount(inner, "i")
    async with outer.running(), wire_to(outer) as wire:
        result = (await wire.ask("tools/call", {"name": "i_where", "_meta": META}))["result"]
        assert result["content"][0]["text"] == "state of inner, True"


async def test_a_mounted_tool_can_request_input_in_rounds() -> None:
    inner = MCPServer("inner")

    @inner.tool()
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", str)
        return f"hello {answer.data}"

    outer = MCPServer("outer")
    outer.mount(inner, "i")
    asks = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    call: dict[str, Any] = {"name": "i_greet", "_meta": META | asks}
    async with wire_to(outer) as wire:
        first = (await wire.ask("tools/call", call))["result"]
        assert first["resultType"] == "input_required"
        assert first["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "outer"
        (key,) = first["inputRequests"]
        given = {key: {"action": "accept", "content": {"value": "Ada"}}}
        again = call | {"inputResponses": given, "requestState": first["requestState"]}
        done = (await wire.ask("tools/call", again, id=2))["result"]
        assert done["content"][0]["text"] == "hello Ada"


async def test_an_inline_tool_of_a_mounted_server_passes_the_interceptors_of_its_server() -> None:
    seen: list[str] = []

    async def watch(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(str(exchange.target))
        return await proceed(exchange)

    inner = MCPServer("inner", interceptors=[watch])
    inner.tool("t", inline=True)(lambda: "x")
    outer = MCPServer("outer")
    outer.tool("own", inline=True)(lambda: "y")
    outer.mount(inner, "i")
    async with wire_to(outer) as wire:
        for name, text in (("own", "y"), ("i_t", "x")):
            result = (await wire.ask("tools/call", {"name": name, "_meta": META}))["result"]
            assert result["content"][0]["text"] == text
    assert seen == ["t"]


async def test_a_replaced_tool_is_also_replaced_in_the_outer_server() -> None:
    inner, outer = MCPServer("inner"), MCPServer("outer")
    inner.register_tool("t", {}, lambda: "old")
    inner.register_prompt("p", template="old")
    outer.mount(inner)
    entry = tool_from_schema("t", {"title": "new"}, lambda: "new", "New")
    inner.registry.register(entry, replace=True)
    tool = outer.registry.get("t")
    assert tool is not None
    assert (tool.definition.title, outer.tool_count, outer.prompts.names()) == ("New", 1, ["p"])
    result = await outer.registry.execute("t")
    assert result["content"][0]["text"] == "new"
    inner.remove_prompt("p")
    assert outer.prompts.names() == []


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, {"_meta": {KEY: {"name": "o"}}}),
        (b'{"a":1}', {"a": 1, "_meta": {KEY: {"name": "o"}}}),
        (b'{"_meta":{"b":2,"%b":5}}' % KEY.encode(), {"_meta": {"b": 2, KEY: {"name": "o"}}}),
    ],
    ids=["nothing", "no meta", "meta"],
)
@pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "handshake"])
async def test_only_stateless_results_name_the_outer_server(
    result: bytes | None, expected: Any, stateless: bool
) -> None:
    outer, inner = MCPServer("outer"), MCPServer("inner")
    inner.register_tool("t", {}, lambda: "x")
    seen: list[Exchange] = []

    async def handler(exchange: Exchange) -> Answer:
        seen.append(exchange)
        return result

    mount(outer, inner, "i", info={"name": "o"}, handler=handler)
    tool = outer.registry.get("i_t")
    assert tool is not None
    assert tool.home is not None
    given = single({"name": "i_t", "arguments": {"a": 1}}, stateless=stateless)
    answer = await tool.home(given)
    if stateless:
        assert json.loads(bytes(answer or b"")) == expected
    else:
        assert answer == result
    (inside,) = seen
    assert (inside.target, inside.head.name) == ("t", "t")
    assert json.loads(bytes(inside.message.params or b"")) == {"name": "t", "arguments": {"a": 1}}
    assert given.target == "i_t"


def single(params: Any, *, stateless: bool) -> Exchange:
    return exchange("tools/call", params, stateless=stateless)


def test_names_of_a_server_mounted_without_a_prefix_are_unchanged() -> None:
    outer, inner = MCPServer("outer"), weather()
    mount(outer, inner, info={}, handler=inner.handler)
    assert outer.registry.listing.names() == inner.registry.listing.names()
    assert outer.prompts.names() == inner.prompts.names()
    assert outer.resources.fixed.names() == inner.resources.fixed.names()
    assert outer.resources.templates.names() == inner.resources.templates.names()
