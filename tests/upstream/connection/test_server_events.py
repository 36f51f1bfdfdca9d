"""Requests and notifications from a server, and the calls and sessions that receive them."""

import asyncio
import contextlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import ChannelClosed, ConnectFailed, LocalProtocolError, RpcError
from fairlead.interceptor import Answer, Exchange, InterceptorBase, Proceed
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS, LOG_LEVELS, Principal, principal_from
from fairlead.protocol.conversation.conversation import (
    Agreement,
    Conversation,
    ConversationRole,
)
from fairlead.protocol.outgoing_params import Identity
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.transport.memory import memory_pair
from fairlead.upstream.connection import server_events
from fairlead.upstream.connection.upstream_connection import UpstreamConnection
from fairlead.wire import Notification
from tests.support.single_exchange import DOWN, exchange

META = "io.modelcontextprotocol/"
UPDATED = "notifications/resources/updated"
CHANGED = "notifications/tools/list_changed"


class FakeSession:
    """A fake session that records its notifications."""

    def __init__(self, level: str = "debug", principal: Principal = ANONYMOUS) -> None:
        self.level, self.principal = level, principal
        self.heard: list[str] = []
        self.outcome: Any = b'{"from":"session"}'
        self.asked_in: list[Any] = []  # ids of the calls on whose streams the server sent a request
        self.taking = True
        self.peer: Any = SimpleNamespace(
            conversation=SimpleNamespace(peer=None), channel=SimpleNamespace(has_stream=True)
        )

    def tell(self, note: Notification) -> None:
        self.heard.append(note.method)

    def wants_log(self, rank: int) -> bool:
        return rank >= LOG_LEVELS.index(self.level)

    def takes(self, note: Notification) -> bool:
        return self.taking

    async def ask(self, asked: Any, outbox: Any, timeout: float, reply_to: Any) -> Any:
        self.asked_in.append(reply_to)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeCall:
    """A fake pending call that records notifications to its client."""

    def __init__(
        self, session: Any = None, *, stateless: bool = True, asking: bool = True, log: bool = True
    ) -> None:
        self.session = session
        self.exchange = exchange("tools/call", {}, stateless=stateless)
        self.may_be_asked = asking
        self.log = log
        self.parking: Any = None
        self.heard: list[Notification] = []

    def tell(self, note: Notification) -> None:
        self.heard.append(note)

    def wants_log(self, rank: int) -> bool:
        return self.log

    @property
    def methods(self) -> list[str]:
        return [one.method for one in self.heard]


def connection_of(*interceptors: Any, stateless: bool = False) -> UpstreamConnection:
    near, _ = memory_pair()
    identity = Identity({"name": "x", "version": "1"})
    conversation = Conversation(ConversationRole.CLIENT, identity, principal=ANONYMOUS)
    connection = UpstreamConnection("raw", Peer(near, conversation), interceptors=interceptors)
    connection.agreement = Agreement(revision=NEWEST if stateless else NEWEST_HANDSHAKE)
    return connection


def note(method: str, **params: Any) -> Notification:
    return Notification(method, Raw(json.dumps(params).encode()) if params else UNSET)


def known(connection: UpstreamConnection, sessions: Any = (), **calls: Any) -> None:
    connection.sessions = dict.fromkeys(sessions)
    connection.calls = {int(name[1:]): call for name, call in calls.items()}


async def test_a_log_message_is_sent_to_the_call_that_caused_it() -> None:
    connection, one, other = connection_of(), FakeCall(), FakeCall(log=False)
    known(connection, c1=one, c2=other)
    message = note("notifications/message", level="info")
    connection._passed(message, 1)
    connection._passed(message, 2)
    connection._passed(message, None)  # ambiguous, because two calls without a session are pending
    connection._passed(message, 9)
    assert (one.methods, other.methods) == (["notifications/message"], [])


async def test_a_log_message_is_sent_to_the_only_call_or_session() -> None:
    connection, session = connection_of(), FakeSession("warning")
    call = FakeCall(session)
    known(connection, [session], c1=call, c2=FakeCall(session))
    connection._passed(note("notifications/message", level="error"), None)
    assert call.methods == ["notifications/message"]  # two calls of one session are not ambiguous
    known(connection, [session])
    for level in ("info", "warning", "odd"):
        connection._passed(note("notifications/message", level=level), None)
    assert session.heard == ["notifications/message"] * 2
    known(connection, [session, FakeSession()])
    connection._passed(note("notifications/message", level="error"), None)
    assert len(session.heard) == 2
    stateless = connection_of(stateless=True)
    known(stateless, [session])
    stateless._passed(note("notifications/message", level="error"), None)
    assert len(session.heard) == 2


@pytest.mark.parametrize(
    ("watching", "sessions", "heard"),
    [((0,), 2, [1, 0]), ((0, 1), 2, [1, 1]), ((), 2, [0, 0]), ((), 1, [1])],
)
async def test_an_update_is_sent_to_the_subscribers_or_to_the_only_session(
    watching: tuple[int, ...], sessions: int, heard: list[int]
) -> None:
    connection, sessions = connection_of(), [FakeSession() for _ in range(sessions)]
    known(connection, sessions)
    connection.uris = {"a:1": {sessions[n] for n in watching}}
    changes: list[Any] = []
    connection.changes = SimpleNamespace(changed=lambda *of: changes.append(of))  # type: ignore[assignment]
    followed: list[Any] = []
    connection.followers.append(lambda *of: followed.append(of))
    connection._passed(note(UPDATED, uri="a:1"), None)
    assert followed == [(UPDATED, "a:1")]
    assert [len(session.heard) for session in sessions] == heard
    assert changes == [(UPDATED, "a:1")]
    connection._passed(note(UPDATED), None)
    assert len(changes) == 1


@pytest.mark.parametrize(
    ("method", "related", "stateless", "told", "others"),
    [
        ("notifications/vendor", 1, False, True, False),
        ("notifications/vendor", None, False, False, True),
        ("notifications/vendor", 9, False, False, True),
        (CHANGED, 1, False, True, True),
        (CHANGED, 1, True, False, True),
        (CHANGED, None, False, False, True),
        ("notifications/vendor", 1, True, True, False),
    ],
)
async def test_notifications_related_to_a_call_are_sent_to_it_and_list_changes_to_all_sessions(
    method: str, related: int | None, stateless: bool, told: bool, others: bool
) -> None:
    connection, mine, other = connection_of(), FakeSession(), FakeSession()
    call = FakeCall(mine, stateless=stateless)
    known(connection, [mine, other], c1=call)
    changes: list[Any] = []
    connection.changes = SimpleNamespace(changed=lambda *of: changes.append(of))  # type: ignore[assignment]
    connection._passed(note(method), related)
    assert bool(call.heard) is told
    assert bool(other.heard) is others
    assert bool(mine.heard) is (others and related != 1)
    assert changes == ([(CHANGED, None)] if method == CHANGED else [])
    mine.taking = False
    connection._passed(note(method), related)
    assert len(call.heard) == told


async def test_notifications_of_a_subscription_are_sent_to_its_subscriber() -> None:
    connection, call, news = connection_of(stateless=True), FakeCall(), []
    known(connection, c1=call, c2=FakeCall())
    connection.on_news = news.append
    tag = {f"{META}subscriptionId": 1}
    connection._passed(note(CHANGED, _meta=tag), None)
    assert json.loads(bytes(call.heard[0].params)) == {  # type: ignore[arg-type]
        "_meta": {f"{META}subscriptionId": 1}
    }
    connection._passed(note(CHANGED, _meta={f"{META}subscriptionId": 9}), None)
    connection._passed(note(CHANGED), None)
    # Ambiguous, because two calls are pending.
    connection._passed(note("notifications/vendor"), None)
    assert [one.method for one in news] == [CHANGED, CHANGED, "notifications/vendor"]
    connection._passed(note("notifications/vendor"), 1)
    known(connection, c1=call)
    connection._passed(note("notifications/vendor"), None)
    assert call.methods[1:] == ["notifications/vendor"] * 2


async def test_the_acknowledgement_of_a_bridge_subscription_is_sent_to_the_bridge() -> None:
    connection, news = connection_of(stateless=True), []
    acknowledged = "notifications/subscriptions/acknowledged"
    connection.on_news = news.append
    call = FakeCall()
    known(connection, c1=call)
    connection.notification_received(note(acknowledged, _meta={f"{META}subscriptionId": 5}))
    assert len(news) == 1
    connection.notification_received(note(acknowledged, _meta={f"{META}subscriptionId": 1}))
    assert (len(news), call.methods) == (1, [acknowledged])


@pytest.mark.parametrize(
    ("calls", "related", "correlates", "found"),
    [
        ({"c1": True}, 1, False, 1),
        ({"c1": True}, 2, False, None),
        ({"c1": True}, None, False, 1),
        ({"c1": True, "c2": False}, None, False, 1),
        ({"c1": True, "c2": True}, None, False, None),
        ({"c1": False}, None, False, None),
        ({"c1": True}, None, True, None),
        ({"c1": True}, 1, True, 1),
    ],
)
async def test_a_server_request_belongs_to_a_call_if_only_one_call_is_possible(
    calls: dict[str, bool], related: int | None, correlates: bool, found: int | None
) -> None:
    connection = connection_of()
    known(connection, **{name: FakeCall(asking=asking) for name, asking in calls.items()})
    connection.peer.channel.correlates_calls = correlates  # type: ignore[misc]
    assert connection._call_of(related) is (None if found is None else connection.calls[found])


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        (RpcError(5, "its own"), 5, "its own"),
        (LocalProtocolError("not now", code=-32600), -32600, "not now"),
        (ChannelClosed("x", public="has gone"), -32603, "was not answered: the client has gone"),
        (ConnectFailed("x", public="is away"), -32603, "was not answered: the client is away"),
    ],
    ids=["refused", "protocol", "gone", "away"],
)
async def test_a_server_request_that_the_client_does_not_answer_is_refused(
    outcome: Exception, code: int, message: str
) -> None:
    connection, session = connection_of(), FakeSession()
    session.outcome = outcome
    known(connection, [session])
    with pytest.raises(RpcError) as refused:
        await connection._asked(exchange("roots/list", {}, way=DOWN))
    assert refused.value.code == code
    assert message in refused.value.message


async def test_a_server_request_is_sent_to_the_client_of_the_call_or_to_the_only_session() -> None:
    connection, session, other = connection_of(), FakeSession(), FakeSession()
    other.outcome = b'{"from":"other"}'
    question = exchange("roots/list", {}, way=DOWN)
    assert await connection._asked(exchange("ping", way=DOWN)) == b"{}"
    with pytest.raises(RpcError, match="roots/list: no client can receive it now") as refused:
        await connection._asked(question)
    assert refused.value.code == -32601
    known(connection, [session])
    assert await connection._asked(question) == session.outcome
    known(connection, [session, other], c1=FakeCall(other))
    assert await connection._asked(question) == other.outcome
    parked = FakeCall()

    async def ask(asked: Any) -> Raw:
        return Raw(b'{"from":"parked"}')

    parked.parking = SimpleNamespace(ask=ask)
    known(connection, [session, other], c1=parked)
    assert await connection._asked(question) == Raw(b'{"from":"parked"}')


async def test_a_server_request_during_several_calls_of_one_session_is_sent_to_the_session() -> (
    None
):
    connection, session, other = connection_of(), FakeSession(), FakeSession()
    question = exchange("elicitation/create", {}, way=DOWN)
    calls = {"c1": FakeCall(session), "c2": FakeCall(session)}
    known(connection, [session, other], **calls)
    assert await connection._asked(question) == session.outcome
    assert session.asked_in == [calls["c1"].exchange.request_id]
    known(connection, [session, other], **calls, c3=FakeCall(other))
    with pytest.raises(RpcError, match="no client can receive it now"):
        await connection._asked(question)


async def test_a_server_request_outside_the_stream_of_a_call_ends_correlation_by_stream() -> None:
    connection, session = connection_of(), FakeSession()
    connection.peer.channel.correlates_calls = True  # type: ignore[misc]
    known(connection, [session], c1=FakeCall(session))
    assert connection.correlates_calls
    related = exchange("roots/list", {}, way=DOWN)
    related.related = 1
    await connection._asked(related)
    assert connection.correlates_calls
    await connection._asked(exchange("roots/list", {}, way=DOWN))
    assert not connection.correlates_calls


async def test_a_message_from_the_server_has_the_principal_of_its_receiver() -> None:
    connection, ada = connection_of(), principal_from("ada")
    session, call = FakeSession(principal=ada), FakeCall()
    call.exchange = exchange(principal=principal_from("bob"))
    assert connection._sender(None).principal is ANONYMOUS
    known(connection, [session])
    sender = connection._sender(None)
    assert (sender.principal, sender.stateless, sender.revision) == (ada, False, NEWEST_HANDSHAKE)
    known(connection, [session, FakeSession()])
    assert connection._sender(None).principal is ANONYMOUS
    known(connection, [session], c1=call)
    assert connection._sender(1).principal == "bob"
    stateless = connection._on_behalf_of(ada, stateless=True)
    assert (stateless.stateless, stateless.revision) == (True, NEWEST)


async def test_a_call_whose_result_requests_input_stays_registered_until_it_continues() -> None:
    connection = connection_of(stateless=True)
    call: Any = FakeCall()
    call.sent_as = 7
    with connection.goes_on(call):
        assert connection.calls == {7: call}
    assert connection.calls == {}


async def test_additional_members_of_a_result_are_sent_to_the_sender_of_its_request() -> None:
    connection, call, came = connection_of(stateless=True), FakeCall(), []
    edge: Any = call.exchange.edge
    edge.add_extra_members = lambda *of: came.append(of)
    known(connection, c1=call)
    connection.receive_extra_members(1, {"x": Raw(b"1")})
    connection.receive_extra_members(2, {"x": Raw(b"2")})
    assert came == [(1, {"x": Raw(b"1")})]


@pytest.mark.parametrize(
    ("params", "subscription", "uri"),
    [
        (b'{"_meta":{"io.modelcontextprotocol/subscriptionId":7},"uri":"a"}', 7, "a"),
        (b'{"_meta":{}}', None, None),
        (b'{"_meta":5,"uri":6}', None, None),
        (b"{}", None, None),
        (None, None, None),
    ],
)
def test_subscription_id_and_uri_are_read_from_a_notification(
    params: bytes | None, subscription: int | None, uri: str | None
) -> None:
    received = Notification("x", UNSET if params is None else Raw(params))
    assert server_events._subscription(received) == subscription
    assert server_events._read(received, server_events._Updated).uri == uri


async def test_listeners_get_every_notification_before_interceptors() -> None:
    seen: list[str] = []

    async def stop(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(f"intercepted {exchange.method}")
        return None

    connection, session = connection_of(stop), FakeSession()
    known(connection, [session])
    connection.listeners += [lambda one: seen.append(one.method)] * 2
    connection.notification_received(note(CHANGED))
    assert seen == [CHANGED] * 2
    async with asyncio.timeout(5):
        await connection.passage.passed()
    assert (seen[2:], session.heard) == ([f"intercepted {CHANGED}"], [])
    await connection.close()


async def test_an_acknowledgement_of_our_own_subscription_is_hidden_from_interceptors() -> None:
    """This applies even if no bridge receives the acknowledgement."""
    seen: list[str] = []

    async def look(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(exchange.method)
        return await proceed(exchange)

    connection = connection_of(look, stateless=True)
    ours = note("notifications/subscriptions/acknowledged", _meta={f"{META}subscriptionId": 5})
    connection.notification_received(ours)
    await connection.passage.passed()
    connection.on_news = lambda one: seen.append("ours")
    connection.notification_received(ours)
    await connection.passage.passed()
    assert seen == ["ours"]
    await connection.close()


async def test_interceptors_receive_server_requests_with_the_principal_of_the_client() -> None:
    principals: list[Any] = []

    async def look(exchange: Exchange, proceed: Proceed) -> Answer:
        principals.append(exchange.caller.principal)
        return await proceed(exchange)

    connection, session = connection_of(look), FakeSession(principal=principal_from("ada"))
    known(connection, [session])
    question = exchange("sampling/createMessage", {}, way=DOWN)
    assert await connection.request_received(question) == session.outcome
    assert principals == ["ada"]
    await connection.close()


async def test_a_session_receives_a_server_request_on_the_stream_of_its_call() -> None:
    connection, session = connection_of(), FakeSession()
    known(connection, [session], c7=FakeCall(session))
    await connection._asked(exchange("sampling/createMessage", {}, way=DOWN))
    known(connection, [session])
    await connection._asked(exchange("sampling/createMessage", {}, way=DOWN))
    assert session.asked_in == [1, None]  # 1 is the id that the client gave its call


@pytest.mark.parametrize("method", ["roots/list", "sampling/createMessage"])
@pytest.mark.parametrize("in_call", [True, False], ids=["in a call", "outside of calls"])
@pytest.mark.parametrize("outcome", [b"{}", RpcError(5, "no")], ids=["answered", "refused"])
async def test_a_session_is_reported_when_a_server_requests_its_roots(
    method: str, in_call: bool, outcome: Any
) -> None:
    connection, session, asked = connection_of(), FakeSession(), list[Any]()
    known(connection, [session], **({"c1": FakeCall(session)} if in_call else {}))
    session.outcome = outcome
    connection.on_roots = lambda *of: asked.append(of)
    with contextlib.suppress(RpcError):
        await connection._asked(exchange(method, {}, way=DOWN))
    assert asked == ([(session, in_call)] if method == "roots/list" else [])
    assert connection.roots_answered.is_set() is (method == "roots/list")


async def test_a_subscription_that_the_server_cancels_ends_with_a_result() -> None:
    connection, call, settled = connection_of(stateless=True), FakeCall(), list[Any]()
    known(connection, c1=call)
    connection.peer.settle = lambda *of: settled.append(of)  # type: ignore[method-assign,assignment]
    connection._passed(note("notifications/cancelled", requestId=1), None)
    connection._passed(note("notifications/cancelled", requestId=9), None)
    assert settled == [(1, Raw(b'{"resultType":"complete"}'))]
    assert call.heard == []


async def test_interceptors_can_change_additional_members_of_a_result() -> None:
    class Changing(InterceptorBase):
        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            return await proceed(exchange)

        def extra_members(self, exchange: Exchange, members: Any) -> Any:
            return {**members, "y": Raw(b"2")}

    connection, call, came = connection_of(Changing(), stateless=True), FakeCall(), list[Any]()
    edge: Any = call.exchange.edge
    edge.add_extra_members = lambda *of: came.append(of)
    known(connection, c1=call)
    connection.receive_extra_members(1, {"x": Raw(b"1")})
    assert came == [(1, {"x": Raw(b"1"), "y": Raw(b"2")})]
    await connection.close()
