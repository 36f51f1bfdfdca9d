"""Search mode: three tools in place of all, and all of them still there for who wants them."""

import asyncio
import json
from typing import Any

import pytest

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.client import accept
from fairlead.gateway import Gateway, View
from fairlead.interceptor import Answer, Exchange, Proceed
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    Ears,
    config,
    joining,
    make,
    names,
    serving,
    until,
)

pytest.importorskip("bm25s")

THREE = ["search_tools", "describe_tool", "call_tool"]


async def find(client: MCPClient, query: str) -> list[str]:
    answer = await client.call_tool("search_tools", {"query": query})
    return [tool["name"] for tool in answer["structuredContent"]["tools"]]


@pytest.mark.parametrize("version", BOTH)
async def test_a_tool_is_found_described_and_called(version: str) -> None:
    seen: list[float] = []
    logs: asyncio.Queue[Any] = asyncio.Queue()
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        Gateway(search=True) as gateway,
    ):
        await gateway.connect({"red": {"url": red}, "blue": {"url": blue}})
        await until(lambda: gateway.is_ready)
        async with joining(
            gateway,
            version,
            on_elicit=lambda question: accept({"value": "Ada"}),
            on_log=lambda level, data, logger: logs.put_nowait(data),
        ) as client:
            assert await names(client) == THREE
            assert (await find(client, "tell a secret blue"))[0] == "blue_secret"
            shown = await client.call_tool("describe_tool", {"name": "blue_speak"})
            assert shown["structuredContent"]["tool"]["name"] == "blue_speak"
            assert "text" in shown["structuredContent"]["tool"]["inputSchema"]["properties"]

            await client.set_log_level("info")
            wrapped = {"name": "blue_speak", "arguments": {"text": "hi"}}
            answer = await client.call(
                "call_tool", wrapped, on_progress=lambda n, *_: seen.append(n)
            )
            assert answer.text == "hi"
            assert await logs.get() == "hi"
            # Questions come through as they do without a search, and so do names called directly.
            answer = await client.call("call_tool", {"name": "red_ask"})
            assert answer.text.startswith("Ada to red")
            assert (await client.call("red_secret")).text == "the secret of red"

            for wrong in ({"name": "nobody"}, {}, {"name": "red_who", "arguments": 7}):
                refused = await client.call_tool("call_tool", wrong)
                assert refused["isError"] is True
            refused = await client.call_tool("describe_tool", {"name": "blue_secre"})
            assert "blue_secret" in refused["content"][0]["text"]


@pytest.mark.parametrize("version", BOTH)
async def test_the_full_list_is_there_for_who_asks_for_it(version: str) -> None:
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(search=True) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with (
            serving(gateway) as url,
            MCPClient.connect_http(url, config(version)) as merged,
            MCPClient.connect_http(f"{url}/red", config(version)) as alone,
        ):
            assert await names(merged) == THREE
            params = {"_meta": {"fairlead/allTools": True}}
            page = json.loads(bytes(await merged.request("tools/list", params)))
            assert "red_who" in [tool["name"] for tool in page["tools"]]
            assert "who" in await names(alone)


async def test_a_search_finds_only_what_the_view_has() -> None:
    view = View(deny=("red_secret",), rename={"red_who": "whoami"})
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(search=True, view=view) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway) as client:
            assert "red_secret" not in await find(client, "tell a secret")
            assert "whoami" in await find(client, "say who answers")
            for name in ("red_secret", "secret", "red_who"):
                for tool in ("call_tool", "describe_tool"):
                    answer = await client.call_tool(tool, {"name": name})
                    assert answer["isError"] is True
                with pytest.raises(RpcError):
                    await client.call_tool(name, {})
            assert (await client.call("call_tool", {"name": "whoami"})).text.startswith("red")
            params = {"_meta": {"fairlead/allTools": True}}
            page = json.loads(bytes(await client.request("tools/list", params)))
            assert "red_secret" not in [tool["name"] for tool in page["tools"]]


async def test_a_new_tool_is_found_at_once() -> None:
    ears = Ears()
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(search=True) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, on_notification=ears) as client:
            assert "red_pelican" not in await find(client, "pelican")
            ears.drain()
            await client.call("red_grow", {"tool": "pelican"})
            await ears.hear("notifications/tools/list_changed")
            assert await find(client, "pelican") == ["red_pelican"]


async def test_interceptors_see_the_tool_inside_of_a_call() -> None:
    async def no_secrets(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.target == "red_secret":
            raise RpcError(-32602, "no secrets")
        return await proceed(exchange)

    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(search=True, interceptors=[no_secrets]) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway) as client:
            with pytest.raises(RpcError, match="no secrets"):
                await client.call_tool("call_tool", {"name": "red_secret"})
            assert (await client.call("call_tool", {"name": "red_who"})).text.startswith("red")


async def test_a_tool_with_the_name_of_a_search_is_reached_through_it() -> None:
    server = MCPServer("search", rate_limit_rate=0)
    server.tool(name="tools")(lambda: "the real one")
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as url,
        Gateway(search=True) as gateway,
    ):
        await gateway.connect({"search": {"url": url}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway) as client:
            assert "search_tools" in await find(client, "tools")
            answer = await client.call("call_tool", {"name": "search_tools"})
            assert answer.text == "the real one"
