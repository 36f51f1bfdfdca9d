"""Servers of a gateway without a manager: starting, capabilities, and remembered tools."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.client.connection.era_cache import known_eras
from fairlead.client.server_entry import MCPHttpServerConfig, MCPStdioServerConfig
from fairlead.config.server_spec import ServerSpec
from fairlead.errors import ConnectFailed
from fairlead.gateway.backends import gateway_servers
from fairlead.gateway.backends.gateway_servers import GatewayServers, ServerSource
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.manager import MCPManager
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.relay.relay_settings import RelaySettings
from fairlead.upstream import upstream as upstream_module
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from fairlead.upstream.status_events import StatusEvent
from tests.support.scripted_upstream import ScriptedClient
from tests.support.virtual_time import VirtualTime

TOOLS = [{"name": "read", "annotations": {"readOnlyHint": True}}, {"name": "write"}]
LAST_TIME = [{"name": "old"}]


def process(name: str = "red", *, lazy: bool = False, **more: Any) -> ServerSpec:
    return ServerSpec(entry=MCPStdioServerConfig(command=name, lazy=lazy), **more)


def http(*, lazy: bool = False) -> ServerSpec:
    return ServerSpec(entry=MCPHttpServerConfig(url="http://127.0.0.1:1/mcp", lazy=lazy))


class Place:
    """The servers of a gateway with scripted connections; "broken" cannot be connected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[tuple[Any, ...]] = []
        self.clients: list[ScriptedClient] = []
        self.events: list[StatusEvent] = []
        self.servers: GatewayServers
        monkeypatch.setattr(upstream_module, "open_client", self._open)

    def make(self, relay: RelaySettings | None = None, **options: Any) -> GatewayServers:
        given = {name: options.pop(name) for name in ("cache", "lazy") if name in options}
        settings = GatewaySettings(relay=relay or RelaySettings(health_interval=0), **options)
        self.servers = GatewayServers(settings, **given)
        self.servers.upstreams.add_status_listener(self.events.append)
        return self.servers

    async def _open(self, *arguments: Any) -> ScriptedClient:
        self.opened.append(arguments)
        if arguments[0] == "broken":
            raise ConnectFailed("no such file")
        self.clients.append(client := ScriptedClient())
        return client

    async def add(self, **specs: ServerSpec) -> None:
        """Add servers, and wait until they are connected or have failed."""
        self.servers.add_servers(specs)
        async with asyncio.timeout(100):
            for name in specs:
                await self.servers.upstreams[name].settled.wait()

    @property
    def states(self) -> dict[str, str]:
        return {name: upstream.state for name, upstream in self.servers.upstreams.items()}

    @property
    def happened(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(event.kind, event.names) for event in self.events]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, virtual_time: VirtualTime) -> Place:
    return Place(monkeypatch)


@pytest.fixture
def cache() -> Iterator[MCPToolCache]:
    """Return a cache with the tools of "red" and of two lazy servers."""
    cache = MCPToolCache(MemoryStore())
    cache.set("red", process().entry, LAST_TIME)
    cache.set("lazy", process(lazy=True).entry, LAST_TIME)
    cache.set("web", http(lazy=True).entry, LAST_TIME)
    yield cache
    known_eras.clear()


async def test_added_servers_are_connected_and_closing_stops_them(place: Place) -> None:
    servers = place.make()
    await place.add(red=process(), web=http(), broken=process())
    assert place.states == {"red": "connected", "web": "connected", "broken": "failed"}
    assert place.happened[0] == ("connecting", ("red", "web", "broken"))
    assert sorted(place.happened[1:]) == [
        ("connected", ("red",)),
        ("connected", ("web",)),
        ("failed", ("broken",)),
    ]
    await servers.close()
    assert place.states == {}
    assert [client.closed for client in place.clients] == [1, 1]


async def test_the_lists_of_all_servers_are_stored(place: Place) -> None:
    servers = place.make()
    await place.add(red=process())
    assert set(servers.upstreams["red"].lists.items) == set(ListKind)
    # calls are forwarded by the relay and do not use this client
    assert place.clients[0].learned == []
    await servers.close()


async def test_connecting_servers_with_existing_names_has_no_effect(place: Place) -> None:
    servers = place.make()
    await place.add(red=process())
    first = servers.upstreams["red"]
    place.events.clear()
    await place.add(red=process("other"), blue=process())
    assert (servers.upstreams["red"], first.state) == (first, "connected")
    assert place.happened == [("connecting", ("blue",)), ("connected", ("blue",))]
    await servers.close()


@pytest.mark.parametrize(
    ("spec", "name", "remembers", "state"),
    [
        (process(), "red", True, "connected"),
        (process(lazy=True), "lazy", True, "idle"),
        (process(lazy=True), "blue", True, "connected"),
        (process(lazy=True), "lazy", False, "connected"),
        (http(lazy=True), "web", True, "idle"),
    ],
    ids=["eager", "known", "unknown", "no cache", "http"],
)
async def test_only_a_lazy_server_with_remembered_tools_is_started_on_first_use(
    place: Place, cache: MCPToolCache, spec: ServerSpec, name: str, remembers: bool, state: str
) -> None:
    servers = place.make(cache=cache if remembers else None)
    await place.add(**{name: spec})
    assert place.states == {name: state}
    started = [("connecting", (name,)), ("connected", (name,))]
    assert place.happened == ([] if state == "idle" else started)
    await servers.upstreams[name].ready()
    assert place.states == {name: "connected"}
    await servers.close()


@pytest.mark.parametrize(
    ("lazy", "spec", "state"),
    [
        (True, process(), "idle"),
        (True, http(), "connected"),
        (False, process(), "connected"),
        (False, process(lazy=True), "idle"),
    ],
    ids=["process", "http", "eager", "by its entry"],
)
async def test_only_idle_processes_of_lazy_servers_are_stopped(
    place: Place, lazy: bool, spec: ServerSpec, state: str
) -> None:
    servers = place.make(RelaySettings(idle_close=50.0, health_interval=0), lazy=lazy)
    await place.add(red=spec)
    await asyncio.sleep(49)
    assert place.states == {"red": "connected"}
    await asyncio.sleep(2)
    assert place.states == {"red": state}
    await servers.close()


async def test_a_lazy_gateway_starts_its_servers_immediately(
    place: Place, cache: MCPToolCache
) -> None:
    servers = place.make(cache=cache, lazy=True)
    await place.add(red=process())
    assert place.states == {"red": "connected"}
    await servers.close()


async def test_limits_in_the_gateway_settings_apply_to_its_connections(place: Place) -> None:
    relay = RelaySettings(hang_timeout=2.0, connect_timeout=7.0, health_interval=0)
    servers = place.make(relay, max_list_bytes=1000, max_list_items=10)
    await place.add(red=process(), blue=process(settings={"connect_timeout": 9.0}))
    red, blue = servers.upstreams["red"], servers.upstreams["blue"]
    assert (servers.upstreams.settings, red.settings) == (relay, relay)
    assert (blue.settings.connect_timeout, blue.settings.hang_timeout) == (9.0, 2.0)
    configs = [arguments[3] for arguments in place.opened]
    assert {(one.max_list_bytes, one.max_list_items) for one in configs} == {(1000, 10)}
    await servers.close()


# Capabilities


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        ((), {}),
        (("elicitation",), {"on_elicit": True, "elicit_url": False}),
        (("elicitation.form",), {"on_elicit": True, "elicit_url": False}),
        (("elicitation.url",), {"on_elicit": True, "elicit_url": True}),
        (("sampling",), {"on_sample": True, "sample_tools": False}),
        (("sampling", "sampling.tools"), {"on_sample": True, "sample_tools": True}),
        (("roots",), {"on_roots": True}),
        (
            ("roots", "sampling", "elicitation"),
            {
                "on_roots": True,
                "on_sample": True,
                "on_elicit": True,
                "elicit_url": False,
                "sample_tools": False,
            },
        ),
        (("vendor/x",), {}),
    ],
)
async def test_a_shared_connection_declares_the_capabilities_in_the_settings(
    place: Place, capabilities: tuple[str, ...], declared: dict[str, bool]
) -> None:
    relay = RelaySettings(share="all", capabilities=capabilities, health_interval=0)
    servers = place.make(relay)
    await place.add(red=process())
    given = dict(place.opened[0][4])
    del given["on_notification"]
    callbacks = {
        name: one if isinstance(one, bool) else one is not None for name, one in given.items()
    }
    assert callbacks == {"on_roots": False, **declared}
    await servers.close()


@pytest.mark.parametrize("share", ["alike", "session"])
async def test_a_connection_that_is_not_shared_declares_no_capabilities(
    place: Place, share: Any
) -> None:
    capabilities = ("elicitation", "sampling", "roots")
    servers = place.make(RelaySettings(share=share, capabilities=capabilities, health_interval=0))
    await place.add(red=process())
    given = dict(place.opened[0][4])
    del given["on_notification"]
    await servers.close()
    assert given == {"on_roots": None}


async def test_the_input_callbacks_of_a_shared_connection_raise_an_assertion_error(
    place: Place,
) -> None:
    capabilities = ("elicitation", "sampling", "roots")
    servers = place.make(RelaySettings(share="all", capabilities=capabilities, health_interval=0))
    await place.add(red=process())
    for name in ("on_elicit", "on_sample", "on_roots"):
        with pytest.raises(AssertionError, match="go to a client of the gateway"):
            place.opened[0][4][name]({"message": "who?"})
    await servers.close()


# Memory


async def test_remembered_tools_are_used_until_the_server_has_listed_its_tools(
    place: Place, cache: MCPToolCache
) -> None:
    servers = place.make(cache=cache)
    assert servers.remembered("red") is None
    servers.add_servers({"red": process(), "blue": process()})
    assert (servers.remembered("red"), servers.remembered("blue")) == (LAST_TIME, None)
    await servers.upstreams["red"].settled.wait()
    assert servers.remembered("red") == TOOLS
    await servers.close()
    assert cache.get("red", process().entry) == TOOLS


async def test_remembered_tools_of_a_changed_entry_are_ignored(
    place: Place, cache: MCPToolCache
) -> None:
    servers = place.make(cache=cache)
    servers.add_servers({"red": process("changed")})
    assert servers.remembered("red") is None
    await servers.close()


async def test_removing_a_server_forgets_its_tools_except_in_the_cache(
    place: Place, cache: MCPToolCache
) -> None:
    servers = place.make(cache=cache)
    await place.add(red=process(), blue=process())
    await servers.disconnect_server("red")
    assert (place.states, servers.remembered("red")) == ({"blue": "connected"}, None)
    assert sorted(client.closed for client in place.clients) == [0, 1]
    assert place.happened[-1] == ("disconnected", ("red",))
    await servers.disconnect_server("red")  # removed before
    servers.add_servers({"red": process()})
    assert servers.remembered("red") == TOOLS
    await servers.close()


async def test_removing_a_server_waits_a_limited_time_for_it_to_stop(
    place: Place, virtual_time: VirtualTime
) -> None:
    servers = place.make()
    await place.add(red=process())
    place.clients[0].ends = lambda: asyncio.sleep(25)
    began = virtual_time.now
    await servers.disconnect_server("red")
    assert virtual_time.now == began + 10.0
    await asyncio.sleep(30)


class SlowStore(MemoryStore):
    """A store that delays writes until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = threading.Event()

    def write(self, key: str, value: bytes) -> None:
        assert self.allowed.wait(10)
        super().write(key, value)


async def test_closing_waits_until_the_tools_are_written_to_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, store = Place(monkeypatch), SlowStore()
    servers = place.make(cache=MCPToolCache(store))
    await place.add(red=process())
    threading.Timer(0.05, store.allowed.set).start()
    await servers.close()
    assert MCPToolCache(store).get("red", process().entry) == TOOLS
    known_eras.clear()


@pytest.mark.parametrize("remembers", [True, False])
async def test_server_eras_are_stored_next_to_the_tool_cache(
    monkeypatch: pytest.MonkeyPatch, cache: MCPToolCache, remembers: bool
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(known_eras, "keep", kept.append)
    GatewayServers(GatewaySettings(), cache=cache if remembers else None)
    assert [type(one).__name__ for one in kept] == (["CachedEraStore"] if remembers else [])
    for store in kept:
        store.save("x", True)
        assert gateway_servers.CachedEraStore(cache.others).load() == {"x": True}


async def test_a_manager_has_the_server_methods_that_a_gateway_calls() -> None:
    async with MCPManager() as manager:
        sources: list[ServerSource] = [manager, GatewayServers(GatewaySettings())]
        for name in ("add_servers", "disconnect_server", "remembered", "close"):
            assert all(callable(getattr(source, name)) for source in sources)
        assert len({type(source.upstreams) for source in sources}) == 1
