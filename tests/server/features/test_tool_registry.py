"""Tests of tool registries: without a server, shared by servers, and replaced."""

import asyncio
import json
from typing import Any

import pytest

from fairlead import Context, MCPServer, MCPToolError
from fairlead.server.features.tool_entry import tool_from_function
from fairlead.server.features.tool_registry import MCPToolRegistry
from tests.support.raw_server_client import wire_to


async def double(number: int) -> int:
    """Twice as much."""
    return number * 2


def triple(number: int) -> int:
    return number * 3


@pytest.mark.covers("SRV-18")
async def test_a_tool_registry_works_without_a_server() -> None:
    registry = MCPToolRegistry()
    entry = registry.register(double)
    assert registry.get("double") is entry
    assert registry.get("no") is None
    assert ("double" in registry, len(registry)) == (True, 1)
    assert [tool.name for tool in registry.list_tools()] == ["double"]
    registry.validate_call("double", {"number": 1})
    result = await registry.execute("double", {"number": "21"})
    assert result["content"] == [{"type": "text", "text": "42"}]
    registry.unregister("double")
    assert registry.list_tools() == []
    with pytest.raises(KeyError):
        registry.unregister("double")


@pytest.mark.covers("SRV-18", "SRV-22")
async def test_invalid_tool_calls_are_rejected_with_every_problem() -> None:
    registry = MCPToolRegistry()
    registry.register(double)
    with pytest.raises(MCPToolError) as caught:
        registry.validate_call("double", {"number": "x", "other": 1})
    assert caught.value.code == "VALIDATION_ERROR"
    assert caught.value.field_errors is not None
    assert len(caught.value.field_errors) == 2
    failed = await registry.execute("double", {})
    assert failed["isError"] is True
    assert json.loads(failed["content"][0]["text"])["code"] == "VALIDATION_ERROR"
    with pytest.raises(MCPToolError) as caught:
        await registry.execute("no")
    assert caught.value.code == "NOT_FOUND"


@pytest.mark.covers("SRV-18")
def test_registering_another_tool_with_the_same_name_is_rejected() -> None:
    registry = MCPToolRegistry()
    first = registry.register(double)
    assert registry.register(double) is first

    async def double_too(number: int) -> int:
        return number + number

    double_too.__name__ = "double"
    with pytest.raises(ValueError, match="already"):
        registry.register(double_too)
    assert registry.register(double_too, replace=True) is registry.get("double")
    assert registry.get("double") is not first
    server = MCPServer("s")
    server.tool()(double)
    server.tool()(double)
    server.register_tool("t", {"type": "object"}, triple)
    server.register_tool("t", {"type": "object"}, triple)
    with pytest.raises(ValueError, match="already"):
        server.register_tool("t", {"type": "object", "title": "other"}, triple)
    assert server.tool_count == 2


@pytest.mark.covers("SRV-18")
async def test_a_tool_registry_can_be_shared_by_servers_and_replaced() -> None:
    shared = MCPToolRegistry()
    one, two = MCPServer("one", registry=shared), MCPServer("two", registry=shared)
    one.tool()(double)
    assert two.tool_count == 1
    other = MCPToolRegistry()
    other.register(triple)
    async with wire_to(one) as wire:
        await wire.greet()
        one.registry = other
        assert (await wire.next())["method"] == "notifications/tools/list_changed"
        (tool,) = (await wire.ask("tools/list"))["result"]["tools"]
        assert tool["name"] == "triple"
        answer = await wire.ask("tools/call", {"name": "triple", "arguments": {"number": 2}})
        assert answer["result"]["content"][0]["text"] == "6"
        two.remove_tool("double")  # server `one` no longer uses this registry
        await wire.ask("ping")
    assert (one.tool_count, two.tool_count) == (1, 0)


async def test_several_tasks_may_execute_tools_at_the_same_time() -> None:
    registry = MCPToolRegistry()
    registry.register(double)
    results: list[dict[str, Any]] = await asyncio.gather(
        *(registry.execute("double", {"number": n}) for n in range(20))
    )
    assert [r["content"][0]["text"] for r in results] == [str(2 * n) for n in range(20)]


async def test_tools_that_a_registry_executes_have_an_anonymous_caller() -> None:
    registry = MCPToolRegistry()

    @registry.register
    def about(ctx: Context) -> list[Any]:
        return [ctx.request_id, ctx.protocol_version, ctx.principal, ctx.client]

    result = await registry.execute("about")
    assert result == {
        "content": [{"type": "text", "text": '[0,"2025-11-25",null,"unknown"]'}],
        "structuredContent": {"result": [0, "2025-11-25", None, "unknown"]},
    }


def test_the_name_of_a_removed_tool_can_be_used_again() -> None:
    registry = MCPToolRegistry()
    first = registry.register(double)
    assert first.name in registry
    registry.unregister("double")
    assert "double" not in registry
    second = registry.register(double)
    assert second is not first
    assert registry.get("double") is second


def test_a_second_tool_of_a_name_needs_the_same_source_and_definition_or_replace() -> None:
    registry, one, two = MCPToolRegistry(), tool_from_function(double), tool_from_function(double)
    assert registry.register(one, source=double) is one
    assert registry.register(two, source=double) is one
    with pytest.raises(ValueError, match="a tool 'double' is already registered: choose another"):
        registry.register(two)
    with pytest.raises(ValueError, match="already"):
        registry.register(tool_from_function(double, title="Other"), source=double)
    replaced = registry.register(tool_from_function(double, title="Other"), replace=True)
    assert registry.get("double") is replaced
    assert [tool.title for tool in registry.list_tools()] == ["Other"]


def test_a_registry_has_inline_tools_from_the_first_inline_tool_on() -> None:
    registry = MCPToolRegistry()
    registry.register(double)
    assert registry.has_inline is False
    registry.register(tool_from_function(triple, inline=True))
    assert registry.has_inline is True
    registry.unregister("triple")
    registry.register(triple)
    assert registry.has_inline is True


def test_validating_a_call_checks_the_tool_name_and_the_arguments() -> None:
    registry = MCPToolRegistry()
    registry.register(double)
    with pytest.raises(MCPToolError) as caught:
        registry.validate_call("double")
    assert (caught.value.code, caught.value.tool_name) == ("VALIDATION_ERROR", "double")
    assert caught.value.message.startswith("Invalid arguments for tool 'double': ")
    assert caught.value.field_errors == [
        {"field": "number", "constraint": '"number" is a required property'}
    ]
    with pytest.raises(MCPToolError, match="Unknown tool: no") as caught:
        registry.validate_call("no")
    assert (caught.value.code, caught.value.tool_name) == ("NOT_FOUND", "no")


async def test_a_tool_that_a_registry_executes_cannot_request_input() -> None:
    registry = MCPToolRegistry()

    @registry.register
    async def asking(ctx: Context) -> str:
        return str(await ctx.roots())

    result = await registry.execute("asking")
    assert json.loads(result["content"][0]["text"])["code"] == "DEPENDENCY_MISSING"
