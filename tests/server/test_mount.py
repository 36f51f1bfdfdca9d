"""One server inside another."""

from typing import Literal

import pytest
from rawwire import META, wire_to

from fairlead import MCPServer


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


async def test_what_the_inner_server_offers_is_offered_under_a_prefix() -> None:
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
async def test_changes_of_the_inner_server_are_followed() -> None:
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


def test_names_that_are_taken_and_servers_in_themselves_are_refused() -> None:
    outer = MCPServer("outer")
    with pytest.raises(ValueError, match="itself"):
        outer.mount(outer)
    outer.mount(weather())
    with pytest.raises(ValueError, match="already"):
        outer.mount(weather())
