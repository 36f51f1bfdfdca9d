"""The status of a gateway: complete for its operator, limited for clients."""

import asyncio
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from fairlead.config.found_server import Source
from fairlead.errors import ConnectFailed, LocalResourceError
from fairlead.gateway import Gateway
from fairlead.gateway.admin import status
from fairlead.gateway.admin.status import GatewayStatus
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.protocol.caller import ANONYMOUS, principal_from
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.upstream.starts.start_limiter import StartLimiter
from tests.support.catalog_items import tools
from tests.support.gateway_servers import LIMIT, joining, program, serving, until
from tests.support.virtual_time import VirtualTime

ADA = principal_from("ada")
PART = View(servers=("red",), deny=("red_secret",))


CONNECTION = {"default": True, "sessions": 2}


class FakeUpstream:
    """The state of one server."""

    def __init__(self, state: str = "idle", source: Source | None = None, **about: Any) -> None:
        self.status = state
        self.client: Any = about.get("client")
        self.error: Exception | None = about.get("error")
        self.latency: float | None = about.get("latency")
        entry = SimpleNamespace(type=about.get("transport", "stdio"))
        self.spec = SimpleNamespace(source=source or Source(), entry=entry)

    def describe_connections(self) -> list[dict[str, Any]]:
        return [] if self.client is None else [CONNECTION]


class Upstreams(dict[str, FakeUpstream]):
    """A connected server, a failed one, and an idle one."""

    def __init__(self) -> None:
        self.starts = StartLimiter()
        self["red"] = FakeUpstream(
            "connected",
            Source(provider="p", provider_name="Program", path="f"),
            client=SimpleNamespace(protocol_version="2026-07-28"),
            latency=0.01234,
        )
        self["red#2"] = FakeUpstream()
        error = ConnectFailed("no /secret/file", public="is not there")
        self["blue"] = FakeUpstream("failed", transport="http", error=error)

    def connected(self) -> list[str]:
        return [name for name, one in self.items() if one.status == "connected"]


class Registry:
    is_ready = False

    def __init__(self, upstreams: Upstreams) -> None:
        self._upstreams = upstreams
        self.members = [self._member("red", "red", "red#2"), self._member("blue", "blue")]

    def _member(self, name: str, *names: str) -> Any:
        upstreams = [self._upstreams[own] for own in names]
        for own, upstream in zip(names, upstreams, strict=True):
            upstream.name = own
            upstream.health = SimpleNamespace(
                latency=0.5, calls=7, errors=2, breaker=SimpleNamespace(state="closed")
            )
        return SimpleNamespace(name=name, names=list(names), upstreams=upstreams, error=None)

    def within(self, view: View) -> list[Any]:
        return [one for one in self.members if view.includes(one.name)]


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


def test_the_status_for_the_operator_contains_all_details() -> None:
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
        "source": "Program",
        "path": "f",
        "error": None,
    }
    assert (blue["status"], blue["transport"], blue["revision"]) == ("failed", "http", None)
    assert (blue["era"], blue["source"], blue["path"], blue["connect_ms"]) == (None,) * 4
    assert "/secret/file" in blue["error"]
    assert (second["status"], second["error"], second["connect_ms"]) == ("idle", None, None)
    assert (blue["connections"], second["connections"]) == ([], [])


def test_the_uptime_is_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, *_ = gateway()
    shown.since = 1000.0
    monkeypatch.setattr(status.time, "time", lambda: 1012.345)
    assert shown.full()["uptime"] == 12.3


def test_a_restricted_status_has_public_reasons() -> None:
    (blue,) = gateway(ada=View(servers=("blue",)))[0].public(ADA)["servers"]
    assert blue["error"] == "is not there"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, None), (0.0, 0.0), (0.01234, 12.3), (0.00004, 0.0), (2, 2000)]
)
def test_latencies_are_shown_in_milliseconds(seconds: float | None, shown: float | None) -> None:
    assert status._milliseconds(seconds) == shown


def test_a_server_whose_lists_failed_has_an_error() -> None:
    shown, registry = gateway()
    for member in registry.members:
        member.error = ConnectFailed("x", public="listing failed")
    errors = {one["name"]: one["error"] for one in shown.public(ANONYMOUS)["servers"]}
    assert errors == {"red": "listing failed", "red#2": None, "blue": "is not there"}


def test_an_unrestricted_client_does_not_get_details_for_the_operator() -> None:
    found = gateway()[0].public(ADA)
    assert (found["clients"], found["parked"]) == (3, 2)
    blue, red, _ = found["servers"]
    assert (blue["error"], red["path"], red["calls"]) == ("is not there", None, 7)
    assert [one["connections"] for one in found["servers"]] == [[], [], []]


def test_a_restricted_client_gets_no_data_about_other_clients() -> None:
    found = gateway(ada=PART)[0].public(ADA)
    assert (found["clients"], found["parked"], found["counts"]["tools"]) == (2, None, 1)
    assert [one["name"] for one in found["servers"]] == ["red", "red#2"]
    assert [one["path"] for one in found["servers"]] == [None, None]
    assert [one["connections"] for one in found["servers"]] == [[], []]
    for one in found["servers"]:
        assert (one["tools"], one["calls"], one["errors"], one["latency_ms"]) == (
            *(1, None, None, None),
        )


@pytest.mark.parametrize(
    ("view", "servers"), [(View.everything(), 3), (PART, 2), (View(servers=("blue",)), 1)]
)
def test_health_counts_the_servers_in_the_view(view: View, servers: int) -> None:
    shown, registry = gateway(ada=view)
    connected = 0 if view.servers == ("blue",) else 1
    assert shown.health(ADA) == {"status": "ok", "servers": servers, "connected": connected}
    assert shown.readiness() == {"ready": False}
    registry.is_ready = True
    assert shown.readiness() == {"ready": True}


@pytest.mark.parametrize(
    ("version", "era"),
    [(None, None), ("2026-07-28", "stateless"), ("2025-11-25", "handshake")],
)
def test_the_era_of_a_server_is_derived_from_its_protocol_version(
    version: str | None, era: str | None
) -> None:
    assert status._era(version) == era


def status_of(gateway: Gateway) -> Any:
    return gateway._status


async def test_a_shortage_is_reported_at_once_and_ends_readiness_after_a_delay(
    virtual_time: VirtualTime,
) -> None:
    async with Gateway() as gateway:
        status = status_of(gateway)
        assert status.readiness() == {"ready": True}
        assert status.full()["shortage"] is None
        gateway.upstreams.starts.shortage.report(LocalResourceError("no pipe", "memory"))
        assert status.readiness() == {"ready": True, "degraded": ["out of memory"]}
        assert status.full()["shortage"] == "memory"
        await asyncio.sleep(4.999)
        assert status.readiness()["ready"] is True
        await asyncio.sleep(0.001)
        assert status.readiness() == {"ready": False, "degraded": ["out of memory"]}
        gateway.upstreams.starts.shortage.clear()
        assert status.readiness() == {"ready": True}


async def test_a_server_that_dies_without_free_descriptors_is_restarted(tmp_path: Path) -> None:
    """`/ready` reports the shortage, no server is suspended, and calls work again afterwards."""
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
                assert await answer.json() == {"ready": True}
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
                    assert (await answer.json())["degraded"] == ["out of file descriptors"]
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                for file in held:
                    file.close()
            assert (await client.call("red_who")).text.startswith("red")
            async with web.get(ready) as answer:
                assert await answer.json() == {"ready": True}
