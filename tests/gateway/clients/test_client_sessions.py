"""Sessions of clients: notifications, subscriptions, and changed views."""

import asyncio
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.gateway.clients.client_access import ViewUpdater
from fairlead.gateway.clients.client_sessions import ConnectedClient, SingleServerClient
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS, Principal, principal_from
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.outgoing_params import Identity
from fairlead.relay.client_session import ClientSession
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification

UPDATED = "notifications/resources/updated"


def peer() -> Peer:
    near, _ = memory_pair()
    identity = Identity({"name": "x", "version": "1"})
    conversation = Conversation(ConversationRole.SERVER, identity, principal=ANONYMOUS)
    return Peer(near, conversation)


def note(method: str, params: Any = None) -> Notification:
    return Notification(method, UNSET if params is None else Raw(json.dumps(params).encode()))


def told(session: ClientSession, one: Notification, monkeypatch: pytest.MonkeyPatch) -> bool:
    heard: list[Notification] = []
    monkeypatch.setattr(ClientSession, "tell", lambda self, note: heard.append(note))
    session.tell(one)
    return bool(heard)


@pytest.mark.parametrize(
    ("method", "merged"),
    [
        ("notifications/tools/list_changed", False),
        (UPDATED, False),
        ("notifications/message", True),
        ("notifications/progress", True),
    ],
)
async def test_list_changes_and_updates_are_not_forwarded_to_clients_of_merged_lists(
    monkeypatch: pytest.MonkeyPatch, method: str, merged: bool
) -> None:
    client = ConnectedClient(ANONYMOUS)
    client.connect(peer())
    session = client.session_with("relay")
    assert session.takes(note(method)) is merged
    assert told(session, note(method), monkeypatch) is merged
    alone = SingleServerClient(ANONYMOUS)
    alone.connect(peer())
    one = alone.session_with("relay")
    assert one.takes(note(method))
    assert told(one, note(method, {"uri": "a:1"}), monkeypatch)


@pytest.mark.parametrize(("uri", "heard"), [("a:1", True), ("b:1", False)])
async def test_resource_updates_are_forwarded_only_for_resources_in_the_view(
    monkeypatch: pytest.MonkeyPatch, uri: str, heard: bool
) -> None:
    client = SingleServerClient(ANONYMOUS, permits=lambda one: one.startswith("a:"))
    client.connect(peer())
    session = client.session_with("relay")
    assert told(session, note(UPDATED, {"uri": uri}), monkeypatch) is heard
    assert told(session, note("notifications/message"), monkeypatch)


async def test_a_client_has_one_session_with_each_server() -> None:
    client = ConnectedClient(ANONYMOUS)
    client.connect(connection := peer())
    client.introduction, client.level = Raw(b"{}"), "debug"
    session = client.session_with("relay")
    assert client.session_with("relay") is session
    assert client.session_with("other") is not session
    assert (session.peer, session.introduction, session.level) == (connection, Raw(b"{}"), "debug")
    client.level = "error"
    assert client.session_with("relay").level == "error"
    client.close()
    assert client.gone
    # a pending call creates a session after the client has disconnected
    late = client.session_with("late")
    assert "late" not in client.sessions
    assert client.session_with("late") is not late


async def test_the_on_attached_hook_is_called_when_a_session_changes_its_connection() -> None:
    client, attached = ConnectedClient(ANONYMOUS), list[ClientSession]()
    client.connect(peer())
    sessions = [client.session_with(relay) for relay in ("one", "other")]
    client.on_attached = attached.append
    sessions[1].attached()
    assert attached == [sessions[1]]


async def test_messages_to_a_disconnected_client_are_dropped() -> None:
    async def hold(asked: Exchange, proceed: Proceed) -> Answer:
        await asyncio.Event().wait()
        return None

    client = ConnectedClient(ANONYMOUS, (hold,))
    client.connect(connection := peer())
    outbox = client.session_with("relay").outbox
    client.incoming.put(note("notifications/x"), connection, lambda _: None)
    client.outgoing.put(note("notifications/x"), connection, lambda _: None)
    outbox.enqueue((note("notifications/x"), None))
    assert (client.incoming.busy, client.outgoing.busy, outbox.busy) == (True, True, True)
    client.close()
    assert (client.incoming.busy, client.outgoing.busy, outbox.busy) == (False, False, False)


async def test_the_sessions_of_a_client_share_its_subscriptions() -> None:
    quota = SubscriptionQuota()
    client = SingleServerClient(ANONYMOUS, quota=quota)
    client.connect(peer())
    one, other = client.session_with("one"), client.session_with("other")
    one.uris.add("a:1")
    assert other.uris is one.uris is client.watched
    assert quota.uris.total == 1
    merged = ConnectedClient(ANONYMOUS)
    merged.connect(peer())
    assert merged.session_with("one").uris is not merged.session_with("other").uris


async def test_extra_members_of_a_response_are_passed_to_all_sessions_of_the_client() -> None:
    client = ConnectedClient(ANONYMOUS)
    client.connect(connection := peer())
    came: list[Any] = []
    for name in ("one", "other"):
        session = client.session_with(name)
        session.members_came = lambda *of, name=name: came.append((name, *of))  # type: ignore[method-assign]
    assert connection.on_extra_members is not None
    connection.on_extra_members(7, {"x": Raw(b"1")})
    assert came == [("one", 7, {"x": Raw(b"1")}), ("other", 7, {"x": Raw(b"1")})]


# Changed views

ADA, BOB = principal_from("ada"), principal_from("bob")
PART = View(servers=("red",), deny=("b:*",))


class Changes:
    def __init__(self) -> None:
        self.changed: list[set[Any]] = []
        self.stopped: list[Any] = []

    def all_lists_changed(self, edges: Any) -> None:
        self.changed.append(set(edges))

    def stop(self, edge: Any) -> None:
        self.stopped.append(edge)


class Place:
    """Clients of a gateway with two servers."""

    def __init__(self) -> None:
        self.views = ClientViews({}, View.everything())
        self.merged = {n: self._client(n, whose) for n, whose in (("a", ADA), ("b", BOB))}
        self.listeners = [self._listener("la", ADA, "a:1", "b:1"), self._listener("lb", BOB, "b:1")]
        self.narrowed: list[tuple[str, list[bool]]] = []
        self.left: list[tuple[str, str]] = []
        self.seen: list[set[Principal]] = []
        self.changes = Changes()
        endpoint = SimpleNamespace(listeners={1: ("e", ADA)}, views_changed=self.seen.append)
        self.members = {name: self._member(name) for name in ("red", "blue")}
        self.endpoints = {"red": endpoint}
        parts: Any = (self, self, self, self.changes)
        self.updater = ViewUpdater(self.views, *parts)

    def __iter__(self) -> Any:
        return iter(self.merged.values())

    def _client(self, peer: str, principal: Principal) -> Any:
        return SimpleNamespace(peer=peer, principal=principal)

    def _listener(self, edge: str, principal: Principal, *uris: str) -> Any:
        return SimpleNamespace(edge=edge, principal=principal, uris=list(uris))

    def _member(self, name: str) -> Any:
        def leave(client: Any) -> None:
            self.left.append((name, client.peer))

        return SimpleNamespace(name=name, replicas=SimpleNamespace(leave=leave))

    def narrow(self, client: Any, permits: Callable[[str, str], bool]) -> None:
        asked = [("red", "a:1"), ("red", "b:1"), ("blue", "a:1")]
        self.narrowed.append((client.peer, [permits(*one) for one in asked]))


def test_a_changed_view_notifies_clients_and_ends_subscriptions_outside_it() -> None:
    place = Place()
    place.updater.show({"ada": PART}, View.everything())
    assert place.changes.changed == [{"a", "la"}]
    assert place.changes.stopped == ["la"]  # its stream had resources outside the new view
    assert place.narrowed == [("a", [True, False, False])]
    assert place.left == [("blue", "a")]
    assert place.seen == [{ADA}]


def test_a_changed_view_does_not_end_streams_with_permitted_resources() -> None:
    place = Place()
    place.updater.show({"bob": View(deny=("c:*",))}, View.everything())
    assert place.changes.changed == [{"b", "lb"}]
    assert place.changes.stopped == []
    assert place.left == []


def test_replacing_a_view_with_an_equal_one_has_no_effect() -> None:
    place = Place()
    place.updater.show({}, View.everything())
    assert place.changes.changed == [set()]
    assert (place.narrowed, place.seen) == ([], [set()])
    place.updater.show({}, PART)
    assert place.changes.changed[-1] == {"a", "b", "la", "lb"}
    assert place.seen[-1] == {ADA, BOB, ANONYMOUS}


def test_the_audience_of_a_server_is_all_clients_whose_view_includes_it() -> None:
    place = Place()
    assert place.updater.audience_of("blue") is None  # None stands for all clients
    place.views.replace({"ada": PART}, View.everything())
    assert place.updater.audience_of("blue") == {"b", "lb"}
    assert place.updater.audience_of("red") is None
