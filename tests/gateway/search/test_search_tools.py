"""Search mode: three search tools replace the tool list, and every tool can be called."""

import asyncio
import json
import threading
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.client import accept
from fairlead.gateway import Gateway, View
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.search import search_index
from fairlead.gateway.search.search_tools import SearchTools
from fairlead.interceptor import Answer, Exchange, InterceptorBase, Proceed
from fairlead.protocol.caller import Caller
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import ALL, tools
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
from tests.support.single_exchange import exchange

pytest.importorskip("bm25s")

THREE = ["search_tools", "describe_tool", "call_tool"]


async def find(client: MCPClient, query: str) -> list[str]:
    answer = await client.call_tool("search_tools", {"query": query})
    return [tool["name"] for tool in answer["structuredContent"]["tools"]]


@pytest.mark.parametrize("version", BOTH)
async def test_a_tool_can_be_found_described_and_called_with_the_search_tools(version: str) -> None:
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
            # Input requests and calls by name work in search mode, too.
            answer = await client.call("call_tool", {"name": "red_ask"})
            assert answer.text.startswith("Ada to red")
            assert (await client.call("red_secret")).text == "the secret of red"

            for wrong in ({"name": "nobody"}, {}, {"name": "red_who", "arguments": 7}):
                refused = await client.call_tool("call_tool", wrong)
                assert refused["isError"] is True
            refused = await client.call_tool("describe_tool", {"name": "blue_secre"})
            assert "blue_secret" in refused["content"][0]["text"]


@pytest.mark.parametrize("version", BOTH)
async def test_a_client_can_request_the_full_list_of_tools(version: str) -> None:
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


async def test_a_search_finds_only_tools_in_the_view() -> None:
    view = View(deny=("red_secret",), rename={"red_who": "whoami"})
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        Gateway(search=True, view=view) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway) as client:
            assert "red_secret" not in await find(client, "return a secret")
            assert "whoami" in await find(client, "return the name of the server")
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


async def test_a_search_finds_a_new_tool_immediately() -> None:
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


async def test_interceptors_process_the_call_inside_call_tool() -> None:
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


async def test_a_server_tool_named_like_a_search_tool_can_be_called_through_call_tool() -> None:
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


# Search tools over a catalog


class Curtain(InterceptorBase):
    """An interceptor that changes the description of one tool and hides another."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    def shown(self, exchange: Exchange, definition: Raw) -> Raw | None:
        tool = json.loads(bytes(definition))
        if tool["name"].endswith("hidden"):
            return None
        if tool["name"].endswith("changed"):
            return Raw(json.dumps({**tool, "description": "other words"}).encode())
        if tool["name"].endswith("silent"):
            return Raw(json.dumps({"name": tool["name"]}).encode())
        return definition


class Searching:
    """The search tools for one server, and a record of what they wait for."""

    def __init__(self, *names: str, interceptors: Any = ()) -> None:
        self.waited: list[str] = []
        self.catalog = MergedCatalog()
        self.catalog.put("s", ListKind.TOOLS, tools(*names, description="About pelicans."))
        self._tools = SearchTools(
            self.catalog, interceptors, listed=self._listed, expect=self._expect
        )

    async def _listed(self) -> None:
        self.waited.append("lists")

    async def _expect(self, name: str, caller: Caller) -> None:
        self.waited.append(name)

    async def answer(self, tool: str, arguments: Any, view: View = ALL) -> Any:
        params = {"name": tool} if arguments is None else {"name": tool, "arguments": arguments}
        answer = await self._tools.answer(exchange("tools/call", params), view)
        return json.loads(answer) if isinstance(answer, bytes) else answer

    async def found(self, query: str, view: View = ALL, **more: Any) -> list[tuple[str, str]]:
        answer = await self.answer("search_tools", {"query": query, **more}, view)
        return [(one["name"], one["description"]) for one in answer["structuredContent"]["tools"]]

    async def text(self, tool: str, name: str) -> str:
        answer = await self.answer(tool, {"name": name})
        return str(answer["content"][0]["text"])


def test_only_interceptors_with_a_shown_hook_process_search_results() -> None:
    curtain = Curtain()
    searching = Searching(interceptors=[InterceptorBase(), curtain])
    assert searching._tools._shown == [curtain.shown]


async def test_interceptors_can_hide_and_change_tools_in_search_results() -> None:
    names = ("plain", "changed", "hidden", "silent")
    bare, covered = Searching(*names), Searching(*names, interceptors=[Curtain()])
    assert await bare.found("pelican") == [
        (f"s_{name}", "About pelicans.") for name in sorted(names)
    ]
    assert await covered.found("pelican") == [
        *(("s_changed", "other words"), ("s_plain", "About pelicans."), ("s_silent", "")),
    ]
    assert covered.waited == ["lists"]
    answer = await covered.answer("search_tools", {"query": "pelican", "limit": 1})
    assert len(answer["structuredContent"]["tools"]) == 1
    assert answer["structuredContent"]["total"] == 4


async def test_describe_tool_shows_descriptions_changed_by_interceptors() -> None:
    one = Searching("plain", "changed", "hidden", interceptors=[Curtain()])
    assert "other words" in await one.text("describe_tool", "s_changed")
    assert "About pelicans." in await one.text("describe_tool", "s_plain")
    missing = await one.text("describe_tool", "s_hidden")
    assert missing.startswith("unknown tool 's_hidden': did you mean 's_changed' or 's_plain'?")
    assert one.waited == ["s_changed", "s_plain", "s_hidden"]
    call = await one.answer("call_tool", {"name": "s_hidden", "arguments": {"n": 1}})
    assert isinstance(call, Exchange)
    assert (call.target, json.loads(bytes(call.message.params))) == (
        "s_hidden",
        {"name": "s_hidden", "arguments": {"n": 1}},
    )


async def test_up_to_three_similar_tools_are_suggested() -> None:
    one = Searching(*(f"walrus_{letter}" for letter in "abcde"))
    assert await one.text("call_tool", "walrus") == (
        "unknown tool 'walrus': did you mean 's_walrus_a' or 's_walrus_b' or 's_walrus_c'? "
        "Use search_tools to find a tool."
    )


async def test_calls_of_other_tools_are_not_handled_by_the_search_tools() -> None:
    one = Searching("plain")
    assert await one.answer("s_plain", {}) is None
    assert (await one.answer("call_tool", None))["isError"] is True
    assert one.waited == []


async def test_each_view_has_its_own_search_index() -> None:
    one, view = Searching("a", "b"), View(rename={"s_a": "c"})
    for _ in range(2):
        assert [name for name, _ in await one.found("pelican", view)] == ["c", "s_b"]
        assert [name for name, _ in await one.found("pelican")] == ["s_a", "s_b"]
    one.catalog.put("s", ListKind.TOOLS, tools("d", description="About pelicans."))
    for seen in (view, ALL):
        assert [name for name, _ in await one.found("pelican", seen)] == ["s_d"]


async def test_the_search_index_is_built_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    read = search_index._document

    def noted(*of: Any) -> Any:
        threads.append(threading.get_ident())
        return read(*of)

    monkeypatch.setattr(search_index, "_document", noted)
    assert len(await Searching("a", "b").found("pelican")) == 2
    assert len(threads) == 2
    assert threading.get_ident() not in threads
