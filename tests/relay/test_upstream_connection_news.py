"""What a server says of its own accord: whom it is meant for, and never a guess."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import ChannelClosed, ConnectFailed, LocalProtocolError, RpcError
from fairlead.peer import Peer
from fairlead.protocol.conversation.conversation import (
    Agreement,
    Conversation,
    ConversationRole,
)
from fairlead.protocol.identity.principal import ANONYMOUS, Principal, principal_from
from fairlead.protocol.outgoing_params import Identity
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.relay.upstream_connection import Link
from fairlead.server.context.context import LOG_LEVELS
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification
from tests.support.single_exchange import DOWN, exchange

META = "io.modelcontextprotocol/"
UPDATED = "notifications/resources/updated"
CHANGED = "notifications/tools/list_changed"


class FakeFront:
    """A session, and what it hears."""

    def __init__(self, level: str = "debug", principal: Principal = ANONYMOUS) -> None:
        self.level, self.principal = level, principal
        self.heard: list[str] = []
        self.outcome: Any = b'{"from":"front"}'
        self.taking = True

    def tell(self, note: Notification, link: Any) -> None:
        self.heard.append(note.method)

    def wants_log(self, rank: int) -> bool:
        return rank >= LOG_LEVELS.index(self.level)

    def takes(self, note: Notification) -> bool:
        return self.taking

    async def ask(self, asked: Any, outbox: Any, reply_to: Any) -> Any:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeCall:
    """A call under way, and what its client hears."""

    def __init__(
        self, front: Any = None, *, stateless: bool = True, asking: bool = True, log: bool = True
    ) -> None:
        self.front = front
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


def link_of(*, stateless: bool, related: int | None = None) -> Link:
    near, _ = memory_pair()
    identity = Identity({"name": "x", "version": "1"})
    conversation = Conversation(ConversationRole.CLIENT, identity, principal=ANONYMOUS)
    link = Link("raw", Peer(near, conversation))
    link.agreement = Agreement(revision=NEWEST if stateless else NEWEST_HANDSHAKE)
    return link


def note(method: str, **params: Any) -> Notification:
    return Notification(method, Raw(json.dumps(params).encode()) if params else UNSET)


def known(link: Link, fronts: Any = (), **calls: Any) -> None:
    link.fronts = dict.fromkeys(fronts)
    link.calls = {int(name[1:]): call for name, call in calls.items()}


async def test_a_log_message_goes_to_the_call_that_it_belongs_to() -> None:
    link, one, other = link_of(stateless=False), FakeCall(), FakeCall(log=False)
    known(link, c1=one, c2=other)
    message = note("notifications/message", level="info")
    link._passed(message, 1)
    link._passed(message, 2)
    link._passed(message, None)  # there are two, of nobody's session
    link._passed(message, 9)
    assert (one.methods, other.methods) == (["notifications/message"], [])


async def test_a_log_message_of_the_only_call_or_session_is_its_own() -> None:
    link, front = link_of(stateless=False), FakeFront("warning")
    call = FakeCall(front)
    known(link, [front], c1=call, c2=FakeCall(front))
    link._passed(note("notifications/message", level="error"), None)
    assert call.methods == ["notifications/message"]  # several of one client are as good as one
    known(link, [front])
    for level in ("info", "warning", "odd"):
        link._passed(note("notifications/message", level=level), None)
    assert front.heard == ["notifications/message"] * 2
    known(link, [front, FakeFront()])
    link._passed(note("notifications/message", level="error"), None)
    assert len(front.heard) == 2
    stateless = link_of(stateless=True)
    known(stateless, [front])
    stateless._passed(note("notifications/message", level="error"), None)
    assert len(front.heard) == 2


@pytest.mark.parametrize(
    ("watching", "sessions", "heard"),
    [((0,), 2, [1, 0]), ((0, 1), 2, [1, 1]), ((), 2, [0, 0]), ((), 1, [1])],
)
async def test_an_update_goes_to_who_watches_or_to_the_only_one(
    watching: tuple[int, ...], sessions: int, heard: list[int]
) -> None:
    link, fronts = link_of(stateless=False), [FakeFront() for _ in range(sessions)]
    known(link, fronts)
    link.uris = {"a:1": {fronts[n] for n in watching}}
    changes: list[Any] = []
    link.changes = SimpleNamespace(changed=lambda *of: changes.append(of))  # type: ignore[assignment]
    link._passed(note(UPDATED, uri="a:1"), None)
    assert [len(front.heard) for front in fronts] == heard
    assert changes == [(UPDATED, "a:1")]
    link._passed(note(UPDATED), None)
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
async def test_other_news_are_of_a_call_or_for_everybody(
    method: str, related: int | None, stateless: bool, told: bool, others: bool
) -> None:
    link, mine, other = link_of(stateless=False), FakeFront(), FakeFront()
    call = FakeCall(mine, stateless=stateless)
    known(link, [mine, other], c1=call)
    changes: list[Any] = []
    link.changes = SimpleNamespace(changed=lambda *of: changes.append(of))  # type: ignore[assignment]
    link._passed(note(method), related)
    assert bool(call.heard) is told
    assert bool(other.heard) is others
    assert bool(mine.heard) is (others and related != 1)
    assert changes == ([(CHANGED,)] if method == CHANGED else [])
    mine.taking = False
    link._passed(note(method), related)
    assert len(call.heard) == told


async def test_news_of_a_subscription_go_to_who_subscribed() -> None:
    link, call, news = link_of(stateless=True), FakeCall(), []
    known(link, c1=call, c2=FakeCall())
    link.on_news = news.append
    tag = {f"{META}subscriptionId": 1}
    link._passed(note(CHANGED, _meta=tag), None)
    assert json.loads(bytes(call.heard[0].params)) == {  # type: ignore[arg-type]
        "_meta": {f"{META}subscriptionId": 1}
    }
    link._passed(note(CHANGED, _meta={f"{META}subscriptionId": 9}), None)
    link._passed(note(CHANGED), None)
    link._passed(note("notifications/vendor"), None)  # two calls: nobody knows whose
    assert [one.method for one in news] == [CHANGED, CHANGED, "notifications/vendor"]
    link._passed(note("notifications/vendor"), 1)
    known(link, c1=call)
    link._passed(note("notifications/vendor"), None)
    assert call.methods[1:] == ["notifications/vendor"] * 2


async def test_an_acknowledgement_of_ours_is_kept_from_nobody() -> None:
    link, news = link_of(stateless=True), []
    acknowledged = "notifications/subscriptions/acknowledged"
    link.on_news = news.append
    call = FakeCall()
    known(link, c1=call)
    link.told(note(acknowledged, _meta={f"{META}subscriptionId": 5}))
    assert len(news) == 1
    link.told(note(acknowledged, _meta={f"{META}subscriptionId": 1}))
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
async def test_a_question_belongs_to_a_call_if_that_is_certain(
    calls: dict[str, bool], related: int | None, correlates: bool, found: int | None
) -> None:
    link = link_of(stateless=False)
    known(link, **{name: FakeCall(asking=asking) for name, asking in calls.items()})
    link.peer.channel.correlates_calls = correlates  # type: ignore[misc]
    assert link._call_of(related) is (None if found is None else link.calls[found])


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
async def test_a_question_that_is_not_answered_is_refused(
    outcome: Exception, code: int, message: str
) -> None:
    link, front = link_of(stateless=False), FakeFront()
    front.outcome = outcome
    known(link, [front])
    with pytest.raises(RpcError) as refused:
        await link._asked(exchange("roots/list", {}, way=DOWN))
    assert refused.value.code == code
    assert message in refused.value.message


async def test_a_question_goes_to_the_client_of_the_call_or_to_the_only_one() -> None:
    link, front, other = link_of(stateless=False), FakeFront(), FakeFront()
    other.outcome = b'{"from":"other"}'
    question = exchange("roots/list", {}, way=DOWN)
    assert await link._asked(exchange("ping", way=DOWN)) == b"{}"
    with pytest.raises(RpcError, match="roots/list: no client can be asked now") as refused:
        await link._asked(question)
    assert refused.value.code == -32601
    known(link, [front])
    assert await link._asked(question) == front.outcome
    known(link, [front, other], c1=FakeCall(other))
    assert await link._asked(question) == other.outcome
    parked = FakeCall()

    async def ask(asked: Any) -> Raw:
        return Raw(b'{"from":"parked"}')

    parked.parking = SimpleNamespace(ask=ask)
    known(link, [front, other], c1=parked)
    assert await link._asked(question) == Raw(b'{"from":"parked"}')


async def test_a_server_that_asks_beside_its_calls_does_not_tell_whose_they_are() -> None:
    link, front = link_of(stateless=False), FakeFront()
    link.peer.channel.correlates_calls = True  # type: ignore[misc]
    known(link, [front], c1=FakeCall(front))
    assert link.correlates_calls
    related = exchange("roots/list", {}, way=DOWN)
    related.related = 1
    await link._asked(related)
    assert link.correlates_calls
    await link._asked(exchange("roots/list", {}, way=DOWN))
    assert not link.correlates_calls


async def test_a_server_speaks_for_the_client_that_its_message_is_for() -> None:
    link, ada = link_of(stateless=False), principal_from("ada")
    front, call = FakeFront(principal=ada), FakeCall()
    call.exchange = exchange(principal=principal_from("bob"))
    assert link._sender(None).principal is ANONYMOUS
    known(link, [front])
    sender = link._sender(None)
    assert (sender.principal, sender.stateless, sender.revision) == (ada, False, NEWEST_HANDSHAKE)
    known(link, [front, FakeFront()])
    assert link._sender(None).principal is ANONYMOUS
    known(link, [front], c1=call)
    assert link._sender(1).principal == "bob"
    stateless = link._on_behalf_of(ada, stateless=True)
    assert (stateless.stateless, stateless.revision) == (True, NEWEST)


async def test_a_connection_is_idle_if_nobody_uses_it() -> None:
    link = link_of(stateless=False)
    assert link.idle
    known(link, [FakeFront()])
    assert not link.idle
    known(link, c1=FakeCall())
    assert not link.idle
    known(link)
    link.listeners = 1
    assert not link.idle
    link.listeners = 0
    turn = link.turns.try_take("me")
    assert turn is not None
    assert not link.idle
    turn.release()
    assert link.idle


async def test_a_call_that_goes_on_is_known_until_it_is_over() -> None:
    link = link_of(stateless=True)
    call: Any = FakeCall()
    call.sent_as = 7
    with link.goes_on(call):
        assert link.calls == {7: call}
    assert link.calls == {}


async def test_members_beside_an_answer_go_to_whoever_asked() -> None:
    link, call, came = link_of(stateless=True), FakeCall(), []
    edge: Any = call.exchange.edge
    edge.add_extra_members = lambda *of: came.append(of)
    known(link, c1=call)
    link._members_came(1, {"x": Raw(b"1")})
    link._members_came(2, {"x": Raw(b"2")})
    assert came == [(1, {"x": Raw(b"1")})]
