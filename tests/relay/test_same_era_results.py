"""Results and subscriptions that a relay adapts between a client and a server of one era."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw, UnsetType, structs

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import RpcError, ServerBusy
from fairlead.protocol.caller import SUBSCRIPTION_KEY
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from fairlead.relay import same_era
from fairlead.relay.same_era import SameEraForwarder, stop_watching
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.transport.http.server.asgi import HeaderMap
from fairlead.upstream.connection.relayed_call import RelayedCall
from fairlead.upstream.connection.upstream_connection import TurnLock
from fairlead.wire.error_codes import INTERNAL_ERROR
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"notifications": {"resourceSubscriptions": ["a", "b", "a"]}}, 2),
        ({"notifications": {}}, 0),
        ({}, 0),
        (None, 0),
        # invalid params are forwarded and refused by the server
        ({"notifications": {"resourceSubscriptions": 5}}, 0),
    ],
)
def test_the_resources_of_a_listen_request_are_counted(params: Any, count: int) -> None:
    assert same_era._uri_count(exchange("subscriptions/listen", params)) == count


def test_supported_versions_in_an_error_are_replaced_by_those_of_the_relay() -> None:
    shown = json.loads(bytes(same_era._with_our_versions(Raw(b'{"a":1,"supportedVersions":[]}'))))
    ours = [revision.value for revision in reversed(Revision)]
    assert shown == {"a": 1, "supportedVersions": ours}
    assert bytes(same_era._with_our_versions(Raw(b"[1]"))) == b"[1]"


@pytest.mark.parametrize(
    ("result", "tagged"),
    [
        ({"a": 1}, {"a": 1, "_meta": {SUBSCRIPTION_KEY: 1}}),
        (
            {"_meta": {"x": 1, SUBSCRIPTION_KEY: 9}},
            {"_meta": {"x": 1, SUBSCRIPTION_KEY: 1}},
        ),
        ([1], [1]),
        ({"_meta": 5}, {"_meta": 5}),
    ],
)
def test_the_final_result_of_a_subscription_has_the_subscription_id_of_the_client(
    result: Any, tagged: Any
) -> None:
    asked = exchange("subscriptions/listen", {})
    assert json.loads(bytes(same_era._tagged(Raw(json.dumps(result).encode()), asked))) == tagged


class Watcher:
    """Session with subscriptions."""

    def __init__(self, quota: SubscriptionQuota, *uris: str) -> None:
        self.uris = quota.held("key")
        for uri in uris:
            self.uris.add(uri)


class Watched:
    def __init__(self, **uris: set[object]) -> None:
        self.uris = uris


def test_ending_a_subscription_keeps_the_other_subscribers_of_the_resource() -> None:
    quota = SubscriptionQuota()
    one, other = Watcher(quota, "a", "b"), Watcher(quota, "a")
    connection: Any = Watched(a={one, other}, b={one})
    session: Any = one
    assert stop_watching(None, session, connection) is False
    assert quota.uris.total == 3
    assert stop_watching("a", session, connection) is True
    assert connection.uris == {"a": {other}, "b": {one}}
    assert stop_watching("b", session, connection) is False
    assert (connection.uris, set(one.uris), quota.uris.total) == ({"a": {other}}, set(), 1)
    assert stop_watching("c", session, connection) is False
    last: Any = other
    assert stop_watching("a", last, connection) is False
    assert (connection.uris, quota.uris.total) == ({}, 0)


# Forwarding, without connections


class OneConnection:
    """Fake connection to a server that responds immediately and records requests."""

    def __init__(self, revision: Revision = NEWEST_HANDSHAKE, **about: Any) -> None:
        self.name = "raw"
        self.introduction = Raw(b'{"protocolVersion":"server\'s","capabilities":{}}')
        self.agreement = Agreement(revision=revision, capabilities=b"{}")
        self.sessions: list[Any] = []
        self.calls: dict[Any, Any] = {}
        self.uris: dict[str, set[Any]] = {}
        self.borrowed = about.get("borrowed", False)
        self.correlates_calls = about.get("correlates", False)
        self.turns = TurnLock()
        self.given_headers: list[tuple[Any, Any]] = []
        self.carries_headers = about.get("carries_headers", True)
        self.peer = SimpleNamespace(channel=self)
        self.sent: list[tuple[Any, float]] = []
        self.turned: list[bool] = []
        self.result: Raw | BaseException = Raw(b'{"a":1}')
        self.goes_on: asyncio.Event | None = None
        self.over = 0

    def add_headers(self, sent: Any, headers: Any) -> None:
        self.given_headers.append((sent, headers))

    async def pass_on(
        self,
        call: RelayedCall,
        passing: Any,
        *,
        timeout: float,
        on_sent: Any = None,
        turn: Any = None,
    ) -> Raw:
        params = passing.fill(9)
        plain = None if isinstance(params, UnsetType) else json.loads(bytes(params))
        self.sent.append((plain, timeout))
        self.turned.append(turn is not None)
        if on_sent is not None:
            on_sent(9)
        if self.goes_on is not None:
            try:
                await self.goes_on.wait()
            finally:
                await asyncio.sleep(0)  # time to send the cancellation to the server
                self.over += 1
        if turn is not None:
            turn.release()
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class OneSession:
    """Fake session with a log level and subscriptions."""

    def __init__(
        self, connection: OneConnection, quota: SubscriptionQuota, level: str | None = None
    ) -> None:
        self.level = level
        self.uris = quota.held("key")
        self.asked = 0
        self.outbox = None
        self.revisions: list[Revision] = []
        conversation = SimpleNamespace(set_revision=self.revisions.append)
        self.peer = SimpleNamespace(conversation=conversation)
        connection.sessions.append(self)


async def no_other_connection(session: Any, caller: Any) -> Any:
    raise ServerBusy("raw is busy", public="is busy")


def forwarder(
    move: Any = no_other_connection, quota: SubscriptionQuota | None = None, **settings: Any
) -> SameEraForwarder:
    pool: Any = SimpleNamespace(settings=UpstreamSettings(**settings))
    return SameEraForwarder(pool, quota or SubscriptionQuota(), move)


def session_of(connection: OneConnection, level: str | None = None) -> Any:
    return OneSession(connection, SubscriptionQuota(), level)


async def in_session(
    connection: OneConnection, session: Any, method: str, params: Any = None, **about: Any
) -> bytes:
    there: Any = connection
    asked = exchange(method, params, stateless=False, **about)
    answer = await forwarder().forward_in_session(asked, session, there)
    return bytes(answer or b"")


@pytest.mark.parametrize(
    ("asked", "theirs", "version", "set_to"),
    [
        (Revision.V2025_06_18, Revision.V2025_03_26, "server's", [Revision.V2025_03_26]),
        (Revision.V2025_06_18, Revision.V2025_06_18, "server's", []),
        (Revision.V2025_06_18, Revision.V2025_11_25, "2025-06-18", []),
    ],
    ids=["older", "same", "newer"],
)
def test_the_initialize_result_has_the_older_of_both_revisions(
    asked: Revision, theirs: Revision, version: str, set_to: list[Revision]
) -> None:
    connection: Any = OneConnection(theirs)
    session = session_of(connection)
    request = exchange("initialize", {}, stateless=False)
    request.caller = structs.replace(request.caller, revision=asked)
    result = forwarder().initialized(request, session, connection)
    assert json.loads(bytes(result or b""))["protocolVersion"] == version
    assert (result is connection.introduction) is (version == "server's")
    assert session.revisions == set_to


@pytest.mark.parametrize(
    ("level", "others", "sent"),
    [
        ("error", [], "error"),
        ("error", [None], "error"),
        ("error", ["info"], "info"),
        ("info", ["error"], "info"),
        ("error", ["info", "debug", None], "debug"),
        ("loud", ["info"], "loud"),
    ],
)
async def test_the_server_gets_the_lowest_log_level_of_all_sessions(
    level: str, others: list[str | None], sent: str
) -> None:
    connection = OneConnection()
    session = session_of(connection, "alert")
    for other in others:
        session_of(connection, other)
    assert await in_session(connection, session, "logging/setLevel", {"level": level}) == b'{"a":1}'
    assert connection.sent == [({"level": sent}, 3600.0)]
    assert session.level == ("alert" if level == "loud" else level)


@pytest.mark.parametrize("params", [None, {}, {"level": 7}])
async def test_a_missing_or_invalid_log_level_is_forwarded_to_be_rejected_by_the_server(
    params: Any,
) -> None:
    connection = OneConnection()
    session = session_of(connection, "alert")
    await in_session(connection, session, "logging/setLevel", params)
    assert (connection.sent, session.level) == ([(params, 3600.0)], "alert")


async def test_requests_outside_of_sessions_record_no_level_or_subscription() -> None:
    connection = OneConnection()
    for method, params in (
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "a:1"}),
        ("resources/unsubscribe", {"uri": "a:1"}),
    ):
        assert await in_session(connection, None, method, params) == b'{"a":1}'
        connection.result = RpcError(-5, "no")
        with pytest.raises(RpcError, match="no"):
            await in_session(connection, None, method, params)
        connection.result = Raw(b'{"a":1}')
    assert connection.uris == {}


async def test_the_earlier_log_level_is_restored_if_the_server_rejects_the_new_level() -> None:
    connection = OneConnection()
    connection.result = RpcError(-5, "no")
    session = session_of(connection, "alert")
    with pytest.raises(RpcError, match="no"):
        await in_session(connection, session, "logging/setLevel", {"level": "info"})
    assert session.level == "alert"


async def test_a_subscription_is_recorded_unless_the_server_refuses_it() -> None:
    connection = OneConnection()
    one, other = session_of(connection), session_of(connection)
    for session in (one, other):
        await in_session(connection, session, "resources/subscribe", {"uri": "a:1"})
    assert connection.uris == {"a:1": {one, other}}
    connection.result = RpcError(-5, "no")
    for uri in ("a:1", "b:1"):  # a refused request does not end an existing subscription
        with pytest.raises(RpcError, match="no"):
            await in_session(connection, one, "resources/subscribe", {"uri": uri})
    assert (connection.uris, set(one.uris)) == ({"a:1": {one, other}}, {"a:1"})
    connection.result, before = Raw(b'{"a":1}'), len(connection.sent)
    assert await in_session(connection, one, "resources/unsubscribe", {"uri": "a:1"}) == b"{}"
    assert (len(connection.sent), connection.uris, set(one.uris)) == (
        before,
        {"a:1": {other}},
        set(),
    )
    assert (
        await in_session(connection, other, "resources/unsubscribe", {"uri": "a:1"}) == b'{"a":1}'
    )
    assert (len(connection.sent), connection.uris) == (before + 1, {})
    # Requests without a URI are forwarded and refused by the server.
    for method in ("resources/subscribe", "resources/unsubscribe"):
        assert await in_session(connection, one, method, {}) == b'{"a":1}'
    assert connection.uris == {}


@pytest.mark.parametrize(
    ("borrowed", "watched", "sent"),
    [(True, False, 0), (True, True, 1), (False, False, 1), (False, True, 1)],
)
async def test_a_client_cannot_end_a_subscription_that_the_gateway_uses(
    borrowed: bool, watched: bool, sent: int
) -> None:
    connection = OneConnection(borrowed=borrowed)
    session = session_of(connection)
    if watched:
        await in_session(connection, session, "resources/subscribe", {"uri": "a:1"})
        connection.sent.clear()
    await in_session(connection, session, "resources/unsubscribe", {"uri": "a:1"})
    assert len(connection.sent) == sent


@pytest.mark.parametrize(
    ("method", "capabilities", "correlates", "with_session", "turn"),
    [
        ("tools/call", b'{"roots":{}}', False, True, True),
        ("tools/call", b'{"roots":{}}', True, True, False),
        ("tools/call", b'{"roots":{}}', False, False, False),
        ("tools/call", b"{}", False, True, False),
        ("tools/list", b'{"roots":{}}', False, True, False),
    ],
)
async def test_calls_during_which_the_server_may_request_input_take_turns(
    method: str, capabilities: bytes, correlates: bool, with_session: bool, turn: bool
) -> None:
    connection = OneConnection(correlates=correlates)
    session = session_of(connection) if with_session else None
    await in_session(connection, session, method, {"name": "x"}, capabilities=capabilities)
    assert connection.turned == [turn]
    assert connection.turns.free


async def test_a_session_with_an_unanswered_server_request_does_not_wait_for_a_turn(
    virtual_time: VirtualTime,
) -> None:
    connection: Any = OneConnection()
    one, other = session_of(connection), session_of(connection)
    relay, begun = forwarder(turn_wait=0.25, turn_timeout=5.0), virtual_time.now
    call = exchange("tools/call", {"name": "x"}, stateless=False, capabilities=b'{"roots":{}}')
    held = connection.turns.try_take(one)
    waiting = asyncio.create_task(relay.forward_in_session(call, other, connection))
    await asyncio.sleep(0)
    one.asked = 1
    assert await relay.forward_in_session(call, one, connection) == Raw(b'{"a":1}')
    one.asked = 0
    with pytest.raises(RpcError, match="raw is busy: other clients use it") as refused:
        await relay.forward_in_session(call, one, connection)
    assert refused.value.code == INTERNAL_ERROR
    assert virtual_time.now - begun == pytest.approx(5.25)
    with pytest.raises(RpcError, match="raw is busy"):
        await waiting
    assert len(connection.sent) == 1
    assert held is not None
    held.release()


ASKABLE_CALL = {"stateless": False, "capabilities": b'{"roots":{}}'}


async def test_a_session_that_waits_for_its_turn_is_moved_to_another_connection(
    virtual_time: VirtualTime,
) -> None:
    connection: Any = OneConnection()
    other: Any = OneConnection()
    session = session_of(connection)
    moved: list[Any] = []

    async def move(*of: Any) -> Any:
        moved.append(of)
        return other

    relay, begun = forwarder(move), virtual_time.now
    call = exchange("tools/call", {"name": "x"}, **ASKABLE_CALL)
    held = connection.turns.try_take("another session")
    assert await relay.forward_in_session(call, session, connection) == Raw(b'{"a":1}')
    assert virtual_time.now - begun == pytest.approx(0.25)
    assert moved == [(session, call.caller)]
    assert (connection.sent, other.sent, other.turned) == ([], [({"name": "x"}, 3600.0)], [True])
    assert (len(connection.turns._waiting), other.turns.free) == (0, True)
    held.release()


@pytest.mark.parametrize("why", ["borrowed", "another pending call"])
async def test_a_call_is_rejected_after_turn_timeout_if_its_session_cannot_be_moved(
    virtual_time: VirtualTime, why: str
) -> None:
    connection: Any = OneConnection(borrowed=why == "borrowed")
    session = session_of(connection)
    if why != "borrowed":
        connection.calls = {7: SimpleNamespace(session=session)}

    async def move(*_: Any) -> Any:
        raise AssertionError("the session must not be moved")

    relay, begun = forwarder(move, turn_timeout=5.0), virtual_time.now
    held = connection.turns.try_take("another session")
    call = exchange("tools/call", {"name": "x"}, **ASKABLE_CALL)
    with pytest.raises(RpcError, match="raw is busy: other clients use it"):
        await relay.forward_in_session(call, session, connection)
    assert virtual_time.now - begun == pytest.approx(5.0)
    held.release()


@pytest.mark.parametrize(
    ("revision", "same"),
    [
        (Revision.V2025_03_26, True),
        (Revision.V2025_06_18, True),
        (Revision.V2025_11_25, False),
    ],
)
async def test_a_result_is_adapted_to_the_revision_of_an_older_client(
    revision: Revision, same: bool
) -> None:
    connection: Any = OneConnection(revision)
    connection.result = Raw(b'{"tools":[{"name":"x","icons":[],"inputSchema":{}}]}')
    request = exchange("tools/list", {}, stateless=False)
    request.caller = structs.replace(request.caller, revision=Revision.V2025_06_18)
    result = await forwarder().forward_in_session(request, None, connection)
    assert (result is connection.result) is same
    assert (b"icons" in bytes(result or b"")) is same


# The stateless era


HEADERS = HeaderMap({b"mcp-param-a": b"1", b"mcp-param-b": b"2", b"accept": b"x"})


@pytest.mark.parametrize(
    ("method", "headers", "carries", "given"),
    [
        ("tools/call", HEADERS, True, [(9, {"mcp-param-a": "1", "mcp-param-b": "2"})]),
        ("tools/call", HeaderMap({b"accept": b"x"}), True, []),
        ("tools/call", None, True, []),
        ("tools/call", HEADERS, False, []),
        ("tools/list", HEADERS, True, []),
    ],
)
async def test_arguments_in_headers_are_forwarded_in_headers(
    method: str, headers: HeaderMap | None, carries: bool, given: list[Any]
) -> None:
    connection: Any = OneConnection(carries_headers=carries)
    request = exchange(method, {"name": "x"})
    request.transport = structs.replace(request.transport, headers=headers)
    assert (
        await forwarder(call_timeout=7.0).forward_stateless(request, None, connection)
        is connection.result
    )
    assert (connection.given_headers, connection.sent) == (given, [({"name": "x"}, 7.0)])


async def test_discovery_returns_the_revisions_of_the_relay() -> None:
    connection: Any = OneConnection()
    result = await forwarder(call_timeout=7.0).forward_stateless(
        exchange("server/discover", {}), None, connection
    )
    assert b'"supportedVersions"' in bytes(result or b"")
    assert connection.sent == [({}, 7.0)]


async def test_a_subscription_lasts_until_the_client_or_the_server_ends_it() -> None:
    connection: Any = OneConnection()
    connection.goes_on = asyncio.Event()
    quota = SubscriptionQuota()
    relay = forwarder(quota=quota)
    params = {"notifications": {"resourceSubscriptions": ["a:1", "a:2"]}}
    asked = [exchange("subscriptions/listen", params) for _ in range(3)]
    streams = [asyncio.create_task(relay.forward_stateless(one, None, connection)) for one in asked]
    for _ in range(3):
        await asyncio.sleep(0)
    assert connection.sent == [(params, 0)] * 3
    assert quota.uris.total == 6
    relay.hang_up(asked[1].edge)
    ended = json.loads(bytes(await streams[1] or b""))
    assert ended == {"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: 1}}
    assert [one.done() for one in streams] == [False, True, False]
    assert quota.uris.total == 4
    connection.result = Raw(b'{"b":2}')
    connection.goes_on.set()
    assert json.loads(bytes(await streams[0] or b""))["b"] == 2
    connection.goes_on.clear()
    await streams[2]
    last = asyncio.create_task(relay.forward_stateless(asked[0], None, connection))
    for _ in range(3):
        await asyncio.sleep(0)
    relay.hang_up()
    assert json.loads(bytes(await last or b""))["resultType"] == "complete"
    assert quota.uris.total == 0


async def test_cancelling_a_subscription_ends_it_at_the_server() -> None:
    connection: Any = OneConnection()
    connection.goes_on = asyncio.Event()
    relay = forwarder()
    stream = asyncio.create_task(
        relay.forward_stateless(exchange("subscriptions/listen", {}), None, connection)
    )
    for _ in range(3):
        await asyncio.sleep(0)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert connection.over == 1
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    connection.result = RpcError(-5, "no")
    connection.goes_on.set()
    with pytest.raises(RpcError, match="no"):
        await relay.forward_stateless(exchange("subscriptions/listen", {}), None, connection)
