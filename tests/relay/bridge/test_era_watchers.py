"""Subscriptions, log levels and direct forwarding in bridges between the eras."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import ChannelClosed, RpcError
from fairlead.limits import PARKED_CALLS
from fairlead.protocol.caller import Caller
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.relay.bridge import parked_calls, stateless_to_handshake
from fairlead.relay.bridge.handshake_to_stateless import HandshakeToStateless
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.relay.bridge.stateless_to_handshake import StatelessToHandshake
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.upstream.connection.upstream_connection import begin_subscription, end_subscription
from fairlead.wire import Notification
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

UPDATED = "notifications/resources/updated"
ALL = {
    "logging": {},
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
}


class FakeConnection:
    """Fake connection that records requests to its server."""

    def __init__(self, capabilities: Any = None, *, stateless: bool = False) -> None:
        declared = json.dumps(ALL if capabilities is None else capabilities).encode()
        revision = NEWEST if stateless else NEWEST_HANDSHAKE
        self.agreement = Agreement(revision=revision, capabilities=declared)
        self.server_info = None
        self.name = "raw"
        self.uris: dict[str, set[object]] = {}
        self.level: str | None = None
        self.peer = self
        self.alive = True
        self.asked: list[tuple[str, Any]] = []
        self.refuses = False
        self.sessions: dict[Any, None] = {}
        self.on_news: Any = None

    async def request(self, method: str, params: Any) -> None:
        self.asked.append((method, *params.values()))
        if self.refuses:
            raise RpcError(-32601, "no")

    def background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.exception())


async def test_a_resource_is_subscribed_once_until_the_last_subscriber_leaves() -> None:
    connection: Any = FakeConnection()
    assert await begin_subscription(connection, "a:1", "one")
    assert await begin_subscription(connection, "a:1", "other")
    assert connection.asked == [("resources/subscribe", "a:1")]
    end_subscription(connection, "a:1", "one")
    assert connection.uris == {"a:1": {"other"}}
    end_subscription(connection, "a:1", "other")
    end_subscription(connection, "a:1", "other")
    await asyncio.sleep(0)
    assert connection.uris == {}
    assert connection.asked[1:] == [("resources/unsubscribe", "a:1")]
    assert await begin_subscription(connection, "a:2", "one")
    connection.alive = False
    end_subscription(connection, "a:2", "one")
    await asyncio.sleep(0)
    assert (connection.uris, len(connection.asked)) == ({}, 3)


async def test_a_rejected_subscription_leaves_no_subscriber() -> None:
    connection: Any = FakeConnection()
    connection.refuses = True
    assert not await begin_subscription(connection, "a:1", "one")
    assert connection.uris == {}
    connection.uris = {"a:1": set()}
    watching = connection.uris["a:1"]
    waits = asyncio.create_task(begin_subscription(connection, "a:1", "one"))
    await asyncio.sleep(0)
    watching.add("other")
    assert not await waits or watching == {"other"}


@pytest.mark.parametrize(
    ("capabilities", "levels", "asked"),
    [
        (ALL, ["error", "debug", "info", "debug"], ["error", "debug"]),
        (ALL, ["odd"], []),
        ({}, ["debug"], []),
    ],
)
async def test_a_server_gets_the_lowest_log_level_of_all_clients(
    capabilities: Any, levels: list[str], asked: list[str]
) -> None:
    connection: Any = FakeConnection(capabilities)
    for level in levels:
        await stateless_to_handshake._set_level(connection, level)
    assert connection.asked == [("logging/setLevel", level) for level in asked]
    assert connection.level == (asked[-1] if asked else None)
    connection.refuses, connection.level = True, None
    # A refusal by the server is ignored.
    await stateless_to_handshake._set_level(connection, "debug")


class OneConnectionPool:
    settings = UpstreamSettings()

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def handshake_connection(self, caller: Caller) -> Any:
        return self.connection


def bridge(connection: Any) -> StatelessToHandshake:
    pool: Any = OneConnectionPool(connection)
    return StatelessToHandshake(pool, parked_calls_of(), SubscriptionQuota())


def parked_calls_of(limit: int = 64) -> ParkedCalls:
    return ParkedCalls(limit)


@pytest.mark.parametrize(
    ("method", "params", "capabilities", "plain"),
    [
        ("tools/call", {"name": "x"}, b"{}", True),
        ("vendor/x", None, b"{}", True),
        ("tools/call", {"name": "x"}, b'{"sampling":{}}', False),
        ("tools/call", {"requestState": "s"}, b"{}", False),
        ("tools/call", {"inputResponses": {}}, b"{}", False),
        ("tools/call", [1], b"{}", False),
        *((method, {}, b"{}", False) for method in sorted(stateless_to_handshake._OURS)),
    ],
)
def test_requests_that_cannot_require_input_are_forwarded_directly(
    method: str, params: Any, capabilities: bytes, plain: bool
) -> None:
    connection: Any = FakeConnection()
    asked = exchange(method, params, capabilities=capabilities)
    found = bridge(connection).plain(asked)
    assert (found is not None) is plain
    if found is not None:
        assert found[0] is connection
    assert bridge(None).plain(asked) is None


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Raw(b'{"tools":[]}'), {"resultType": "complete", "tools": []}),
        (RpcError(-32002, "gone"), -32602),
        (RpcError(-32601, "no"), -32601),
    ],
    ids=["result", "converted code", "refused"],
)
def test_an_outcome_is_converted_to_the_era_of_the_client(outcome: Any, expected: Any) -> None:
    connection: Any = FakeConnection()
    found = bridge(connection).plain_outcome("tools/list", connection, outcome)
    if isinstance(found, RpcError):
        assert found.code == expected
    else:
        assert isinstance(found, Raw)
        shown = json.loads(bytes(found))
        assert {**shown, **expected} == shown
    lost = ChannelClosed("lost")
    assert bridge(connection).plain_outcome("tools/list", connection, lost) is lost


# Handshake sessions with a stateless server


class FakeListening:
    """Fake listen request that records its subscriptions."""

    def __init__(self) -> None:
        self.lists: set[str] = set()
        self.uris: dict[str, None] = {}
        self.listened = 0
        self.error: BaseException | None = None
        self.heard_of: list[str] = []
        self.closed = 0

    def set_lists(self, lists: set[str]) -> None:
        self.lists = lists

    def set_uris(self, uris: dict[str, None]) -> None:
        self.uris = dict(uris)

    async def listen(self, peer: Any, limit: float) -> None:
        self.listened += 1
        assert limit == 10.0
        if self.error is not None:
            raise self.error

    def heard(self, method: str, params: Any) -> None:
        self.heard_of.append(method)

    async def close(self) -> None:
        self.closed += 1


class Session:
    def __init__(self) -> None:
        self.uris = SubscriptionQuota().held("key")
        self.level: str | None = None
        self.told: list[Notification] = []

    def tell(self, note: Notification) -> None:
        self.told.append(note)


class Sessions:
    def __init__(self, capabilities: Any = None, count: int = 1) -> None:
        self.connection: Any = FakeConnection(capabilities, stateless=True)
        self.bridge = HandshakeToStateless(self.connection)
        self.listening = FakeListening()
        self.bridge._listening = self.listening  # type: ignore[assignment]
        self.sessions = [Session() for _ in range(count)]
        self.connection.sessions = dict.fromkeys(self.sessions)

    async def ask(self, method: str, params: Any, session: Any = "first") -> Any:
        whose: Any = self.sessions[0] if session == "first" else session
        answer = await self.bridge.answer(exchange(method, params, stateless=False), whose)
        return json.loads(bytes(answer or b""))


async def test_a_listen_request_is_sent_only_if_the_subscriptions_of_a_session_change() -> None:
    place = Sessions()
    (one,) = place.sessions
    assert await place.ask("ping", {}) == {}
    assert await place.ask("resources/subscribe", {"uri": "a:1"}) == {}
    assert (list(place.listening.uris), set(one.uris)) == (["a:1"], {"a:1"})
    assert await place.ask("resources/subscribe", {"uri": "a:1"}) == {}
    # No new listen request, because the session is already subscribed.
    assert place.listening.listened == 1
    assert await place.ask("resources/unsubscribe", {"uri": "a:1"}) == {}
    assert (place.listening.uris, set(one.uris), place.listening.listened) == ({}, set(), 2)
    assert await place.ask("resources/subscribe", {"uri": "a:1"}, None) == {}
    assert place.listening.listened == 2  # no listen request, because there is no session


@pytest.mark.parametrize(
    ("capabilities", "params", "code", "message"),
    [
        (ALL, {}, -32602, "params.uri is required: the URI of a resource"),
        ({}, {"uri": "a:1"}, -32601, "Method not found: resources/subscribe"),
    ],
)
async def test_an_invalid_or_unsupported_subscription_is_refused(
    capabilities: Any, params: Any, code: int, message: str
) -> None:
    with pytest.raises(RpcError) as refused:
        await Sessions(capabilities).ask("resources/subscribe", params)
    assert (refused.value.code, refused.value.message) == (code, message)


async def test_a_rejected_subscription_keeps_earlier_subscriptions() -> None:
    place = Sessions()
    (one,) = place.sessions
    await place.ask("resources/subscribe", {"uri": "a:1"})
    place.listening.error = RpcError(-32601, "no")
    with pytest.raises(RpcError, match="The server refused the subscription to a:2") as refused:
        await place.ask("resources/subscribe", {"uri": "a:2"})
    assert refused.value.code == -32603
    assert (list(place.listening.uris), set(one.uris)) == (["a:1"], {"a:1"})
    place.listening.error = None
    assert await place.bridge.follow()
    assert place.listening.listened == 3  # the listen request was sent again after the failure
    place.listening.error = ChannelClosed("lost")
    one.uris.add("a:3")
    with pytest.raises(ChannelClosed):
        await place.bridge.follow()
    place.listening.error = None
    assert await place.bridge.follow()
    assert place.listening.listened == 5


async def test_a_resource_that_the_server_did_not_acknowledge_is_refused() -> None:
    place = Sessions()
    place.bridge._granted = {"a:1"}
    assert await place.ask("resources/subscribe", {"uri": "a:1"}) == {}
    with pytest.raises(RpcError, match="refused the subscription to a:2"):
        await place.ask("resources/subscribe", {"uri": "a:2"})
    assert set(place.sessions[0].uris) == {"a:1"}


async def test_the_lists_of_a_server_are_subscribed_once() -> None:
    place = Sessions()
    await place.bridge.joined()
    await place.bridge.joined()
    assert (place.listening.lists, place.listening.listened) == ({"tools", "resources"}, 1)
    silent = Sessions({"tools": {}})
    await silent.bridge.joined()
    assert silent.listening.listened == 0
    refused = Sessions()
    refused.listening.error = RpcError(-32603, "not now")
    await refused.bridge.joined()
    refused.listening.error = None
    await refused.bridge.joined()
    await refused.bridge.joined()
    assert refused.listening.listened == 2
    place.listening.lists = {"tools"}
    await place.bridge.joined()
    assert (place.listening.lists, place.listening.listened) == ({"tools", "resources"}, 2)


async def test_updates_reach_the_subscribed_sessions_and_list_changes_every_session() -> None:
    place = Sessions(count=2)
    one, other = place.sessions
    one.uris.add("a:1")
    tag = {"io.modelcontextprotocol/subscriptionId": 5}
    updated = Raw(json.dumps({"uri": "a:1", "_meta": tag}).encode())
    place.connection.on_news(Notification(UPDATED, updated))
    place.connection.on_news(Notification(UPDATED, UNSET))
    assert [note.method for note in one.told] == [UPDATED]
    assert bytes(one.told[0].params) == b'{"uri":"a:1"}'  # type: ignore[arg-type]
    assert other.told == []
    place.connection.on_news(Notification("notifications/tools/list_changed"))
    assert [len(one.told), len(other.told)] == [2, 1]
    acknowledged = "notifications/subscriptions/acknowledged"
    granted = {"notifications": {"resourceSubscriptions": ["a:1"]}}
    place.connection.on_news(Notification(acknowledged, Raw(json.dumps(granted).encode())))
    assert place.bridge._granted == {"a:1"}
    place.connection.on_news(Notification("notifications/cancelled", UNSET))
    assert place.bridge._granted == {"a:1"}
    assert place.listening.heard_of == [acknowledged, "notifications/cancelled"]
    assert [len(one.told), len(other.told)] == [2, 1]
    await place.bridge.close()
    assert place.listening.closed == 1


async def test_all_sessions_are_notified_after_changes_may_have_been_missed() -> None:
    place = Sessions(count=2)
    place.sessions[0].uris.add("a:1")
    place.bridge._missed()
    assert [len(one.told) for one in place.sessions] == [3, 2]


@pytest.mark.parametrize("level", ["debug", "emergency"])
async def test_a_valid_log_level_is_sent_with_later_requests(level: str) -> None:
    place = Sessions()
    assert await place.ask("logging/setLevel", {"level": level}) == {}
    assert place.sessions[0].level == level
    for wrong in ({"level": "loud"}, {}, [1]):
        with pytest.raises(RpcError, match="Unknown log level .*: expected one of debug, ") as why:
            await place.ask("logging/setLevel", wrong)
        assert why.value.code == -32602
    assert place.sessions[0].level == level
    assert await place.ask("logging/setLevel", {"level": "info"}, None) == {}


# Parked calls


async def outcomes(lot: ParkedCalls, *sizes: int, until: float) -> list[str]:
    for number, size in enumerate(sizes):
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        future.set_result(Raw(b"x" * size))
        lot._recent[str(number), 1] = until, future
    lot._drop_old()
    return [key for key, _ in lot._recent]


@pytest.mark.parametrize(
    ("most", "most_bytes", "kept"),
    [
        (3, 100, ["0", "1", "2"]),
        (2, 100, ["1", "2"]),
        (3, 30, ["0", "1", "2"]),
        (3, 29, ["1", "2"]),
        (3, 9, []),
    ],
)
async def test_the_latest_outcomes_of_parked_calls_are_kept_up_to_the_limits(
    virtual_time: VirtualTime,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    most_bytes: int,
    kept: list[str],
) -> None:
    monkeypatch.setattr(parked_calls, "MAX_KEPT", most)
    monkeypatch.setattr(parked_calls, "MAX_KEPT_BYTES", most_bytes)
    lot = parked_calls_of()
    assert await outcomes(lot, 10, 10, 10, until=virtual_time.now + 1) == kept
    assert await outcomes(parked_calls_of(), 1, until=virtual_time.now) == []


async def test_errors_do_not_count_towards_the_limit_and_pending_outcomes_are_not_evicted(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_calls, "MAX_KEPT_BYTES", 10)
    lot = parked_calls_of()
    loop = asyncio.get_running_loop()
    pending, failed = loop.create_future(), loop.create_future()
    failed.set_exception(RpcError(5, "no"))
    lot._recent["pending", 1] = 0.0, pending
    lot._recent["failed", 1] = virtual_time.now + 1, failed
    assert await outcomes(lot, 10, until=virtual_time.now + 1) == ["pending", "failed", "0"]
    lot.close()
    assert lot._recent == {}


@pytest.mark.parametrize(("others", "full"), [(1, False), (2, True)])
def test_parked_calls_of_one_principal_are_limited(others: int, full: bool) -> None:
    lot, hits = parked_calls_of(2), PARKED_CALLS.hits

    def call(principal: str, *, heard: bool = False) -> Any:
        return SimpleNamespace(principal=principal, heard=heard)

    mine = call("ada")
    several = [mine, call("bob"), call("ada", heard=True), *(call("ada") for _ in range(others))]
    lot._parked.update({str(n): one for n, one in enumerate(several)})
    assert lot.full(mine) is full
    assert PARKED_CALLS.hits - hits == full
    assert len(lot) == 3 + others


@pytest.mark.parametrize(
    ("data", "capabilities", "questions"),
    [
        ({"elicitations": [{"url": "u", "elicitationId": "x"}]}, b'{"elicitation":{"url":{}}}', 1),
        ({"elicitations": [{"url": "u"}]}, b"{}", 0),
        ({"elicitations": []}, b'{"elicitation":{"url":{}}}', 0),
        ({"elicitations": 5}, b'{"elicitation":{"url":{}}}', 0),
    ],
    ids=["page", "cannot visit", "none", "odd"],
)
def test_an_error_that_requires_a_page_visit_becomes_an_input_request_if_supported(
    data: Any, capabilities: bytes, questions: int
) -> None:
    connection: Any = FakeConnection()
    raw = json.dumps({"code": -32042, "message": "visit", "data": data}).encode()
    refused = RpcError(-32042, "visit", raw=raw)
    asked = exchange("tools/call", {"name": "x"}, capabilities=capabilities)
    passing: Any = SimpleNamespace(members={})
    if not questions:
        with pytest.raises(RpcError) as error:
            bridge(connection)._visits(asked, passing, refused)
        assert (error.value.code, error.value.message) == (-32603, "visit")
        return
    found = json.loads(bytes(bridge(connection)._visits(asked, passing, refused)))
    assert found["resultType"] == "input_required"
    assert found["inputRequests"] == {
        "u1": {"method": "elicitation/create", "params": {"url": "u", "mode": "url"}}
    }
    assert found["requestState"]
