"""Tests of binding, replacing and unbinding the tools of an agent's session."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.manager.tools.tool import MCPTool, ProxyTool
from fairlead.manager.tools.tool_session import ToolSession, create_tool_session
from tests.support.virtual_time import VirtualTime


async def call(*_: Any, **__: Any) -> dict[str, Any]:
    return {"content": []}


def tool(name: str, **definition: Any) -> MCPTool:
    return MCPTool(name, "red", {"name": name, **definition}, call)


class Registry:
    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.refuses: set[str] = set()

    def add(self, tool: Any) -> None:
        if tool.name in self.refuses:
            raise ValueError(tool.name)
        self.held[tool.name] = tool

    def remove(self, name: str) -> None:
        del self.held[name]


class Manager:
    """A fake manager for a tool session."""

    def __init__(self, *tools: MCPTool) -> None:
        self.tools = list(tools)
        self.listeners: list[Callable[[list[MCPTool]], None]] = []
        self.closed = 0

    def add_tools_listener(self, listener: Any) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def get_tools(self) -> list[MCPTool]:
        return self.tools

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("owned", [True, False])
async def test_a_tool_session_binds_the_tools_of_its_manager_and_unbinds_them_when_closed(
    owned: bool,
) -> None:
    manager, registry = Manager(), Registry()
    registry.held["own"] = "of the host"
    given: Any = manager
    session = ToolSession(given, registry=registry, owned=owned)
    await session.refresh_mcp_tools([tool("a"), tool("b")])
    assert [one.name for one in session.mcp_tools] == ["a", "b"]
    manager.listeners[0]([tool("x")])
    # the tools change before the first binding has run
    manager.listeners[0]([tool("b"), tool("c")])
    assert session._binding is not None
    await asyncio.wait([session._binding])
    assert list(registry.held) == ["own", "b", "c"]
    await session.close()
    assert registry.held == {"own": "of the host"}
    assert (session.mcp_tools, manager.listeners, manager.closed) == ([], [], int(owned))


async def test_the_previous_tools_stay_bound_if_a_tool_cannot_be_bound() -> None:
    registry = Registry()
    async with ToolSession(None, registry=registry) as session:
        await session.refresh_mcp_tools([tool("a"), tool("b")])
        before = dict(registry.held)
        registry.refuses = {"d"}
        with pytest.raises(ValueError, match="d"):
            await session.refresh_mcp_tools([tool("c"), tool("d")])
        assert registry.held == before
        assert [one.name for one in session.mcp_tools] == ["a", "b"]
    assert registry.held == {}


async def test_closing_a_session_does_not_close_a_given_manager() -> None:
    manager: Any = Manager(tool("a"))
    session = await create_tool_session(manager=manager, wrap=ProxyWrap)
    assert [one.name for one in session.mcp_tools] == ["a"]
    registry: Any = session.registry
    assert isinstance(registry.tools["a"], ProxyWrap)
    await session.close()
    assert (manager.closed, registry.tools) == (0, {})
    nothing = await create_tool_session(manager=manager, enable_mcp=False)
    assert (nothing.mcp_manager, nothing.mcp_tools) == (None, [])


class ProxyWrap:
    def __init__(self, tool: MCPTool) -> None:
        self.name = tool.name


async def test_closing_a_session_cancels_a_binding_in_progress() -> None:
    manager: Any = Manager()
    session = ToolSession(manager, registry=Registry())
    async with session._changing:
        manager.listeners[0]([tool("a")])
        await asyncio.sleep(0)
        await session.close()
    assert session._binding is not None
    assert session._binding.cancelled()


@pytest.mark.parametrize(
    ("definition", "label", "description"),
    [
        ({}, "red: t", "t"),
        ({"title": "Tool"}, "red: Tool", "Tool"),
        ({"annotations": {"title": "Hint"}}, "red: Hint", "Hint"),
        ({"title": "Tool", "annotations": {"title": "Hint"}}, "red: Tool", "Tool"),
        ({"title": "Tool", "description": "does"}, "red: Tool", "does"),
        ({"annotations": 5, "description": ""}, "red: t", "t"),
    ],
)
def test_label_and_description_of_a_tool_are_derived_from_its_definition(
    definition: dict[str, Any], label: str, description: str
) -> None:
    one = tool("t", **definition)
    assert (one.label, one.description, repr(one)) == (label, description, "<MCPTool t>")


@pytest.mark.parametrize(
    ("schema", "parameters"),
    [
        (None, {"type": "object", "properties": {}}),
        (5, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        ({"type": ["string", "null"]}, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": 5, "x": 1}, {"type": "object", "properties": {}, "x": 1}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"type": ["object", "null"], "properties": {"a": {}}},
            {"type": "object", "properties": {"a": {}}},
        ),
    ],
)
def test_tool_parameters_are_always_an_object_schema_with_properties(
    schema: Any, parameters: Any
) -> None:
    assert tool("t", inputSchema=schema).parameters == parameters


def test_a_valid_input_schema_is_used_unchanged_as_parameters() -> None:
    schema = {"type": "object", "properties": {"a": {}}}
    assert tool("t", inputSchema=schema).parameters is schema


async def test_a_call_of_a_proxy_tool_times_out_after_one_minute(virtual_time: VirtualTime) -> None:
    async def never(*_: Any, **__: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    slow = MCPTool("t", "red", {"name": "t"}, never)
    began = virtual_time.now
    result = await ProxyTool(slow, lambda name: slow).execute()
    assert virtual_time.now == began + 60.0
    assert (result.text, result.details.is_error) == ("MCP error: no response within 60 s", True)
    gone = await ProxyTool(slow, lambda name: None).execute()
    assert gone.text == "MCP error: t is no longer available"
    assert (gone.details.server_name, gone.details.mcp_tool_name) == ("red", "t")
