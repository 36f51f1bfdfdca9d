"""Current and remembered tools of a manager's servers."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import Source
from fairlead.config.server_spec import ServerSpec
from fairlead.manager.tool_index import ToolIndex
from fairlead.upstream.memory.tool_memory import ToolMemory

ENTRY = MCPStdioServerConfig(command="x")


class IndexedServers:
    """A tool index, its servers, and the tool lists that it has reported."""

    def __init__(self, remembered: dict[str, Any] | None = None, **spec: Any) -> None:
        source = Source(provider="p", provider_name="Program")
        self.spec = ServerSpec(entry=ENTRY, source=source, **spec)
        self.upstreams: dict[str, Any] = {}
        self.reported: list[list[str]] = []
        self.memory = ToolMemory(None)
        self.memory._tools.update(remembered or {})
        self.index = ToolIndex(
            self.upstreams,
            self.memory,
            call=self._call,
            on_change=lambda tools: self.reported.append([tool.name for tool in tools]),
        )

    async def _call(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError

    def server(self, name: str, tools: Any = None, state: str = "connected") -> Any:
        """Add a server."""
        one = SimpleNamespace(name=name, tools=tools, state=state, error=None, spec=self.spec)
        self.upstreams[name] = one
        return one

    def names(self) -> list[str]:
        return [tool.name for tool in self.index.tools]


def tools(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


async def test_simultaneous_tool_changes_of_several_servers_are_reported_once() -> None:
    servers = IndexedServers()
    servers.server("red", tools("a"))
    servers.index.rebuild_soon()
    servers.server("blue", tools("b"))
    servers.index.rebuild_soon()
    assert servers.reported == []
    await asyncio.sleep(0)
    assert servers.reported == [["mcp_blue_b", "mcp_red_a"]]
    assert servers.names() == servers.reported[0]
    servers.index.rebuild_soon()  # the tools have not changed
    await asyncio.sleep(0)
    assert len(servers.reported) == 1
    found = servers.index.get("mcp_red_a")
    assert found is not None
    assert (found.mcp_server_name, found.mcp_tool_name) == ("red", "a")
    assert servers.index.get("nothing") is None


async def test_an_immediate_rebuild_of_the_tool_list_replaces_the_scheduled_one() -> None:
    servers = IndexedServers()
    red = servers.server("red", tools("a"))
    servers.index.rebuild_soon()
    assert servers.index._rebuilding is not None
    rebuilt = servers.index.rebuild()
    assert [tool.name for tool in rebuilt] == servers.names()
    assert servers.index._rebuilding is None
    red.tools = tools("a", "b")
    await asyncio.sleep(0)
    assert len(servers.reported) == 1
    servers.index.rebuild_soon()  # another rebuild can be scheduled
    await asyncio.sleep(0)
    assert (len(servers.reported), servers.index._rebuilding) == (2, None)


async def test_remembered_tools_are_listed_until_the_server_lists_its_own() -> None:
    servers = IndexedServers({"red": tools("old")})
    red = servers.server("red", state="connecting")
    servers.server("blue", state="connecting")
    (tool,) = servers.index.rebuild()
    assert (tool.mcp_tool_name, tool.deferred, tool.available) == ("old", True, False)
    red.tools, red.state = tools("new"), "connected"
    (tool,) = servers.index.rebuild()
    assert (tool.mcp_tool_name, tool.deferred, tool.available) == ("new", False, True)


async def test_a_tool_is_available_while_its_server_is_connected_or_idle() -> None:
    servers = IndexedServers()
    red = servers.server("red", tools("a"))
    (tool,) = servers.index.rebuild()
    available = {}
    for state in ("connected", "idle", "connecting", "reconnecting", "suspended", "failed"):
        red.state = state
        available[state] = tool.available
    assert [state for state in available if available[state]] == ["connected", "idle"]
    red.state = "connected"
    del servers.upstreams["red"]
    assert not tool.available


async def test_tools_of_a_lost_server_stay_listed() -> None:
    servers = IndexedServers()
    red = servers.server("red", tools("a"))
    servers.index.rebuild()
    red.state = "suspended"
    (tool,) = servers.index.rebuild()
    assert (tool.name, tool.deferred, tool.available) == ("mcp_red_a", False, False)
    assert len(servers.reported) == 1


async def test_the_next_rebuild_removes_tools_whose_cached_list_was_deleted() -> None:
    servers = IndexedServers({"red": tools("old")})
    servers.server("red")
    assert len(servers.index.rebuild()) == 1
    servers.memory.forget(["red"])
    assert servers.index.rebuild() == []
    assert [len(one) for one in servers.reported] == [1, 0]


async def test_remembered_tools_of_a_server_that_is_not_configured_are_not_listed() -> None:
    assert IndexedServers({"red": tools("old")}).index.rebuild() == []


async def test_tools_that_the_server_entry_excludes_are_not_listed() -> None:
    servers = IndexedServers({"blue": tools("a", "b")}, without_tools=("b",))
    servers.server("red", tools("a", "b"))
    servers.server("blue")
    assert [(tool.mcp_server_name, tool.mcp_tool_name) for tool in servers.index.rebuild()] == [
        ("blue", "a"),
        ("red", "a"),
    ]


async def test_the_path_of_a_tool_contains_the_program_that_configured_its_server() -> None:
    servers = IndexedServers()
    servers.server("red", tools("a"))
    (tool,) = servers.index.rebuild()
    assert tool.path == "mcp:red via Program"
