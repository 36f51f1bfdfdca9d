"""The status of a gateway, complete for its operator and limited for clients."""

import asyncio
import resource
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from fairlead.client.server_entry import read_entry
from fairlead.config.found_server import Source
from fairlead.config.server_spec import ServerSpec
from fairlead.errors import ConnectFailed, LocalResourceError, LoginRequired
from fairlead.gateway import Gateway, GatewaySettings
from fairlead.gateway.admin import status
from fairlead.gateway.admin.status import GatewayStatus
from fairlead.gateway.backends.gateway_servers import GatewayServers
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.observe.timestamps import Timestamp
from fairlead.protocol.caller import ANONYMOUS, principal_from
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.server import MemorySessionStore
from fairlead.upstream.memory.tool_cache import MCPToolCache, MemoryStore
from fairlead.upstream.starts.start_limiter import StartLimiter
from tests.support.catalog_items import tools
from tests.support.gateway_servers import LIMIT, hanging, joining, program, serving, until
from tests.support.virtual_time import VirtualTime

ADA = principal_from("ada")
PART = View(servers=("red",), deny=("red_secret",))


CONNECTION = {"default": True, "sessions": 2}


class FakeUpstream:
    """The state of one server."""

    def __init__(self, state: str = "idle", source: Source | None = None, **about: Any) -> None:
        self.status = self.state = state
        self.since = Timestamp(time.monotonic(), 1000.25)
        self.revision: Revision | None = about.get("revision")
        key = {"principal": "ada", "default": False, "losses": 6, "seconds": 9.0}
        self.suspended = [key] * about.get("suspended", 0)
        self.error: Exception | None = about.get("error")
        self.latency: float | None = about.get("latency")
        entry = SimpleNamespace(type=about.get("transport", "stdio"))
        self.spec = SimpleNamespace(source=source or Source(), entry=entry)

    def describe_suspended(self) -> list[dict[str, Any]]:
        return self.suspended

    def describe_connections(self) -> list[dict[str, Any]]:
        return [] if self.revision is None else [CONNECTION]


class Upstreams(dict[str, FakeUpstream]):
    """A connected server, a failed one, and an idle one."""

    def __init__(self) -> None:
        self.starts = StartLimiter()
        self["red"] = FakeUpstream(
            "connected",
            Source(provider="p", provider_name="Program", path="f"),
            revision=NEWEST,
            suspended=1,
            latency=0.01234,
        )
        self["red#2"] = FakeUpstream()
        error = ConnectFailed("no /secret/file", public="is not there")
        self["blue"] = FakeUpstream("failed", transport="http", error=error)

    def connected(self) -> list[str]:
        return [name for name, one in self.items() if one.status == "connected"]


class Registry:
    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams
        red, blue = self._member("red", "red", "red#2"), self._member("blue", "blue")
        self.members = {"red": red, "blue": blue}

    def _member(self, name: str, *names: str) -> Any:
        upstreams = [self._upstreams[own] for own in names]
        for own, upstream in zip(names, upstreams, strict=True):
            upstream.name = own
            upstream.health = SimpleNamespace(
                latency=0.5, calls=7, errors=2, breaker=SimpleNamespace(state="closed")
            )
        return SimpleNamespace(
            name=name,
            names=list(names),
            upstreams=upstreams,
            error=None,
            awaits_introduction=True,
            known=False,
            began=time.monotonic(),
        )

    def within(self, view: View) -> list[Any]:
        return [one for one in self.members.values() if view.includes(one.name)]


def gateway(**views: View) -> tuple[GatewayStatus, Registry]:
    catalog = MergedCatalog()
    catalog.put("red", ListKind.TOOLS, tools("log", "secret"))
    upstreams = Upstreams()
    registry = Registry(upstreams)
    clients = [SimpleNamespace(principal=one) for one in (ADA, ADA, ANONYMOUS)]
    parts: Any = {"upstreams": upstreams, "registry": registry, "clients": clients}
    shown = GatewayStatus(
        {"name": "x"},
        catalog=catalog,
        views=ClientViews(views, View.everything()),
        parked=[1, 2],  # type: ignore[arg-type]
        **parts,
    )
    return shown, registry


def test_the_operator_gets_the_status_with_all_details() -> None:
    found = gateway()[0].full()
    assert (found["name"], found["clients"], found["parked"]) == ("x", 3, 2)
    assert found["uptime"] >= 0
    assert found["counts"]["tools"] == 2
    blue, red, second = found["servers"]
    assert [one["name"] for one in found["servers"]] == ["blue", "red", "red#2"]
    assert red == {
        "name": "red",
        "server": "red",
        "status": "connected",
        "since": "1970-01-01T00:16:40Z",
        "transport": "stdio",
        "revision": "2026-07-28",
        "era": "stateless",
        "tools": 2,
        "latency_ms": 500.0,
        "connect_ms": 12.3,
        "calls": 7,
        "errors": 2,
        "breaker": "closed",
        "connections": [CONNECTION],
        "suspended": [{"principal": "ada", "default": False, "losses": 6, "seconds": 9.0}],
        "source": "Program",
        "path": "f",
        "error": None,
        "remedy": None,
    }
    assert (blue["remedy"], second["remedy"]) == ("fairlead mcp reconnect blue", None)
    assert (blue["status"], blue["transport"], blue["revision"]) == ("failed", "http", None)
    assert (blue["era"], blue["source"], blue["path"], blue["connect_ms"]) == (None,) * 4
    assert "/secret/file" in blue["error"]
    assert (second["status"], second["error"], second["connect_ms"]) == ("idle", None, None)
    assert (blue["connections"], second["connections"]) == ([], [])


def test_the_status_of_a_server_without_a_login_contains_no_reconnect_command() -> None:
    shown, registry = gateway()
    registry.members["blue"].upstreams[0].error = LoginRequired("run `fairlead login blue`")
    assert shown.full()["servers"][0]["remedy"] is None


def test_the_uptime_is_reported_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(status.time, "time", lambda: now)
    shown, *_ = gateway()
    now = 1012.345
    assert shown.full()["uptime"] == 12.3


def test_a_restricted_status_shows_only_the_public_reason_of_an_error() -> None:
    (blue,) = gateway(ada=View(servers=("blue",)))[0].public(ADA)["servers"]
    assert blue["error"] == "is not there"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, None), (0.0, 0.0), (0.01234, 12.3), (0.00004, 0.0), (2, 2000)]
)
def test_latencies_are_reported_in_milliseconds(seconds: float | None, shown: float | None) -> None:
    assert status._milliseconds(seconds) == shown


def test_the_status_of_a_server_shows_the_error_of_a_failed_list() -> None:
    shown, registry = gateway()
    for member in registry.members.values():
        member.error = ConnectFailed("x", public="listing failed")
    errors = {one["name"]: one["error"] for one in shown.public(ANONYMOUS)["servers"]}
    assert errors == {"red": "listing failed", "red#2": None, "blue": "is not there"}


def test_an_unrestricted_client_does_not_get_operator_details() -> None:
    found = gateway()[0].public(ADA)
    assert (found["clients"], found["parked"]) == (3, 2)
    blue, red, _ = found["servers"]
    assert (blue["error"], red["path"], red["calls"]) == ("is not there", None, 7)
    assert [one["connections"] for one in found["servers"]] == [[], [], []]
    assert [one["suspended"] for one in found["servers"]] == [
        [],
        [{"default": False, "losses": 6, "seconds": 9.0}],
        [],
    ]


def test_a_restricted_client_gets_no_data_about_other_clients() -> None:
    found = gateway(ada=PART)[0].public(ADA)
    assert (found["clients"], found["parked"], found["counts"]["tools"]) == (2, None, 1)
    assert [one["name"] for one in found["servers"]] == ["red", "red#2"]
    assert [one["path"] for one in found["servers"]] == [None, None]
    assert [one["connections"] for one in found["servers"]] == [[], []]
    assert [one["suspended"] for one in found["servers"]] == [[], []]
    for one in found["servers"]:
        assert (one["tools"], one["calls"], one["errors"], one["latency_ms"]) == (
            *(1, None, None, None),
        )


@pytest.mark.parametrize(
    ("view", "servers"), [(View.everything(), 3), (PART, 2), (View(servers=("blue",)), 1)]
)
def test_health_counts_the_servers_in_the_view(view: View, servers: int) -> None:
    shown, _ = gateway(ada=view)
    connected = 0 if view.servers == ("blue",) else 1
    assert shown.health(ADA) == {"status": "ok", "servers": servers, "connected": connected}


@pytest.mark.parametrize(
    ("view", "degraded"), [(View.everything(), ["red#2", "blue"]), (PART, ["red#2"])]
)
def test_readiness_names_the_unusable_servers_in_the_view(view: View, degraded: list[str]) -> None:
    shown, registry = gateway(ada=view)
    registry.members["red"].upstreams[1].status = "reconnecting"
    assert shown.readiness(ADA) == {"ready": False, "degraded": degraded, "shortage": None}


async def test_a_gateway_is_ready_without_its_slow_servers_after_five_seconds(
    virtual_time: VirtualTime,
) -> None:
    shown, registry = gateway()
    registry.members["red"].awaits_introduction = False
    await asyncio.sleep(4.999)
    assert not shown.is_ready
    await asyncio.sleep(0.001)
    assert shown.is_ready


def settled(*states: str) -> tuple[GatewayStatus, Registry]:
    """Return the status of a gateway whose servers have started, with these states."""
    shown, registry = gateway()
    for member in registry.members.values():
        member.awaits_introduction = False
    for upstream, state in zip(registry._upstreams.values(), states, strict=True):
        upstream.status = state
    return shown, registry


@pytest.mark.parametrize(
    ("states", "ready"),
    [
        (("connected", "failed", "failed"), True),
        (("idle", "failed", "failed"), True),  # starts when it is used
        (("failed", "failed", "failed"), False),
        (("suspended", "suspended", "failed"), False),
        (("connecting", "connecting", "connecting"), False),
        (("failed", "connected", "failed"), True),  # another replica
    ],
)
def test_a_gateway_is_ready_if_at_least_one_server_is_usable(
    states: tuple[str, ...], ready: bool
) -> None:
    shown, _ = settled(*states)
    assert shown.is_ready is ready


def test_a_connected_server_without_lists_is_not_usable_until_it_has_listed_items() -> None:
    shown, registry = settled("connected", "failed", "failed")
    red = registry.members["red"]
    red.error = ConnectFailed("x", public="listing failed")
    assert not shown.is_ready
    red.known = True  # a later list failed, and the earlier one is still offered
    assert shown.is_ready


async def test_a_lost_server_counts_as_usable_for_five_seconds(virtual_time: VirtualTime) -> None:
    shown, _ = settled("reconnecting", "failed", "failed")
    await asyncio.sleep(4.999)
    assert shown.is_ready
    await asyncio.sleep(0.001)
    assert not shown.is_ready


async def test_adding_a_server_does_not_make_a_ready_gateway_unready(
    virtual_time: VirtualTime,
) -> None:
    shown, registry = settled("connected", "idle", "failed")
    assert shown.is_ready
    registry.members["blue"].awaits_introduction = True
    registry.members["blue"].began = time.monotonic()
    assert shown.is_ready


@pytest.mark.parametrize("lazy", [False, True])
async def test_tools_of_the_last_run_make_a_gateway_ready_only_if_the_server_is_lazy(
    lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "STARTUP_GRACE", 0.0)
    entry = read_entry({**hanging(), "lazy": lazy})
    cache = MCPToolCache(MemoryStore())
    cache.set("mute", entry, [{"name": "log", "inputSchema": {"type": "object"}}])
    servers = GatewayServers(GatewaySettings(), cache=cache)
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        stack.push_async_callback(servers.close)
        gateway = await stack.enter_async_context(Gateway(servers))
        await gateway.connect({"mute": ServerSpec(entry=entry)})
        assert gateway.status()["counts"]["tools"] == 1
        assert status_of(gateway).is_ready is lazy


@pytest.mark.parametrize(
    ("revision", "era"),
    [(None, None), (NEWEST, "stateless"), (NEWEST_HANDSHAKE, "handshake")],
)
def test_the_era_of_a_server_is_derived_from_its_revision(
    revision: Revision | None, era: str | None
) -> None:
    assert status._era(revision) == era


def status_of(gateway: Gateway) -> Any:
    return gateway._status


async def test_a_resource_shortage_is_reported_at_once_and_ends_readiness_after_a_delay(
    virtual_time: VirtualTime,
) -> None:
    async with Gateway() as gateway:
        status = status_of(gateway)
        fine = {"ready": True, "degraded": [], "shortage": None}
        assert status.readiness(ADA) == fine
        assert status.full()["shortage"] is None
        gateway.upstreams.starts.shortage.report(LocalResourceError("no pipe", "memory"))
        assert status.readiness(ADA) == fine | {"shortage": "memory"}
        assert status.full()["shortage"] == "memory"
        await asyncio.sleep(4.999)
        assert status.is_ready
        await asyncio.sleep(0.001)
        assert status.readiness(ADA) == fine | {"ready": False, "shortage": "memory"}
        gateway.upstreams.starts.shortage.clear()
        assert status.readiness(ADA) == fine


async def test_a_gateway_stays_ready_if_its_session_store_has_no_disk_space(
    virtual_time: VirtualTime,
) -> None:
    store = MemorySessionStore()
    async with Gateway() as gateway:
        status = status_of(gateway)
        gateway.create_http_app(session_store=store)
        store.shortage = LocalResourceError("sessions.db is full", "disk space")
        await asyncio.sleep(60)
        short = {"ready": True, "degraded": [], "shortage": "disk space"}
        assert status.readiness(ADA) == short
        assert status.full()["shortage"] == "disk space"
        store.shortage = None
        assert status.readiness(ADA) == short | {"shortage": None}


async def test_a_reconnect_that_fails_without_free_file_descriptors_is_repeated(
    tmp_path: Path,
) -> None:
    """`/ready` reports the shortage, no server is suspended, and calls succeed afterwards."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[Any] = []
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"red": program("red")})
        await until(lambda: gateway.is_ready)
        upstream = gateway.upstreams["red"]
        async with (
            serving(gateway) as url,
            aiohttp.ClientSession() as web,
            joining(gateway) as client,
        ):
            ready = url.removesuffix("/mcp") + "/ready"
            async with web.get(ready) as answer:  # keep the connection open for later requests
                assert await answer.json() == {"ready": True, "degraded": [], "shortage": None}
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], 512), limits[1]))
                with pytest.raises(OSError, match="Too many open files"):
                    while True:
                        held.append(open(tmp_path / "held", "w"))  # noqa: SIM115
                with pytest.raises(ConnectFailed):
                    await gateway.upstreams["red"].reconnect()
                assert isinstance(upstream.error, LocalResourceError)
                assert upstream.state == "reconnecting"
                async with web.get(ready) as answer:
                    short = {"degraded": ["red"], "shortage": "file descriptors"}
                    assert await answer.json() == {"ready": True, **short}
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for file in held:
                    file.close()
            assert (await client.call("red_who")).text.startswith("red")
            async with web.get(ready) as answer:
                assert await answer.json() == {"ready": True, "degraded": [], "shortage": None}
