"""Routes of the admin API for servers and clients."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ConfigError
from fairlead.gateway.admin.route import BadRequest, PageRequest
from fairlead.gateway.admin.servers_api import ClientSessions, NotificationLog, ServersApi
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.catalog_items import raw, resources, templates


def test_the_notification_log_keeps_only_methods_and_uris() -> None:
    log = NotificationLog()
    log.add("notes", "notifications/resources/updated", {"uri": "file:///a", "secret": 1})
    log.add("notes", "notifications/message", {"data": "secret", "uri": 1})
    log.add("notes", "notifications/progress", {})
    log.add("notes", "notifications/subscriptions/acknowledged", {})
    heard = log.list()
    assert all(one.pop("at") > 0 for one in heard)
    assert heard == [
        {"server": "notes", "method": "notifications/resources/updated", "uri": "file:///a"},
        {"server": "notes", "method": "notifications/message"},
    ]


def test_the_notification_log_keeps_the_last_two_hundred_entries() -> None:
    log = NotificationLog()
    for number in range(201):
        log.add("s", f"m{number}", {})
    assert [one["method"] for one in log.list()] == [f"m{number}" for number in range(1, 201)]


class FakePeer:
    def __init__(self, clients: "Clients") -> None:
        self._clients = clients

    async def close(self, reason: str) -> None:
        self._clients.closed.append((self, reason))


class Clients(list[Any]):
    """Connected clients that record whether they were closed."""

    def __init__(self, count: int) -> None:
        self.closed: list[Any] = []
        super().__init__(SimpleNamespace(peer=FakePeer(self)) for _ in range(count))

    def describe(self) -> list[dict[str, Any]]:
        return [{"client": f"c{number}"} for number in range(len(self))]


async def test_session_ids_are_not_reused_after_a_session_ends() -> None:
    clients: Any = Clients(2)
    sessions = ClientSessions(clients)
    assert sessions.list() == [{"id": 1, "client": "c0"}, {"id": 2, "client": "c1"}]
    first = clients.pop(0)
    clients.append(Clients(1)[0])
    assert [one["id"] for one in sessions.list()] == [2, 3]
    clients.append(first)
    assert [one["id"] for one in sessions.list()] == [2, 3, 1]


async def test_a_session_is_ended_by_its_id() -> None:
    clients: Any = Clients(3)
    sessions = ClientSessions(clients)
    sessions.list()
    await sessions.end(2)
    assert clients.closed == [(clients[1].peer, "the session was ended by an administrator")]
    with pytest.raises(ConfigError, match="^unknown session 9$"):
        await sessions.end(9)


class FakeUpstream:
    def __init__(self, place: "Place", name: str) -> None:
        self._place, self._name = place, name

    async def reconnect(self) -> None:
        self._place.done.append(f"reconnect {self._name}")


class Place:
    """The servers `red` and `blue`, and a record of the calls to them."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.members = {
            name: SimpleNamespace(refresh=lambda name=name: self.done.append(f"refresh {name}"))
            for name in ("red", "blue")
        }
        self.upstreams = {name: FakeUpstream(self, name) for name in ("red", "red#2", "blue")}
        self.catalog = MergedCatalog()
        self.catalog.put("red", ListKind.PROMPTS, [raw(name="hi")])
        self.catalog.put("red", ListKind.RESOURCES, resources("a:1"))
        self.catalog.put("blue", ListKind.TEMPLATES, templates("b:{x}"))
        self.error: Exception | None = None
        parts: Any = self
        self.api = ServersApi(
            upstreams=self.upstreams,  # type: ignore[arg-type]
            registry=parts,
            catalog=self.catalog,
            clients=Clients(1),  # type: ignore[arg-type]
            notifications=parts,
            status=parts,
            disconnect=self._disconnect,
            reload=self._reload,
        )

    async def _disconnect(self, name: str) -> None:
        self.done.append(f"disconnect {name}")

    async def _reload(self) -> None:
        self.done.append("reload")
        if self.error is not None:
            raise self.error

    def list(self) -> list[str]:
        return ["told"]

    def full(self) -> dict[str, Any]:
        about = {"status": "connected", "source": "file"}
        return {"servers": [{"server": name, **about} for name in ("red", "blue")]}


def request(value: str = "") -> PageRequest:
    call: Any = None
    return PageRequest(call, ANONYMOUS, (value,))


async def test_servers_can_be_reconnected_refreshed_and_removed() -> None:
    place = Place()
    assert await place.api.reconnect(request("red")) == {"reconnected": "red"}
    assert place.api.refresh(request("blue")) == {"refreshing": "blue"}
    assert await place.api.disconnect(request("red")) == {"disconnected": "red"}
    assert place.done == ["reconnect red", "refresh blue", "disconnect red"]
    with pytest.raises(
        ConfigError, match="^unknown server 'green': expected one of blue, red, red#2$"
    ):
        await place.api.reconnect(request("green"))
    for act in (place.api.refresh, place.api.disconnect):
        with pytest.raises(
            ConfigError, match="^unknown server 'green': expected one of blue, red$"
        ):
            if (work := act(request("green"))) is not None:
                await work  # type: ignore[misc]
    place.members.clear()
    place.upstreams.clear()
    with pytest.raises(ConfigError, match="^unknown server 'red'$"):
        place.api.refresh(request("red"))
    with pytest.raises(ConfigError, match="^unknown server 'red'$"):
        await place.api.reconnect(request("red"))


async def test_each_replica_is_reconnected_separately() -> None:
    place = Place()
    assert await place.api.reconnect(request("red#2")) == {"reconnected": "red#2"}
    assert place.done == ["reconnect red#2"]


async def test_reload_reads_the_configuration_and_fetches_all_lists() -> None:
    place = Place()
    assert await place.api.reload(request()) == {"reloaded": ["red", "blue"]}
    assert place.done == ["reload", "refresh red", "refresh blue"]
    place.done.clear()
    place.error = ConfigError("wrong")
    with pytest.raises(BadRequest, match="wrong"):
        await place.api.reload(request())
    assert place.done == ["reload"]


async def test_the_session_id_in_the_path_selects_the_session_to_end() -> None:
    assert await Place().api.end_session(request("1")) == {"ended": 1}
    with pytest.raises(BadRequest, match="is not a number"):
        await Place().api.end_session(request("one"))


def test_get_routes_list_servers_items_notifications_and_sessions() -> None:
    answers = {
        str(route): route.handler(request())
        for route in Place().api.routes()
        if route.method == "GET" and route.handler is not None
    }
    about = {"status": "connected", "source": "file"}
    assert answers == {
        "GET /admin/servers": [
            {"server": "red", **about},
            {"server": "blue", **about},
        ],
        "GET /admin/resources": [
            {"uri": "a:1", "server": "red", **about},
            {"uriTemplate": "b:{x}", "server": "blue", **about},
        ],
        "GET /admin/prompts": [{"name": "red_hi", "server": "red", **about}],
        "GET /admin/notifications": ["told"],
        "GET /admin/sessions": [{"id": 1, "client": "c0"}],
    }
