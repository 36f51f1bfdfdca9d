"""The servers of a program, which share a start limit and events."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from fairlead import MCPClientConfig
from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import Source
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import ConnectFailed
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream import upstream as upstream_module
from fairlead.upstream.status_events import StatusEvent
from fairlead.upstream.upstream import Upstream
from fairlead.upstream.upstream_registry import UpstreamRegistry
from tests.support.scripted_upstream import ScriptedClient
from tests.support.virtual_time import VirtualTime

SETTINGS = UpstreamSettings(health_interval=0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Record the arguments of opened clients; the server "broken" cannot be connected."""
    opened: list[tuple[Any, ...]] = []

    async def open_client(*arguments: Any) -> ScriptedClient:
        opened.append(arguments)
        if arguments[0] == "broken":
            raise ConnectFailed("no such file")
        return ScriptedClient()

    monkeypatch.setattr(upstream_module, "open_client", open_client)
    return opened


def spec(name: str, *, lazy: bool = False, **more: Any) -> ServerSpec:
    entry = MCPStdioServerConfig(command=name, lazy=lazy)
    return ServerSpec(entry=entry, source=Source(path=f"{name}.json"), **more)


def add(registry: UpstreamRegistry, *names: str) -> list[Upstream]:
    upstreams = [registry.add(name, spec(name)) for name in names]
    for upstream in upstreams:
        upstream.start()
    return upstreams


async def settled(*upstreams: Upstream) -> None:
    async with asyncio.timeout(100):
        for upstream in upstreams:
            await upstream.settled.wait()


async def test_servers_are_looked_up_by_name(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry = UpstreamRegistry(SETTINGS)
    red, blue, broken = upstreams = add(registry, "red", "blue", "broken")
    await settled(*upstreams)
    assert dict(registry) == {"red": red, "blue": blue, "broken": broken}
    assert (registry["red"], registry.get("blue"), registry.get("green")) == (red, blue, None)
    assert (len(registry), "red" in registry, "green" in registry) == (3, True, False)
    assert registry.connected() == ["blue", "red"]
    with pytest.raises(KeyError):
        registry["green"]
    await registry.close()
    assert dict(registry) == {}


async def test_adding_a_server_does_not_connect_it_before_it_is_started(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry, events = UpstreamRegistry(SETTINGS), list[StatusEvent]()
    registry.add_status_listener(events.append)
    upstream = registry.add("red", spec("red"))
    await asyncio.sleep(10)
    assert (upstream.state, opened, events) == ("idle", [], [])
    await registry.close()


async def test_all_servers_of_a_registry_share_the_start_limit() -> None:
    registry = UpstreamRegistry(SETTINGS, max_starts=1)
    red, blue = registry.add("red", spec("red")), registry.add("blue", spec("blue"))
    assert (red.starts, blue.starts) == (registry.starts, registry.starts)
    assert registry.starts._free == 1


async def test_settings_of_a_server_override_the_settings_of_the_registry() -> None:
    registry = UpstreamRegistry(SETTINGS)
    red = registry.add("red", spec("red"))
    blue = registry.add("blue", spec("blue", settings={"share": "all", "connect_timeout": 5.0}))
    assert red.settings == SETTINGS
    assert blue.settings == structs.replace(SETTINGS, share="all", connect_timeout=5.0)
    assert UpstreamRegistry().settings == UpstreamSettings()


@pytest.mark.parametrize(
    ("entry", "given", "lazy"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
async def test_a_server_is_lazy_if_its_entry_or_the_caller_requests_it(
    entry: bool, given: bool, lazy: bool
) -> None:
    registry = UpstreamRegistry(SETTINGS)
    assert registry.add("red", spec("red", lazy=entry), lazy=given)._lazy is lazy


@pytest.mark.parametrize("for_client", [True, False])
async def test_servers_get_the_lists_and_callbacks_of_their_registry(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]], for_client: bool
) -> None:
    def on_roots() -> list[str]:
        return []

    config = MCPClientConfig(name="host")
    registry = UpstreamRegistry(
        SETTINGS,
        kinds=iter((ListKind.TOOLS, ListKind.PROMPTS)),
        for_client=for_client,
        config=config,
        callbacks={"on_roots": on_roots},
    )
    upstreams = add(registry, "red", "blue")
    await settled(*upstreams)
    for upstream, arguments in zip(upstreams, opened, strict=True):
        assert upstream.lists.kinds == (ListKind.TOOLS, ListKind.PROMPTS)
        assert upstream.lists.for_client is for_client
        assert (arguments[3], arguments[4]["on_roots"]) == (config, on_roots)
    await registry.close()


async def test_all_lists_are_requested_by_default() -> None:
    assert UpstreamRegistry().add("red", spec("red")).lists.kinds == tuple(ListKind)


async def test_state_changes_of_servers_are_reported(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry, events, changed = UpstreamRegistry(SETTINGS), list[StatusEvent](), list[Any]()
    end_changes = registry.add_change_listener(
        lambda one: changed.append((one.name, one.state, one.tools is not None))
    )
    end_events = registry.add_status_listener(events.append)
    await settled(*add(registry, "red", "broken"))
    assert [event for event in events if event.names == ("red",)] == [
        StatusEvent(kind="connecting", names=("red",), path="red.json"),
        StatusEvent(kind="connected", names=("red",), path="red.json"),
    ]
    assert [event for event in events if event.names == ("broken",)] == [
        StatusEvent(kind="connecting", names=("broken",), path="broken.json"),
        StatusEvent(kind="failed", names=("broken",), error="no such file", path="broken.json"),
    ]
    assert [one[1:] for one in changed if one[0] == "red"] == [
        ("connecting", False),
        ("connecting", False),  # the connection is open, and the lists are being requested
        *[("connecting", True)] * len(ListKind),
        ("connected", True),
    ]
    end_changes()
    end_events()
    count = len(changed)
    await registry["red"].reconnect()
    assert (len(events), len(changed)) == (4, count)
    await registry.close()


async def test_notifications_of_all_servers_are_reported(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry, heard = UpstreamRegistry(SETTINGS), list[Any]()
    remove = registry.add_notification_listener(lambda *told: heard.append(told))
    await settled(*add(registry, "red", "blue"))
    red, blue = (arguments[4]["on_notification"] for arguments in opened)
    red("notifications/message", {"data": 1})
    blue("notifications/progress", {})
    remove()
    red("notifications/message", {"data": 2})
    assert heard == [
        ("red", "notifications/message", {"data": 1}),
        ("blue", "notifications/progress", {}),
    ]
    await registry.close()


async def test_resolved_entries_are_reported_before_each_connection(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry, reported = UpstreamRegistry(SETTINGS), list[Any]()
    filled_in = MCPStdioServerConfig(command="red", env={"TOKEN": "secret"})

    async def resolve() -> MCPStdioServerConfig:
        return filled_in

    end = registry.on_resolved(lambda entry: reported.append((entry, len(opened))))
    upstream = registry.add("red", spec("red", resolve=resolve))
    upstream.start()
    await upstream.ready()
    await upstream.reconnect()
    assert reported == [(filled_in, 0), (filled_in, 1)]
    end()
    await upstream.reconnect()
    assert len(reported) == 2
    await registry.close()


async def test_servers_that_are_removed_together_cause_one_event(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry, events = UpstreamRegistry(SETTINGS), list[StatusEvent]()
    upstreams = add(registry, "red", "blue", "green")
    await settled(*upstreams)
    registry.add_status_listener(events.append)
    assert registry.remove(["missing"]) == []
    assert events == []
    ends = registry.remove(["green", "missing"])
    assert registry.connected() == ["blue", "red"]
    ends += registry.remove(["blue", "red"])
    assert [one.state for one in upstreams] == ["stopped"] * 3
    await asyncio.wait(ends)
    assert [one.client for one in upstreams] == [None] * 3
    assert events == [
        StatusEvent(kind="disconnected", names=("green",), path="green.json"),
        StatusEvent(kind="disconnected", names=("blue", "red")),
    ]
    await registry.close()
    assert len(events) == 2


async def test_a_server_that_was_removed_or_replaced_is_not_reported(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry, events, changed = UpstreamRegistry(SETTINGS), list[StatusEvent](), list[Any]()
    (old,) = add(registry, "red")
    await settled(old)
    ends = registry.remove(["red"])
    registry.add_change_listener(changed.append)
    registry.add_status_listener(events.append)
    old._changed(old)
    new = registry.add("red", spec("red"))
    old._changed(old)
    assert (changed, events) == ([], [])
    new._changed(new)
    assert (changed, [event.kind for event in events]) == ([new], ["disconnected"])
    await asyncio.wait(ends)
    await registry.close()


async def test_closing_waits_ten_seconds_for_servers_that_do_not_stop(
    virtual_time: VirtualTime, opened: list[tuple[Any, ...]]
) -> None:
    registry, ended = UpstreamRegistry(SETTINGS), asyncio.Event()
    upstreams = add(registry, "red", "blue")
    await settled(*upstreams)
    client: Any = upstreams[0].client
    client.ends = ended.wait
    began = virtual_time.now
    await registry.close()
    assert virtual_time.now == began + 10.0
    assert [len(one._ending) for one in upstreams] == [2, 0]
    ended.set()
    await asyncio.wait(upstreams[0]._ending)
