"""Events of servers: what members, subscriptions and clients hear of them."""

import asyncio
from typing import Any

import pytest

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    LocalResourceError,
    RpcError,
    ServerBusy,
)
from fairlead.gateway.backends.replica_factory import _is_failure
from fairlead.gateway.backends.startup_calls import StartupWait, StillStarting
from fairlead.gateway.backends.upstream_events import UpstreamEvents
from fairlead.gateway.background_tasks import BackgroundTasks
from fairlead.gateway.catalog.list_kind import ListKind
from fairlead.gateway.operations.notification_log import NotificationLog
from fairlead.manager.status_events import StatusEvent

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"


class FakeReplica:
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self._said = name, said

    def lost(self) -> None:
        self._said.append(f"lost {self.name}")

    async def adopt(self) -> None:
        self._said.append(f"adopt {self.name}")


class Place:
    """A member with two servers, and everybody who hears of them."""

    def __init__(self, audience: set[object] | None = None) -> None:
        self.said: list[str] = []
        self.replicas = [FakeReplica("red", self.said), FakeReplica("red#2", self.said)]
        self.tasks, self.log = BackgroundTasks(), NotificationLog()
        parts: Any = self
        self.events = UpstreamEvents(
            parts, parts, parts, self.log, self.tasks, lambda server: audience
        )

    def owner(self, server: str) -> Any:
        return self if server.startswith("red") else None

    def begins(self) -> None:
        self.said.append("begins")

    def failed(self) -> None:
        self.said.append("failed")

    def connected(self, *of: Any) -> None:
        self.said.append("connected" if not of else f"asked {of[1]}")

    def uris(self, member: Any, changed: str | None = None) -> list[str]:
        return ["a:1", "a:2"] if changed is None else [changed[:3]]

    def changed(self, method: str, uri: str | None = None) -> None:
        self.said.append(f"changed {method.rsplit('/', 2)[1]} {uri or ''}".strip())

    def changed_for(self, audience: Any, method: str) -> None:
        self.said.append(f"changed for {sorted(audience)} {method}")

    def heard(self, server: str, method: str) -> None:
        self.said.append(f"heard {server} {method}")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("connecting", ["begins"]),
        ("failed", ["failed"]),
        ("disconnected", []),
        ("reconnecting", []),
        (
            "connected",
            [
                *("connected", "asked red#2", "changed resources a:1", "changed resources a:2"),
                "adopt red#2",
            ],
        ),
    ],
)
async def test_a_member_hears_how_its_servers_are(kind: Any, said: list[str]) -> None:
    place = Place()
    place.events.status_changed(StatusEvent(kind=kind, names=("blue", "red#2")))
    await asyncio.sleep(0)
    unique = list(dict.fromkeys(place.said))
    assert unique == ["lost red", "lost red#2", *said]


@pytest.mark.parametrize(
    ("server", "method", "params", "said"),
    [
        ("red", TOOLS, {}, [f"heard red {TOOLS}"]),
        ("red", UPDATED, {"uri": "a:1/part"}, ["changed resources a:1"]),
        ("red", UPDATED, {"uri": 5}, []),
        ("red", UPDATED, {}, []),
        ("red", "notifications/message", {"uri": "a:1"}, []),
        ("blue", TOOLS, {}, []),
    ],
)
async def test_news_of_a_server_are_noted_and_told(
    server: str, method: str, params: dict[str, Any], said: list[str]
) -> None:
    place = Place()
    place.events.notification_received(server, method, params)
    assert place.said == said
    assert len(place.log.list()) == (server == "red")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ListKind.TOOLS, "tools"),
        (ListKind.PROMPTS, "prompts"),
        (ListKind.RESOURCES, "resources"),
        (ListKind.TEMPLATES, "resources"),
    ],
)
async def test_a_changed_list_is_told_to_those_who_may_see_it(kind: ListKind, name: str) -> None:
    everybody, some = Place(), Place({"edge"})
    everybody.events.list_changed(kind, "red")
    assert everybody.said == [f"changed {name}"]
    some.events.list_changed(kind, "red")
    some.events.list_changed(kind)
    assert some.said == [
        f"changed for ['edge'] notifications/{name}/list_changed",
        f"changed {name}",
    ]


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ChannelClosed("x"), True),
        (ConnectFailed("x"), True),
        (HttpError(500), True),
        (HttpError(404), True),
        *((HttpError(status), False) for status in (400, 405, 406, 411, 413, 414, 415)),
        *((HttpError(status), False) for status in (417, 422, 431)),
        (StillStarting(StartupWait(1.0, 0.0)), False),
        (ServerBusy("x", public="x"), False),
        (LocalResourceError("x", "memory"), False),
        (RpcError(5, "no"), False),
        (ZeroDivisionError(), False),
    ],
)
def test_only_what_a_server_is_to_blame_for_counts_against_it(
    error: Exception, counts: bool
) -> None:
    assert _is_failure(error) is counts
