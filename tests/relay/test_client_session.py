"""Handshake sessions through a relay: routing and order of messages."""

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, InterceptorBase, Proceed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.envelope import SessionState
from fairlead.protocol.revisions import Revision
from fairlead.relay.client_session import LEVELS, ClientSession
from fairlead.upstream.connection.upstream_connection import TurnLock
from fairlead.wire import Notification, to_json
from tests.support.raw_relay import ASKED, HANDSHAKE, LIMIT, scene, two_sessions
from tests.support.single_exchange import DOWN, exchange

# Sessions with roots can share a connection only after its first call.
WITHOUT_ROOTS = {name: declared for name, declared in ASKED.items() if name != "roots"}
FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}


@pytest.mark.covers("GTW-03", "GTW-05")
async def test_two_clients_with_the_same_request_ids_get_their_own_responses() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        for n in range(20):
            one.ask("tools/call", {"name": "one", "arguments": {"n": n}}, n)
            other.ask("tools/call", {"name": "other", "arguments": {"n": n}}, n)
        requests = [await server.method("tools/call") for _ in range(40)]
        assert len({request["id"] for request in requests}) == 40
        for request in reversed(requests):
            server.reply(request, {"was": request["params"]})
        for end, name in ((one, "one"), (other, "other")):
            for _ in range(20):
                answer = await end.read()
                expected = {"name": name, "arguments": {"n": answer["id"]}}
                assert answer["result"]["was"] == expected
        assert len(place.servers) == 1


@pytest.mark.covers("GTW-03")
async def test_requests_and_notifications_arrive_in_the_order_in_which_they_are_sent() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        for n in range(50):
            client.tell("notifications/vendor", {"n": n})
            server.tell("notifications/vendor", {"n": n})
        assert [(await server.read())["params"]["n"] for _ in range(50)] == list(range(50))
        assert [(await client.read())["params"]["n"] for _ in range(50)] == list(range(50))


@pytest.mark.covers("GTW-03")
async def test_a_cancellation_is_forwarded_with_its_reason_in_both_directions() -> None:
    async with scene() as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        question = server.ask("elicitation/create", FORM)
        asked = await client.method("elicitation/create")
        server.tell("notifications/cancelled", {"requestId": question, "reason": "never mind"})
        told = await client.method("notifications/cancelled")
        assert told["params"] == {"requestId": asked["id"], "reason": "never mind"}
        client.tell("notifications/cancelled", {"requestId": call, "reason": "too slow"})
        told = await server.method("notifications/cancelled")
        assert told["params"] == {"requestId": request["id"], "reason": "too slow"}
        # This response arrives after the cancellation and is dropped.
        server.reply(request, {"content": []})
        client.reply(asked, {"action": "accept"})
        await client.sync()
        assert not any(m.get("id") == call for m in client.skipped)


async def test_progress_is_forwarded_in_both_directions_with_the_token_of_each_side() -> None:
    async with scene() as place:
        client = await place.session(ASKED)
        server = await place.server()
        params = {"name": "x", "_meta": {"progressToken": "mine", "vendor": 1}}
        call = client.ask("tools/call", params)
        request = await server.method("tools/call")
        assert request["params"]["_meta"]["vendor"] == 1
        token = request["params"]["_meta"]["progressToken"]
        note = {"progressToken": token, "progress": 1, "message": "m", "vendor": 2.5}
        server.tell("notifications/progress", note)
        got = await client.method("notifications/progress")
        assert got["params"] == {**note, "progressToken": "mine"}
        sample = {"messages": [], "maxTokens": 1, "_meta": {"progressToken": 77}}
        server.ask("sampling/createMessage", sample, "s1")
        asked = await client.method("sampling/createMessage")
        theirs = asked["params"]["_meta"]["progressToken"]
        client.tell("notifications/progress", {"progressToken": theirs, "progress": 0.5})
        client.reply(asked, {"role": "assistant"})
        up = await server.method("notifications/progress")
        assert up["params"] == {"progressToken": 77, "progress": 0.5}
        assert (await server.answer_to("s1"))["result"] == {"role": "assistant"}
        server.reply(request, {"content": []})
        await client.answer_to(call)


@pytest.mark.covers("GTW-05")
async def test_a_server_request_is_sent_to_the_client_whose_call_caused_it() -> None:
    async with scene(max_connections=1) as place:
        one, other, server = await two_sessions(place, WITHOUT_ROOTS)
        first = one.ask("tools/call", {"name": "one"})
        request = await server.method("tools/call")
        second = other.ask("tools/call", {"name": "other"})  # this call waits for its turn
        server.ask("elicitation/create", FORM, "s1")
        asked = await one.method("elicitation/create")
        # The client with an unanswered server request may send another call,
        # although another client waits for its turn.
        inner = one.ask("tools/call", {"name": "inner"})
        between = await server.method("tools/call")
        assert between["params"]["name"] == "inner"
        server.reply(between, {"content": []})
        assert "result" in await one.answer_to(inner)
        one.reply(asked, {"action": "decline"})
        assert (await server.answer_to("s1"))["result"] == {"action": "decline"}
        server.reply(request, {"content": []})
        assert "result" in await one.answer_to(first)
        request = await server.method("tools/call")
        assert request["params"]["name"] == "other"
        server.ask("elicitation/create", FORM, "s2")
        other.reply(await other.method("elicitation/create"), {"action": "cancel"})
        assert (await server.answer_to("s2"))["result"] == {"action": "cancel"}
        server.reply(request, {"content": []})
        assert "result" in await other.answer_to(second)
        assert not any(m.get("method") == "elicitation/create" for m in one.skipped)


@pytest.mark.covers("GTW-05")
async def test_a_session_that_joins_a_connection_does_not_affect_a_pending_call() -> None:
    async with scene(max_connections=1) as place:
        one = await place.session(WITHOUT_ROOTS)
        server = await place.server()
        first = one.ask("tools/call", {"name": "one"})
        request = await server.method("tools/call")
        other = await place.session(WITHOUT_ROOTS)  # becomes the second session on the connection
        other.ask("tools/call", {"name": "other"})
        await other.sync()
        server.ask("elicitation/create", FORM, "s1")
        one.reply(await one.method("elicitation/create"), {"action": "accept"})
        assert (await server.answer_to("s1"))["result"] == {"action": "accept"}
        server.reply(request, {"content": []})
        assert "result" in await one.answer_to(first)
        assert (await server.method("tools/call"))["params"]["name"] == "other"


async def test_a_client_that_does_not_read_does_not_block_other_clients() -> None:
    async with scene(max_connections=1) as place:
        slow, other, server = await two_sessions(place, WITHOUT_ROOTS)
        slow.ask("tools/call", {"name": "slow", "_meta": {"progressToken": 1}})
        request = await server.method("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        big = {"progressToken": token, "progress": 1, "message": "x" * 500_000}
        for n in range(1, 21):
            server.tell("notifications/progress", {**big, "progress": n})
        server.reply(request, {"content": []})
        call = other.ask("tools/call", {"name": "other"})
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await other.answer_to(call)


@pytest.mark.covers("GTW-05")
async def test_each_session_has_its_own_connection_if_configured() -> None:
    async with scene(share="session") as place:
        one, other = await place.session(), await place.session()
        first, second = await place.server(), await place.server()
        one.tell("notifications/vendor", {"who": "one"})
        heard = await first.method("notifications/vendor")
        assert heard["params"] == {"who": "one"}
        await one.close()
        assert await first.line() == b""  # the connection is closed with its session
        call = other.ask("tools/list")
        second.reply(await second.method("tools/list"), {"tools": []})
        assert "result" in await other.answer_to(call)


async def test_an_unused_connection_is_closed_after_its_idle_time() -> None:
    async with scene(idle_close=0.05) as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        end = asyncio.ensure_future(server.line())
        done, _ = await asyncio.wait((end,), timeout=0.2)
        assert not done  # stays open while a session uses it
        await client.close()
        assert await end == b""
        assert place.relay.pool.connections == []
        again = await place.session()
        await place.server()
        assert "result" in await again.answer_to(again.ask("ping"))


# Capabilities that affect servers. Each combination needs its own connection.
KINDS: list[dict[str, Any]] = [
    {"sampling": {}},
    {"sampling": {"tools": {}}},
    {"roots": {}},
    {"elicitation": {"form": {}}},
    {"elicitation": {"url": {}}},
    {"elicitation": {"form": {}, "url": {}}},
]


@pytest.mark.parametrize("shared", [True, False])
async def test_callers_with_different_capabilities_open_a_limited_number_of_connections(
    shared: bool,
) -> None:
    async with scene(max_connections=3, shared=shared) as place:
        place.relay.pool.evictable_after = 0.0
        client = await place.client()
        for kind in KINDS:
            call = client.stateless("tools/list", {}, kind)
            server = await place.server()
            server.reply(await server.method("tools/list"), {"tools": []})
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == len(KINDS)
        assert len(place.relay.pool.connections) == 3
        # The order of capabilities does not matter for the connection.
        opened = len(place.servers)
        for declared in ({"sampling": {}, "roots": {}}, {"roots": {}, "sampling": {}}):
            call = client.stateless("tools/list", {}, declared)
            if len(place.servers) == opened:
                server = await place.server()
            server.reply(await server.method("tools/list"), {"tools": []})
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == opened + 1


async def test_experimental_capabilities_do_not_cause_another_connection() -> None:
    async with scene() as place:
        client, server = await place.client(), None
        for n in range(6):
            call = client.stateless("tools/list", {}, {"experimental": {f"kind{n}": {}}})
            server = server or await place.server()
            server.reply(await server.method("tools/list"), {"tools": []})
            assert "result" in await client.answer_to(call)
        assert len(place.servers) == 1


async def test_a_caller_that_needs_another_connection_is_rejected_at_the_limit() -> None:
    async with scene(max_connections=1) as place:
        client = await place.client()
        call = client.stateless("tools/list", {}, {"sampling": {}})
        server = await place.server()
        request = await server.method("tools/list")
        other = client.stateless("tools/list", {}, {"roots": {}})
        error = (await client.answer_to(other))["error"]
        assert "in use" in error["message"]
        assert error["data"]["source"] == "proxy"
        server.reply(request, {"tools": []})
        assert "result" in await client.answer_to(call)


async def test_connections_of_single_sessions_count_towards_the_limit() -> None:
    async with scene(share="session", max_connections=2) as place:
        one = await place.session()
        await place.session()
        third = await place.client()
        refused = await third.initialize()
        assert "in use" in refused["error"]["message"]
        await one.close()
        async with asyncio.timeout(LIMIT):
            while len(place.relay.pool.connections) > 1:
                await asyncio.sleep(0.01)
        await place.session()


async def test_a_session_is_rejected_at_once_while_a_quiet_session_has_the_only_connection() -> (
    None
):
    async with scene(share="session", max_connections=1) as place:
        one, other = await place.session(), await place.client()
        # The refusal must not wait until the quiet session loses its connection after a minute.
        async with asyncio.timeout(1):
            refused = await other.initialize()
        assert "1 connections to it are in use" in refused["error"]["message"]
        await one.close()
        async with asyncio.timeout(LIMIT):
            while place.relay.pool.connections:
                await asyncio.sleep(0.01)
        await place.session()


async def test_a_stateless_call_may_use_the_connection_of_a_session_during_its_handshake() -> None:
    introduction = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "slow", "version": "1"},
    }
    async with scene(era="handshake") as place:
        place.relay.pool.opener.speaks_stateless = False
        one, other = await place.client(), await place.client()
        assert "result" in await one.answer_to(one.ask("initialize", introduction))
        call = other.stateless("tools/list")
        server = await place.server()
        await server.method("notifications/initialized")
        server.reply(await server.method("tools/list"), {"tools": []})
        assert (await other.answer_to(call))["result"]["tools"] == []


# Sessions that share a connection take turns, or get another connection


@pytest.mark.covers("GTW-05")
async def test_a_session_that_waits_for_its_turn_gets_another_connection() -> None:
    async with scene(turn_wait=0.05) as place:
        one, other, server = await two_sessions(place, WITHOUT_ROOTS)
        assert len(place.servers) == 1
        await other.answer_to(other.ask("logging/setLevel", {"level": "error"}))
        await other.answer_to(other.ask("resources/subscribe", {"uri": "a:1"}))
        first = one.ask("tools/call", {"name": "one"})
        request = await server.method("tools/call")
        second = other.ask("tools/call", {"name": "other"})
        another = await place.server()
        moved = await another.method("tools/call")
        assert moved["params"]["name"] == "other"
        assert (await another.heard("logging/setLevel"))["params"] == {"level": "error"}
        await another.heard("resources/subscribe", "a:1")
        # Each server sends its request to its own client.
        another.ask("elicitation/create", FORM, "s2")
        other.reply(await other.method("elicitation/create"), {"action": "cancel"})
        assert (await another.answer_to("s2"))["result"] == {"action": "cancel"}
        server.ask("elicitation/create", FORM, "s1")
        one.reply(await one.method("elicitation/create"), {"action": "accept"})
        assert (await server.answer_to("s1"))["result"] == {"action": "accept"}
        another.reply(moved, {"content": []})
        server.reply(request, {"content": []})
        assert "result" in await one.answer_to(first)
        assert "result" in await other.answer_to(second)
        assert [len(each.sessions) for each in place.relay.pool.connections] == [1, 1]


async def test_a_session_that_moves_leaves_no_subscription_on_its_old_connection() -> None:
    async with scene(turn_wait=0.05) as place:
        one, other, server = await two_sessions(place, WITHOUT_ROOTS)
        await other.answer_to(other.ask("resources/subscribe", {"uri": "a:1"}))
        first = one.ask("tools/call", {"name": "one"})
        request = await server.method("tools/call")
        second = other.ask("tools/call", {"name": "other"})
        another = await place.server()
        another.reply(await another.method("tools/call"), {"content": []})
        await other.answer_to(second)
        server.reply(request, {"content": []})
        await one.answer_to(first)
        left, joined = place.relay.pool.connections
        assert (list(left.uris), list(joined.uris)) == ([], ["a:1"])
        await server.heard("resources/unsubscribe", "a:1")


async def test_concurrent_calls_of_one_session_stay_on_its_connection() -> None:
    async with scene(turn_wait=0.05) as place:
        one, _, server = await two_sessions(place, WITHOUT_ROOTS)
        calls = [one.ask("tools/call", {"name": f"t{n}"}) for n in range(3)]
        for _ in calls:
            server.reply(await server.method("tools/call"), {"content": []})
        for call in calls:
            assert "result" in await one.answer_to(call)
        assert len(place.servers) == 1


async def test_a_list_change_during_a_call_is_sent_to_all_sessions() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        call = one.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        server.tell("notifications/tools/list_changed", {"vendor": 1})
        server.reply(request, {"content": []})
        await one.answer_to(call)
        for told in (one.skipped[0], await other.read()):
            assert told["method"] == "notifications/tools/list_changed"
            assert told["params"] == {"vendor": 1}


async def test_turns_are_granted_in_order_of_arrival_and_skip_cancelled_waiters() -> None:
    turns = TurnLock()
    held = turns.try_take("a")
    assert held is not None
    order: list[str] = []

    async def take(who: str) -> None:
        turn = await turns.take(who, LIMIT)
        order.append(who)
        turn.release()
        turn.release()  # has no effect the second time

    tasks = [asyncio.ensure_future(take(who)) for who in "bcd"]
    await asyncio.sleep(0)
    assert turns.try_take("a") is None  # other owners wait
    assert turns.try_take("b", urgent=True) is None  # the turn belongs to another owner
    urgent = turns.try_take("a", urgent=True)
    assert urgent is not None
    # A turn that is granted to a cancelled waiter goes to the next waiter.
    tasks[0].cancel()
    held.release()
    assert not order
    urgent.release()
    await asyncio.wait(tasks)
    assert order == ["c", "d"]
    assert turns.free
    began = time.monotonic()
    held = turns.try_take("a")
    with pytest.raises(TimeoutError):
        await turns.take("b", 0.01)
    assert time.monotonic() - began < LIMIT
    assert held is not None
    held.release()
    assert turns.free


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("notifications/tools/list_changed", None),
        ("notifications/prompts/list_changed", None),
        ("notifications/resources/list_changed", None),
        ("notifications/tools/list_changed", {"vendor": 1}),
        ("notifications/prompts/list_changed", {"_meta": {"a": 1}}),
        ("notifications/message", {"level": "error", "data": "x", "logger": "l"}),
        ("notifications/elicitation/complete", {"elicitationId": "e"}),
        ("notifications/vendor/own", {"anything": [1, 2]}),
    ],
)
async def test_every_notification_of_a_server_reaches_its_client(
    method: str, params: dict[str, Any] | None
) -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        server.tell(method, params)
        told = await client.read()
        assert (told["method"], told.get("params")) == (method, params)


# Sessions without a real server


class OnePeer:
    """Fake connection of a client that records messages and returns a given response."""

    def __init__(self, revision: Revision | None = None, state: Any = SessionState.ACTIVE) -> None:
        caller = None if revision is None else SimpleNamespace(revision=revision)
        self.conversation = SimpleNamespace(state=state, peer=caller)
        self.channel = self
        self.congested, self.connected = False, True
        self.outbound = self
        self.sent: list[Notification] = []
        self.forwarded: list[Any] = []
        self.on_malformed: Any = None
        self.on_extra_members: Any = None
        self.during: Any = lambda request_id, overhear: None
        self.error: Exception | None = None

    def send(self, note: Notification, *, reply_to: Any = None) -> None:
        self.sent.append(note)

    async def forward(self, method: str, fill: Any, **about: Any) -> bytes:
        params = fill(9)
        self.forwarded.append((method, None if params is UNSET else json.loads(bytes(params))))
        self.forwarded.append({k: about[k] for k in ("extra", "timeout", "max_total", "reply_to")})
        about["on_sent"](9)
        self.during(9, about["overhear"])
        if self.error is not None:
            raise self.error
        return b'{"done":1}'


def session_of(peer: OnePeer, *interceptors: Any) -> ClientSession:
    session = ClientSession(ANONYMOUS, interceptors)
    given: Any = peer
    session.connect(given)
    return session


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        (None, ["debug", "info", "error"]),
        ("debug", ["debug", "info", "error"]),
        ("info", ["info", "error"]),
        ("error", ["error"]),
        ("emergency", []),
        ("odd", ["debug", "info", "error"]),
    ],
)
def test_log_messages_below_the_level_of_the_client_are_dropped(
    level: str | None, heard: list[str]
) -> None:
    session = ClientSession(ANONYMOUS)
    session.level = level
    found = [one for one in ("debug", "info", "error") if session.wants_log(LEVELS.index(one))]
    assert found == heard


@pytest.mark.parametrize(
    ("state", "revision", "params", "told"),
    [
        (SessionState.ACTIVE, Revision.V2025_11_25, {"level": "info"}, "same"),
        (SessionState.ACTIVE, None, {"level": "info"}, "same"),
        (SessionState.ACTIVE, Revision.V2025_11_25, None, "same"),
        (SessionState.ACTIVE, Revision.V2024_11_05, {"progressToken": 1, "message": "m"}, "less"),
        (SessionState.INITIALIZING, Revision.V2025_11_25, {"level": "info"}, "nothing"),
    ],
    ids=["same words", "no revision", "no params", "older", "not yet"],
)
def test_notifications_are_converted_to_the_revision_of_the_session(
    state: Any, revision: Revision | None, params: Any, told: str
) -> None:
    peer = OnePeer(revision, state)
    session = session_of(peer)
    raw = UNSET if params is None else Raw(to_json(params))
    note = Notification("notifications/progress", raw, {"x": Raw(b"1")})
    session.tell(note)
    assert session.revision is revision
    assert session.takes(note)
    match told:
        case "nothing":
            assert peer.sent == []
        case "same":
            assert peer.sent == [note]
            assert peer.sent[0] is note
        case "less":
            assert [one.extra for one in peer.sent] == [{"x": Raw(b"1")}]
            assert json.loads(bytes(peer.sent[0].params)) == {"progressToken": 1}  # type: ignore[arg-type]


class Edge:
    """Fake reply path to the server that records extra members."""

    log_level = None

    def __init__(self) -> None:
        self.added: list[Any] = []

    def add_extra_members(self, request_id: Any, members: Any) -> None:
        self.added.append((request_id, members))


class Outbox:
    """Fake outbox for notifications to the server."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def put(self, note: Notification) -> None:
        assert isinstance(note.params, Raw)
        self.notes.append(json.loads(bytes(note.params)))


async def ask(
    session: ClientSession,
    params: Any,
    server: Any = None,
    reply_to: int | None = None,
    edge: Any = None,
) -> Any:
    asked = exchange("sampling/createMessage", params, way=DOWN)
    asked.edge = edge or asked.edge
    return await session.ask(asked, server or Outbox(), 10.0, reply_to)


async def test_a_server_request_is_forwarded_with_its_timeouts() -> None:
    peer = OnePeer(Revision.V2025_11_25)
    session = session_of(peer)
    peer.during = lambda request_id, overhear: asked.append((session.asked, overhear))
    asked: list[Any] = []
    assert await ask(session, {"maxTokens": 1}, reply_to=5) == b'{"done":1}'
    assert peer.forwarded == [
        ("sampling/createMessage", {"maxTokens": 1}),
        {"extra": None, "timeout": 10.0, "max_total": 60.0, "reply_to": 5},
    ]
    assert (asked, session.asked) == ([(1, None)], 0)
    peer.error = RpcError(5, "no")
    with pytest.raises(RpcError, match="no"):
        await ask(session, None)
    assert session.asked == 0


async def test_a_server_request_that_the_revision_does_not_support_is_refused() -> None:
    peer = OnePeer(Revision.V2025_06_18)
    several = {"type": "object", "properties": {"x": {"type": "array", "items": {}}}}
    asked = exchange("elicitation/create", {"message": "?", "requestedSchema": several}, way=DOWN)
    server: Any = Outbox()
    with pytest.raises(RpcError, match="several choices") as refused:
        await session_of(peer).ask(asked, server, 10.0, None)
    assert (refused.value.code, refused.value.data) == (-32601, {"source": "proxy"})
    assert peer.forwarded == []


@pytest.mark.parametrize("tracked", [True, False])
async def test_progress_of_the_client_is_sent_to_the_server_if_its_request_has_a_token(
    tracked: bool,
) -> None:
    peer, server = OnePeer(Revision.V2025_11_25), Outbox()
    note = Notification("notifications/progress", Raw(b'{"progressToken":9,"progress":1}'))

    def during(request_id: Any, overhear: Any) -> None:
        assert (overhear is not None) is tracked
        if overhear is not None:
            overhear(note)

    peer.during = during
    meta = {"_meta": {"progressToken": "t"}} if tracked else {}
    await ask(session_of(peer), {"maxTokens": 1, **meta}, server)
    assert server.notes == ([{"progressToken": "t", "progress": 1}] if tracked else [])


async def test_a_response_is_sent_after_progress_that_interceptors_delay() -> None:
    go_on = asyncio.Event()

    async def hold(exchange: Exchange, proceed: Proceed) -> Answer:
        await go_on.wait()
        return await proceed(exchange)

    peer, server = OnePeer(Revision.V2025_11_25), Outbox()
    peer.conversation.sender = exchange().caller
    peer.context = exchange().transport  # type: ignore[attr-defined]
    note = Notification("notifications/progress", Raw(b'{"progressToken":9,"progress":1}'))
    peer.during = lambda request_id, overhear: overhear(note)
    asking = asyncio.create_task(
        ask(session_of(peer, hold), {"_meta": {"progressToken": "t"}}, server)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert (asking.done(), server.notes) == (False, [])
    go_on.set()
    await asking
    assert server.notes == [{"progressToken": "t", "progress": 1}]


async def test_extra_members_of_a_response_reach_the_server() -> None:
    peer, edge = OnePeer(Revision.V2025_11_25), Edge()
    session = session_of(peer)
    assert peer.on_extra_members == session.members_came
    peer.during = lambda request_id, _: session.members_came(request_id, {"x": Raw(b"1")})
    await ask(session, {}, edge=edge)
    assert edge.added == [(1, {"x": Raw(b"1")})]
    session.members_came(9, {"x": Raw(b"1")})  # request 9 was already answered
    session.members_came(8, {"x": Raw(b"1")})
    assert len(edge.added) == 1


async def test_interceptors_can_change_extra_members_of_a_response() -> None:
    class Changing(InterceptorBase):
        async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
            return await proceed(exchange)

        def extra_members(self, exchange: Exchange, members: Any) -> Any:
            return {**members, "y": Raw(b"2")}

    peer, edge = OnePeer(Revision.V2025_11_25), Edge()
    session = session_of(peer, Changing())
    peer.during = lambda request_id, _: session.members_came(request_id, {"x": Raw(b"1")})
    await ask(session, {}, edge=edge)
    assert edge.added == [(1, {"x": Raw(b"1"), "y": Raw(b"2")})]
