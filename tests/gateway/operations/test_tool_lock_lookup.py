"""Lookup of the tool that a call concerns, with and without search."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.errors import RpcError
from fairlead.gateway import Gateway, View
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import ClientViews
from fairlead.gateway.operations.observability import Observability
from fairlead.gateway.operations.tool_lock_lookup import ToolOriginLookup
from fairlead.policy.actions.tool_lock import ToolOrigin
from fairlead.protocol.caller import Caller
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import ALL, tools
from tests.support.gateway_servers import LIMIT, serving, until
from tests.support.single_exchange import exchange

FOUND = ("red", "add", True, False)


def summary(origin: ToolOrigin | None) -> tuple[Any, ...] | None:
    """Return an origin as the tuple (server, name, has a definition, described)."""
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
async def test_a_tool_is_found_by_its_name_or_in_the_arguments_of_call_tool(
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


async def test_without_search_the_arguments_of_call_tool_are_not_read() -> None:
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


# Lookup with fake servers


class StartingMember:
    """A server that lists its tools when a lookup waits for it, or is still starting."""

    def __init__(self, start: Callable[[], RpcError | None]) -> None:
        self.introduced = asyncio.Event()
        self._start = start

    async def introduction(self) -> RpcError | None:
        return self._start()


class Lookup:
    """A lookup over the tools `log` and `push` of `git`."""

    def __init__(self, search: bool = False, view: View = ALL) -> None:
        self.catalog = MergedCatalog()
        self.catalog.put("git", ListKind.TOOLS, tools("log", "push"))
        self.members: dict[str, Any] = {}
        self.expected: list[str] = []
        parts: Any = self
        views = ClientViews({}, view)
        self.lookup = ToolOriginLookup(self.catalog, parts, parts, views, search=search)

    async def expect_tool(self, name: str, caller: Caller) -> None:
        self.expected.append(name)

    def find(self, method: str, name: str, **about: Any) -> tuple[Any, ...] | None:
        alias = about.pop("alias", None)
        asked = exchange(method, {"name": name, **about.pop("more", {})}, **about)
        asked.alias = alias
        return summary(self.lookup.find(asked, name))

    async def wait(self, name: str, **about: Any) -> None:
        alias, arguments = about.pop("alias", None), about.pop("arguments", {})
        asked = exchange("tools/call", {"name": name, "arguments": arguments}, **about)
        asked.alias = alias
        await self.lookup.wait(asked, name)


@pytest.mark.parametrize(
    ("method", "name", "alias", "found"),
    [
        ("tools/call", "git_log", "log", ("git", "log", True, False)),
        ("tools/call", "log", None, ("git", "log", True, False)),
        ("tools/call", "LOG", None, ("git", "log", True, False)),
        ("tools/call", "git_LOG", "LOG", ("git", "log", True, False)),
        ("tools/call", "new", None, ("git", "new", False, False)),
        ("tools/list", "log", None, ("git", "log", False, False)),
    ],
)
def test_at_the_endpoint_of_a_server_tools_are_found_by_their_own_names(
    method: str, name: str, alias: str | None, found: Any
) -> None:
    assert Lookup().find(method, name, alias=alias, server="git") == found


@pytest.mark.parametrize(
    ("search", "method", "name", "found"),
    [
        (False, "tools/call", "git_log", ("git", "log", True, False)),
        (False, "tools/call", "git_none", None),
        (False, "tools/call", "call_tool", None),
        (True, "tools/call", "call_tool", ("git", "log", True, False)),
        (True, "tools/call", "describe_tool", ("git", "log", True, True)),
        (True, "tools/list", "call_tool", None),
        (True, "tools/list", "git_log", ("git", "log", True, False)),
    ],
)
def test_at_the_merged_endpoint_tools_are_found_by_merged_names(
    search: bool, method: str, name: str, found: Any
) -> None:
    arguments = {"arguments": {"name": "git_log"}}
    assert Lookup(search).find(method, name, more=arguments) == found


def test_a_tool_outside_the_view_is_not_found() -> None:
    lookup = Lookup(view=View(deny=("git_log",), rename={"git_push": "push"}))
    assert lookup.find("tools/call", "git_log") is None
    assert lookup.find("tools/call", "git_push") is None
    assert lookup.find("tools/call", "push") == ("git", "push", True, False)


@pytest.mark.parametrize(
    ("search", "name", "arguments", "expected"),
    [
        (False, "git_log", {}, "git_log"),
        (False, "call_tool", {"name": "git_log"}, "call_tool"),
        (True, "call_tool", {"name": "git_log"}, "git_log"),
        (True, "describe_tool", {"name": "git_log"}, "git_log"),
        (True, "search_tools", {"query": "x"}, "search_tools"),
        (True, "call_tool", {}, "call_tool"),
        (True, "git_log", {}, "git_log"),
    ],
)
async def test_the_lookup_waits_for_the_server_of_the_tool(
    search: bool, name: str, arguments: Any, expected: str
) -> None:
    lookup = Lookup(search)
    await lookup.wait(name, arguments=arguments)
    assert lookup.expected == [expected]


async def test_the_lookup_at_the_endpoint_of_a_server_waits_for_its_start() -> None:
    lookup = Lookup()
    starts: list[str] = []

    def start() -> RpcError | None:
        starts.append("git")
        return RpcError(-32603, "still starting")

    lookup.members["git"] = StartingMember(start)
    await lookup.wait("log", server="git")
    await lookup.wait("git_log", alias="log", server="git")
    await lookup.wait("x", server="time")
    assert starts == []
    for alias in (None, "other"):
        with pytest.raises(RpcError, match="still starting"):
            await lookup.wait("none", alias=alias, server="git")
    assert (starts, lookup.expected) == (["git", "git"], [])
