"""The state of a manager: servers by state, events, and closing."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec import Raw

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import Source
from fairlead.config.server_spec import ServerSpec
from fairlead.errors import ConfigError, RpcError
from fairlead.manager import MCPManager
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream import upstream as upstream_module
from fairlead.upstream.status_events import StatusEvent
from fairlead.upstream.upstream import Upstream
from fairlead.upstream.upstream_calls import UpstreamCalls
from tests.support.scripted_upstream import ScriptedClient, raw_items

STATES = ("idle", "connecting", "connected", "reconnecting", "suspended", "failed", "stopped")


def spec(name: str) -> ServerSpec:
    entry = MCPStdioServerConfig(command="x")
    return ServerSpec(entry=entry, source=Source(path=f"{name}.json"))


def manager(**states: str) -> MCPManager:
    """Return a manager whose servers have the given states but no connections."""
    one = MCPManager()
    for name, state in states.items():
        upstream = one.upstreams.add(name, spec(name))
        one._calls[name] = UpstreamCalls(upstream)
        put(upstream, state)
    return one


def put(upstream: Upstream, state: Any) -> None:
    """Set the state of a server."""
    upstream.state, upstream.generation, upstream.latency = state, 2, 0.5
    client: Any = ScriptedClient() if state == "connected" else None
    upstream.client = client
    upstream.settled.set()


def client_of(one: MCPManager, name: str) -> Any:
    return one.upstreams[name].client


async def test_servers_are_grouped_by_state() -> None:
    one = manager(**{state: state for state in STATES})
    for state in STATES:
        loading = one.upstreams.add(f"loading {state}", spec(state))
        put(loading, state)
        loading.loading = True
    assert one.pending_connections == {"connecting"}
    assert one.pending_reconnections == {"reconnecting"}
    assert one.pending_tool_loads == {f"loading {state}" for state in STATES}
    assert one.get_connected_servers() == ["connected", "loading connected"]
    assert set(one.connections) == {"connected", "loading connected"}
    found = {state: one.get_connection_status(state) for state in (*STATES, "missing")}
    assert found == {
        **dict.fromkeys(STATES, "disconnected"),
        "connected": "connected",
        "connecting": "connecting",
        "reconnecting": "connecting",
        "missing": "disconnected",
    }
    assert one.get_all_server_names() == sorted([*STATES, *(f"loading {s}" for s in STATES)])
    assert dict(one.describe()) == dict(one.upstreams)


async def test_a_listed_connection_has_the_properties_of_its_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_client(*_: Any) -> ScriptedClient:
        return ScriptedClient()

    monkeypatch.setattr(upstream_module, "open_client", open_client)
    async with manager(red="connected", blue="idle") as one:
        found = one.get_connection("red")
        assert found is not None
        assert (found.name, found.generation, found.latency) == ("red", 2, 0.5)
        assert (found.source.path, found.client) == ("red.json", client_of(one, "red"))
        assert one.get_connection("blue") is None
        one.upstreams["blue"].start(now=False)
        woken = await one.wait_for_connection("blue")
        assert (woken.name, woken.client) == ("blue", client_of(one, "blue"))
        assert one.get_connected_servers() == ["blue", "red"]


async def test_the_configuration_of_a_server_can_be_looked_up_by_name() -> None:
    one = manager(red="connected", blue="idle")
    assert one.get_source("red") == Source(path="red.json")
    assert one.sources["blue"].path == "blue.json"
    for missing in (one.get_source, one.get_server_config, one.get_configured, one.remembered):
        assert missing("green") is None
    entry = one.get_server_config("red")
    assert entry is not None
    assert entry.type == "stdio"
    assert one.get_configured("red") is one.upstreams["red"].spec


async def test_the_error_for_an_unknown_server_lists_the_known_servers() -> None:
    one = manager(red="connected", blue="idle")
    with pytest.raises(ConfigError, match="Unknown server 'green'; known servers: blue, red"):
        await one.reconnect_server("green")
    with pytest.raises(ConfigError, match="known servers: blue, red"):
        await one.wait_for_connection("green")
    with pytest.raises(ConfigError, match="known servers: none"):
        await manager().refresh_server_tools("green")


async def test_servers_that_are_disconnected_together_cause_one_event() -> None:
    one, told = manager(red="connected", blue="connected", green="idle"), list[StatusEvent]()
    clients = [client_of(one, name) for name in ("red", "blue")]
    stop = one.add_status_listener(told.append)
    await one.disconnect_server("missing")
    assert told == []
    await one.disconnect_server("green")
    await one.disconnect_all()
    assert told == [
        StatusEvent(kind="disconnected", names=("green",), path="green.json"),
        StatusEvent(kind="disconnected", names=("red", "blue")),
    ]
    assert (one.get_all_server_names(), one.sources, one._calls) == ([], {}, {})
    assert [client.closed for client in clients] == [1, 1]
    stop()
    one.upstreams.events.report_disconnected(["x"], None)
    assert len(told) == 2


async def test_refreshing_lists_the_tools_of_all_connected_servers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = manager(red="connected", broken="connected", away="failed")

    async def refuse(method: str, member: str) -> list[Raw]:
        raise RpcError(5, "no")

    client_of(one, "broken").list_raw = refuse
    with caplog.at_level(logging.WARNING, "fairlead.manager"):
        await one.refresh_all_tools()
    assert client_of(one, "red").lists_requested == ["tools/list"]
    assert [name for name, server in one.upstreams.items() if server.tools] == ["red"]
    assert [record.getMessage() for record in caplog.records] == [
        "broken: the tools could not be listed again: MCP error 5: no"
    ]
    assert {tool.mcp_server_name for tool in one._index.rebuild()} == {"red"}


async def test_status_changes_of_a_removed_server_are_ignored() -> None:
    one, told = manager(red="connected"), list[StatusEvent]()
    one.add_status_listener(told.append)
    red = one.upstreams["red"]
    other = Upstream("red", spec("red"), red.settings, starts=red.starts)
    put(other, "failed")
    one.upstreams._changed(other)
    assert (told, one._memory.is_known("red")) == ([], False)
    one.upstreams._changed(red)
    one.upstreams._changed(red)
    assert [(event.kind, event.path) for event in told] == [("connected", "red.json")]
    await asyncio.sleep(0)


async def test_new_tools_are_reported_to_every_listener(caplog: pytest.LogCaptureFixture) -> None:
    one, told = manager(red="connected"), list[list[str]]()

    def fail(tools: list[Any]) -> None:
        tools.clear()  # each listener gets its own list
        raise ValueError("the host's mistake")

    one.add_tools_listener(fail)
    stop = one.add_tools_listener(lambda tools: told.append([tool.name for tool in tools]))
    one.upstreams["red"].lists.put(ListKind.TOOLS, raw_items([{"name": "a"}, {"name": "b"}]))
    assert told == []
    await asyncio.sleep(0)
    assert told == [["mcp_red_a", "mcp_red_b"]]
    assert [tool.name for tool in one.get_tools()] == ["mcp_red_a", "mcp_red_b"]
    assert "a listener failed" in caplog.text
    stop()
    await one.disconnect_server("red")
    assert (len(told), one.get_tools()) == (1, [])


async def test_servers_can_be_added_without_waiting_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def open_client(*_: Any) -> ScriptedClient:
        return ScriptedClient()

    monkeypatch.setattr(upstream_module, "open_client", open_client)
    one, told = MCPManager(), list[StatusEvent]()
    one.add_status_listener(told.append)
    one.add_servers({"red": spec("red"), "blue": spec("blue")})
    red = one.upstreams["red"]
    assert told == [StatusEvent(kind="connecting", names=("red", "blue"))]
    assert one.pending_connections == {"red", "blue"}
    one.add_servers({"red": spec("other")})
    assert one.upstreams["red"] is red
    async with asyncio.timeout(5):
        await one.settled()
    assert one.get_connected_servers() == ["blue", "red"]
    await one.close()
    with pytest.raises(ConfigError, match="the manager is closed"):
        one.add_servers({"green": spec("green")})


async def test_a_closed_manager_connects_no_servers() -> None:
    one = manager(red="connected")
    client = client_of(one, "red")
    await one.close()
    assert client.closed == 1
    report = await one.connect_servers({"x": {"command": "true"}})
    assert [error["error"] for error in report.errors] == ['server "x": the manager is closed']
    with pytest.raises(ConfigError, match="the manager is closed"):
        await one.watch()
