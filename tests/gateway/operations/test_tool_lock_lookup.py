"""Whose tool a call means, when tools are offered through a search."""

import asyncio
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.gateway import Gateway
from fairlead.gateway.operations.observability import Observability
from fairlead.policy.actions.tool_lock import ToolOrigin
from tests.support.gateway_servers import LIMIT, serving, until
from tests.support.single_exchange import exchange

FOUND = ("red", "add", True, False)


def summary(origin: ToolOrigin | None) -> tuple[Any, ...] | None:
    """Server, name, whether a definition is known, and whether the tool is only described."""
    if origin is None:
        return None
    return origin.server, origin.name, origin.definition is not None, origin.described


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("red_add", {}, FOUND),
        ("call_tool", {"name": "red_add", "arguments": {}}, FOUND),
        ("describe_tool", {"name": "red_add"}, (*FOUND[:3], True)),
        ("search_tools", {"query": "add"}, None),
        ("call_tool", {"name": 3}, None),
        ("call_tool", {"name": "red_none", "arguments": {}}, None),
    ],
)
async def test_a_tool_is_found_by_its_name_and_inside_calls_of_the_search(
    name: str, arguments: dict[str, Any], expected: tuple[Any, ...] | None
) -> None:
    server = MCPServer("red", rate_limit_rate=0)
    server.tool(name="add", description="Add numbers.")(lambda: "sum")
    observing = Observability()
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as url,
        Gateway(search=True, observing=observing) as gateway,
    ):
        await gateway.connect({"red": {"url": url}})
        await until(lambda: gateway.is_ready)
        call = exchange("tools/call", {"name": name, "arguments": arguments})
        assert summary(observing.find_tool(call, name)) == expected
        at_server = exchange("tools/call", {"name": "add"}, server="red")
        assert summary(observing.find_tool(at_server, "add")) == FOUND
        other = exchange("tools/list", server="red")
        assert summary(observing.find_tool(other, "new")) == ("red", "new", False, False)


async def test_without_a_search_the_name_is_all_that_counts() -> None:
    server = MCPServer("red", rate_limit_rate=0)
    server.tool(name="add", description="Add numbers.")(lambda: "sum")
    observing = Observability()
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as url,
        Gateway(observing=observing) as gateway,
    ):
        await gateway.connect({"red": {"url": url}})
        await until(lambda: gateway.is_ready)
        call = exchange("tools/call", {"name": "red_add"})
        assert summary(observing.find_tool(call, "red_add")) == FOUND
        described = exchange("tools/call", {"name": "describe_tool", "arguments": {"name": "x"}})
        assert observing.find_tool(described, "describe_tool") is None
