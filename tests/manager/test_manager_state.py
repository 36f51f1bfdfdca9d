"""What a manager knows of its servers, and what others hear when they go."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import Source
from fairlead.errors import ConfigError, RpcError
from fairlead.manager import MCPManager
from fairlead.manager.server_spec import ServerSpec
from fairlead.manager.status_events import StatusEvent

STATES = ("idle", "connecting", "connected", "reconnecting", "suspended", "failed", "stopped")


class FakeServer:
    """A supervisor in some state."""

    def __init__(self, name: str, state: str, *, loading: bool = False) -> None:
        self.name, self.state, self.loading = name, state, loading
        self.client: Any = SimpleNamespace(name=name) if state == "connected" else None
        self.generation, self.latency, self.tools, self.error = 2, 0.5, None, None
        self.settled = asyncio.Event()
        self.settled.set()
        self.refreshed = 0
        self.halted = 0

    async def ready(self) -> Any:
        return SimpleNamespace(name=self.name)

    async def refresh(self) -> None:
        self.refreshed += 1
        if self.name == "broken":
            raise RpcError(5, "no")

    def halt(self) -> "asyncio.Task[None]":
        self.halted += 1
        return asyncio.ensure_future(asyncio.sleep(0))


def manager(*servers: FakeServer) -> MCPManager:
    one = MCPManager()
    for server in servers:
        given: Any = server
        one._supervisors[server.name] = given
        one._specs[server.name] = ServerSpec(
            entry=MCPStdioServerConfig(command="x"), source=Source(path=f"{server.name}.json")
        )
    return one


async def test_servers_are_told_apart_by_their_states() -> None:
    servers = [FakeServer(state, state) for state in STATES]
    servers += [FakeServer(f"loading {state}", state, loading=True) for state in STATES]
    one = manager(*servers)
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
    assert one.get_all_server_names() == sorted(server.name for server in servers)


async def test_a_connection_says_whose_it_is() -> None:
    one = manager(FakeServer("red", "connected"), FakeServer("blue", "idle"))
    found = one.get_connection("red")
    assert found is not None
    assert (found.name, found.generation, found.latency) == ("red", 2, 0.5)
    assert found.source.path == "red.json"
    assert one.get_connection("blue") is None
    assert (await one.wait_for_connection("blue")).client.name == "blue"  # type: ignore[attr-defined]
    source = one.get_source("red")
    assert source is not None
    assert source.path == "red.json"
    assert one.sources["blue"].path == "blue.json"
    for missing in (one.get_source, one.get_server_config, one.get_configured, one.remembered):
        assert missing("green") is None
    entry = one.get_server_config("red")
    assert entry is not None
    assert entry.type == "stdio"


async def test_a_server_that_is_not_there_is_named_with_those_that_are() -> None:
    one = manager(FakeServer("red", "connected"), FakeServer("blue", "idle"))
    with pytest.raises(ConfigError, match="There is no server 'green'; there are: blue, red"):
        await one.reconnect_server("green")
    with pytest.raises(ConfigError, match="there are: none"):
        await manager().refresh_server_tools("green")


async def test_servers_that_go_are_forgotten_and_told_of_together() -> None:
    red, blue = FakeServer("red", "connected"), FakeServer("blue", "connected")
    one, told = manager(red, blue, FakeServer("green", "idle")), []
    stop = one.add_status_listener(told.append)
    await one.disconnect_server("missing")
    assert told == []
    await one.disconnect_server("green")
    await one.disconnect_all()
    assert told == [
        StatusEvent(kind="disconnected", names=("green",), path="green.json"),
        StatusEvent(kind="disconnected", names=("red", "blue")),
    ]
    assert (one.get_all_server_names(), one.sources, red.halted, blue.halted) == ([], {}, 1, 1)
    stop()
    one._listeners.report_disconnected(["x"], None)
    assert len(told) == 2


async def test_all_that_are_connected_are_listed_again() -> None:
    servers = [FakeServer(name, "connected") for name in ("red", "broken")]
    away = FakeServer("away", "failed")
    await manager(*servers, away).refresh_all_tools()
    assert [one.refreshed for one in (*servers, away)] == [1, 1, 0]


async def test_what_a_server_that_has_gone_says_does_not_count() -> None:
    red = FakeServer("red", "connected")
    one, told = manager(red), []
    one.add_status_listener(told.append)
    other: Any = FakeServer("red", "failed")
    one._changed(other)
    assert told == []
    given: Any = red
    one._changed(given)
    one._changed(given)
    assert [(event.kind, event.path) for event in told] == [("connected", "red.json")]
    await asyncio.sleep(0)


async def test_a_closed_manager_takes_nothing_more() -> None:
    one = manager(red := FakeServer("red", "connected"))
    await one.close()
    assert red.halted == 1
    report = await one.connect_servers({"x": {"command": "true"}})
    assert [error["error"] for error in report.errors] == ["the manager is closed"]
    with pytest.raises(ConfigError, match="the manager is closed"):
        await one.watch()
