"""Tests of change notifications to selected connections, and of closed event loops."""

import asyncio
import json
from collections.abc import Hashable
from typing import Any

import pytest
from msgspec import Raw

from fairlead import RpcError
from fairlead.errors import ChannelClosed
from fairlead.interceptor import Exchange
from fairlead.protocol.envelope import SessionContext, SessionState
from fairlead.server.features.change_broadcaster import ChangeBroadcaster
from fairlead.server.features.subscription_quota import HeldUris, SubscriptionQuota
from fairlead.wire import Notification
from tests.server.features.test_change_broadcaster import server_with_everything, told
from tests.support.raw_server_client import META, wire_to
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

LISTS = ["tools/list_changed", "resources/list_changed", "prompts/list_changed"]


async def test_a_change_may_be_sent_to_selected_sessions_only() -> None:
    server = server_with_everything()
    async with wire_to(server) as one, wire_to(server) as other:
        await one.greet()
        await other.greet()
        server.changes.changed_for({one.peer}, "notifications/tools/list_changed")
        assert await one.next() == told("tools/list_changed")
        server.changes.all_lists_changed({other.peer})
        heard = [(await other.next())["method"] for _ in range(3)]
        assert sorted(heard) == sorted(f"notifications/{kind}" for kind in LISTS)
        await one.ask("ping")
        await other.ask("ping")


async def test_a_change_may_be_sent_to_listeners_on_selected_connections_only() -> None:
    server = server_with_everything()
    wanted: Any = {"notifications": {"toolsListChanged": True}, "_meta": META}
    async with wire_to(server) as one, wire_to(server) as other:
        for wire in (one, other):
            wire.send("subscriptions/listen", wanted, id=5)
            acknowledged = await wire.next()
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        server.changes.changed_for({one.peer}, "notifications/tools/list_changed")
        assert await one.next() == told("tools/list_changed", 5)
        server.changes.all_lists_changed({other.peer})
        assert await other.next() == told("tools/list_changed", 5)
        await one.ask("server/discover", {"_meta": META})
        await other.ask("server/discover", {"_meta": META})


class Connection:
    """Stand-in for a connection without a session."""


async def test_a_change_without_listeners_only_calls_the_follower_callbacks() -> None:
    broadcaster, followed = ChangeBroadcaster(), list[str]()
    broadcaster.followers.append(followed.append)
    broadcaster.changed_for((), "notifications/tools/list_changed")
    broadcaster.all_lists_changed(())
    broadcaster.forget(Connection())
    broadcaster.updated("r://1")
    assert followed == ["r://1"]
    assert broadcaster.stop() == []
    await broadcaster.end()


def test_listeners_of_a_closed_event_loop_are_removed() -> None:
    broadcaster = ChangeBroadcaster()

    async def join() -> None:
        broadcaster._room()

    asyncio.run(join())
    assert len(broadcaster._rooms) == 1
    broadcaster.changed("notifications/tools/list_changed")
    assert broadcaster._rooms == {}


class Listening:
    """Stand-in for a caller that listens without a connection."""

    def __init__(self, broadcaster: ChangeBroadcaster, **wanted: Any) -> None:
        self.told: list[tuple[str, Any]] = []
        self.acknowledged = asyncio.Event()
        self.exchange = exchange("subscriptions/listen", {"notifications": wanted})
        self.exchange.edge = self  # type: ignore[assignment]
        self.task = asyncio.create_task(broadcaster.listen(self.exchange, CAPABILITIES))

    async def notify_caller(self, given: Exchange, note: Notification) -> None:
        self.told.append((note.method.removeprefix("notifications/"), note.params))
        self.acknowledged.set()


class Stalled(Listening):
    async def notify_caller(self, given: Exchange, note: Notification) -> None:
        await super().notify_caller(given, note)
        await asyncio.Event().wait()


CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
}


async def test_closing_waits_until_every_listener_has_its_final_result(
    virtual_time: VirtualTime,
) -> None:
    broadcaster, begun = ChangeBroadcaster(), virtual_time.now
    listeners = [Listening(broadcaster, toolsListChanged=True) for _ in range(3)]
    for one in listeners:
        await one.acknowledged.wait()
    await broadcaster.end(listeners[0])
    assert [one.task.done() for one in listeners] == [True, False, False]
    await broadcaster.end()
    assert virtual_time.now == begun
    answers = [json.loads(one.task.result()) for one in listeners]
    key = "io.modelcontextprotocol/subscriptionId"
    assert answers == [{"_meta": {key: 1}, "resultType": "complete"}] * 3
    assert broadcaster.stop() == []


async def test_closing_stops_waiting_for_a_stalled_listener_after_a_second(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    broadcaster, begun = ChangeBroadcaster(), virtual_time.now
    stalled = Stalled(broadcaster, toolsListChanged=True)
    await stalled.acknowledged.wait()
    await broadcaster.end()
    assert virtual_time.now - begun == 1
    assert "a client does not read its listen stream" in caplog.text
    stalled.task.cancel()
    await asyncio.wait((stalled.task,))
    assert broadcaster.stop() == []


async def test_changes_are_merged_and_sent_within_a_few_loop_iterations() -> None:
    broadcaster = ChangeBroadcaster()
    one = Listening(broadcaster, promptsListChanged=True, resourceSubscriptions=["a", "b", "a"])
    await one.acknowledged.wait()
    assert len(broadcaster.quota.uris.counts) == 1
    assert broadcaster.quota.uris.total == 2
    for _ in range(2):
        one.told.clear()
        broadcaster.changed("notifications/prompts/list_changed")
        for _ in range(5):
            await asyncio.sleep(0)
        assert [method for method, _ in one.told] == ["prompts/list_changed"]
    one.told.clear()
    for uri in ("b", "c", "a", "b"):
        broadcaster.updated(uri)
    broadcaster.changed("notifications/tools/list_changed")
    for _ in range(5):
        await asyncio.sleep(0)
    assert [json.loads(bytes(params))["uri"] for _, params in one.told] == ["b", "a"]
    await broadcaster.end()
    assert broadcaster.quota.uris.total == 0


@pytest.mark.parametrize(
    ("wanted", "capabilities", "honoured"),
    [
        (
            {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
            CAPABILITIES,
            {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
        ),
        ({"toolsListChanged": True, "promptsListChanged": True}, {"tools": {}}, {}),
        ({"toolsListChanged": False}, CAPABILITIES, {}),
        (
            {"resourceSubscriptions": ["b", "a", "b"]},
            CAPABILITIES,
            {"resourceSubscriptions": ["b", "a"]},
        ),
        ({"resourceSubscriptions": ["a"]}, {"resources": {"listChanged": True}}, {}),
        ({}, CAPABILITIES, {}),
    ],
    ids=["lists", "not offered", "not wanted", "resources", "no resources", "nothing"],
)
async def test_only_supported_filters_of_a_subscription_are_acknowledged(
    wanted: Any, capabilities: Any, honoured: Any
) -> None:
    broadcaster = ChangeBroadcaster()
    one = Listening(broadcaster, **wanted)
    one.task.cancel()
    listening = asyncio.create_task(broadcaster.listen_admitted(one.exchange, capabilities))
    await one.acknowledged.wait()
    ((method, params),) = one.told
    assert method == "subscriptions/acknowledged"
    assert json.loads(bytes(params))["notifications"] == honoured
    await broadcaster.end()
    assert listening.done()


@pytest.mark.parametrize(
    ("declared", "granted"),
    [
        (b"{}", False),
        (b'{"extensions":5}', False),
        (b'{"extensions":{}}', False),
        (b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}', True),
    ],
    ids=["nothing", "no object", "others", "tasks"],
)
async def test_task_ids_require_a_client_capability(declared: bytes, granted: bool) -> None:
    broadcaster = ChangeBroadcaster()
    given = exchange(
        "subscriptions/listen", {"notifications": {"taskIds": ["a"]}}, capabilities=declared
    )
    if granted:
        listening = asyncio.create_task(broadcaster.listen(given, CAPABILITIES))
        await asyncio.sleep(0)
        await broadcaster.end()
        await listening
        return
    with pytest.raises(RpcError) as refused:
        await broadcaster.listen(given, CAPABILITIES)
    tasks = "io.modelcontextprotocol/tasks"
    assert refused.value.code == -32021
    assert refused.value.message == f"taskIds requires the client capability {tasks}"
    assert refused.value.data == {"requiredCapabilities": {"extensions": {tasks: {}}}}


class Session:
    """Stand-in for a connection of the handshake era."""

    def __init__(self, state: SessionState = SessionState.ACTIVE, name: str = "ann") -> None:
        self.name = name
        self.session = SessionContext(state=state, session_id="s")
        self.told: list[tuple[str, Any]] = []
        self.fails = False

    async def notify(self, method: str, params: Any = None) -> None:
        if self.fails:
            raise ChannelClosed("gone")
        self.told.append((method.removeprefix("notifications/"), params))

    def begin(self, broadcaster: ChangeBroadcaster, capabilities: Any = CAPABILITIES) -> None:
        given = exchange("initialize", {}, stateless=False, principal=self.name)
        given.edge = self  # type: ignore[assignment]
        broadcaster.introduced(given, capabilities)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_session_receives_declared_and_subscribed_notifications() -> None:
    broadcaster, session, opening = (
        ChangeBroadcaster(),
        Session(),
        Session(SessionState.INITIALIZING),
    )
    session.begin(broadcaster, {"tools": {"listChanged": True}, "prompts": {}})
    opening.begin(broadcaster)
    broadcaster.subscribe(session, "r://1")
    # Sessions of single messages are not registered and receive no notifications.
    broadcaster.subscribe(Session(), "r://1")
    for method in ("tools", "prompts", "resources"):
        broadcaster.changed(f"notifications/{method}/list_changed")
    broadcaster.updated("r://1")
    broadcaster.updated("r://2")
    await turns()
    assert session.told == [
        ("tools/list_changed", None),
        ("resources/updated", Raw(b'{"uri":"r://1"}')),
    ]
    assert opening.told == []
    broadcaster.updated("r://1")
    broadcaster.unsubscribe(session, "r://1")
    broadcaster.unsubscribe(Session(), "r://1")
    broadcaster.forget(session)
    broadcaster.changed("notifications/tools/list_changed")
    await turns()
    assert len(session.told) == 2


async def test_a_session_receives_later_changes_after_a_failed_notification() -> None:
    broadcaster, session = ChangeBroadcaster(), Session()
    session.begin(broadcaster)
    session.fails = True
    for kind in ("tools", "prompts"):
        broadcaster.changed(f"notifications/{kind}/list_changed")
    await turns()
    session.fails = False
    broadcaster.changed("notifications/resources/list_changed")
    await turns()
    assert session.told == [("resources/list_changed", None)]


async def test_a_second_initialize_releases_the_subscriptions_of_the_session() -> None:
    held: list[HeldUris] = []

    class Quota(SubscriptionQuota):
        def held(self, key: Hashable) -> HeldUris:
            held.append(super().held(key))
            return held[-1]

    broadcaster = ChangeBroadcaster(quota=Quota())
    one, other = Session(name="ann"), Session(name="bob")
    for session in (one, other):
        session.begin(broadcaster)
        broadcaster.subscribe(session, "r://1")
    uris = broadcaster.quota.uris
    assert (uris.total, sorted(uris.counts.values())) == (2, [1, 1])
    one.begin(broadcaster)
    assert (uris.total, [set(one) for one in held]) == (1, [set(), {"r://1"}, set()])
    broadcaster.forget(other)
    assert (uris.total, uris.counts) == (0, {})


async def test_a_request_without_a_connection_is_not_registered_as_a_session() -> None:
    broadcaster = ChangeBroadcaster()
    broadcaster.introduced(exchange("initialize", {}, stateless=False), CAPABILITIES)
    broadcaster.changed("notifications/tools/list_changed")
    await turns()
    assert broadcaster.stop() == []


async def test_unsubscribing_drops_pending_notifications_of_the_resource() -> None:
    class Slow(Session):
        async def notify(self, method: str, params: Any = None) -> None:
            await gate.wait()
            await super().notify(method, params)

    broadcaster, session, gate = ChangeBroadcaster(), Slow(), asyncio.Event()
    session.begin(broadcaster)
    for uri in ("r://1", "r://2", "r://3"):
        broadcaster.subscribe(session, uri)
        broadcaster.updated(uri)
    await turns()  # One notification is being sent, and the others are pending.
    broadcaster.unsubscribe(session, "r://2")
    gate.set()
    await turns()
    assert [bytes(params) for _, params in session.told] == [b'{"uri":"r://1"}', b'{"uri":"r://3"}']
