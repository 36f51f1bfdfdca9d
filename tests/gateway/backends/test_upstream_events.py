"""Events of upstreams, and their effect on members, subscriptions and clients."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ConnectFailed
from fairlead.gateway.backends.upstream_events import UpstreamEvents
from fairlead.gateway.operations.notification_log import NotificationLog
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.transport.background_tasks import BackgroundTasks
from fairlead.upstream.status_events import StatusEvent
from fairlead.wire import Notification

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"


class FakeReplica:
    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self._said = name, said
        self.error: Exception | None = None

    async def readopt_sessions(self) -> None:
        self._said.append(f"adopt {self.name}")
        if self.error is not None:
            raise self.error


class FakeReplicas(list[FakeReplica]):
    def __init__(self, said: list[str]) -> None:
        super().__init__([FakeReplica("red", said), FakeReplica("red#2", said)])
        self._said = said

    def connected(self) -> None:
        self._said.append("connected")


class Place:
    """A member with two servers, and records of the collaborators that receive events."""

    def __init__(self, audience: set[object] | None = None) -> None:
        self.said: list[str] = []
        self.replicas = FakeReplicas(self.said)
        self.tasks, self.log = BackgroundTasks(), NotificationLog()
        parts: Any = self
        self.events = UpstreamEvents(
            *(parts, parts, parts, self.log, self.tasks, parts),
            audience_of=lambda server: audience,
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

    def changed_for(self, audience: Any, method: str, uri: str | None = None) -> None:
        self.said.append(f"changed for {sorted(audience)} {method} {uri or ''}".strip())

    def connection_opened(self, upstream: Any, connection: Any) -> None:
        self.said.append(f"compare {upstream} {len(connection.listeners)}")

    def update(self, upstream: Any) -> None:
        self.said.append(f"update {upstream.name}")


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
async def test_connection_status_events_are_passed_to_the_member(
    kind: Any, said: list[str]
) -> None:
    place = Place()
    place.events.status_changed(StatusEvent(kind=kind, names=("blue", "red#2")))
    await asyncio.sleep(0)
    assert place.said == said


async def test_other_replicas_readopt_their_sessions_if_one_replica_fails_to() -> None:
    place = Place()
    place.replicas[0].error = ConnectFailed("away")
    place.events.status_changed(StatusEvent(kind="connected", names=("red", "red#2")))
    await asyncio.sleep(0)
    assert [one for one in place.said if one.startswith("adopt")] == ["adopt red", "adopt red#2"]


async def test_new_lists_and_states_of_a_server_are_passed_to_its_member() -> None:
    place = Place()
    for name in ("red#2", "blue", "red"):
        upstream: Any = SimpleNamespace(name=name)
        place.events.upstream_changed(upstream)
    assert place.said == ["update red#2", "update red"]


@pytest.mark.parametrize(
    ("server", "method", "params", "said"),
    [
        ("red", TOOLS, {}, []),  # the upstream fetches the list again
        ("red", UPDATED, {"uri": "a:1/part"}, ["changed resources a:1"]),
        ("red", UPDATED, {"uri": 5}, []),
        ("red", UPDATED, {}, []),
        ("red", "notifications/message", {"uri": "a:1"}, []),
        ("blue", TOOLS, {}, []),
    ],
)
async def test_notifications_are_logged_and_resource_updates_are_forwarded(
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
async def test_clients_are_notified_if_a_server_in_their_view_changes_its_lists(
    kind: ListKind, name: str
) -> None:
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
    ("method", "params", "said"),
    [
        (UPDATED, b'{"uri":"a:1/part"}', ["ada a:1", "bob a:"]),
        (UPDATED, b'{"uri":"a:2"}', ["bob a:"]),
        (UPDATED, b'{"uri":"b:1"}', []),
        (UPDATED, b'{"uri":5}', []),
        (TOOLS, b'{"uri":"a:1"}', []),
    ],
)
async def test_an_update_on_a_connection_is_sent_to_the_sessions_of_that_connection(
    method: str, params: bytes, said: list[str]
) -> None:
    place = Place()
    sessions = [
        SimpleNamespace(peer="ada", uris={"a:1"}),
        SimpleNamespace(peer="bob", uris={"a:", "c:"}),
        SimpleNamespace(peer="cy", uris=set()),
    ]
    connection: Any = SimpleNamespace(listeners=[], sessions=sessions)
    upstream: Any = "red"
    place.events.connection_opened(upstream, connection)
    assert place.said == ["compare red 1"]
    place.said.clear()
    (listener,) = connection.listeners
    listener(Notification(method, Raw(params)))
    told = [one.split() for one in said]
    assert place.said == [f"changed for ['{who}'] {UPDATED} {uri}" for who, uri in told]
