"""Cleanup of calls and clients on a connection after every kind of end."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ChannelClosed
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.transport.memory import memory_pair
from fairlead.upstream.connection.upstream_connection import (
    TurnLock,
    UpstreamConnection,
    first_turn,
)
from tests.support.raw_relay import ASKED, LIMIT, META, Scene, scene, two_sessions
from tests.support.virtual_time import VirtualTime


async def watching(exchange: Exchange, proceed: Proceed) -> Answer:
    return await proceed(exchange)


either_way = pytest.mark.parametrize(
    "interceptors", [(), (watching,)], ids=["without a task", "in a task"]
)


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():
            await asyncio.sleep(0)


def only_connection(place: Scene) -> UpstreamConnection:
    (connection,) = place.relay.pool.connections
    return connection


@either_way
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("end", ["result", "error", "cancel"])
async def test_a_connection_forgets_a_call_after_any_outcome(
    interceptors: Any, era: str, end: str
) -> None:
    async with scene(era, interceptors=interceptors) as place:
        client = await place.session() if era == "handshake" else await place.client()
        given_up: list[str] = []
        for method in ("warm/up", "x/y"):  # the first call opens the connection
            asks = client.ask if era == "handshake" else client.stateless
            call = asks(method, {})
            server = place.servers[-1] if place.servers else await place.server()
            request = await server.method(method)
            connection = only_connection(place)
            connection.on_unanswered = lambda: given_up.append("given up")
            assert list(connection.calls) == [request["id"]]
            assert not connection.idle
            before = connection.used
            if end == "result" or method == "warm/up":
                server.reply(request, {"resultType": "complete"})
                assert "result" in await client.answer_to(call)
            elif end == "error":
                server.refuse(request, -5, "no")
                assert (await client.answer_to(call))["error"]["code"] == -5
            else:
                client.tell("notifications/cancelled", {"requestId": call, "reason": "so"})
                told = await server.method("notifications/cancelled")
                assert told["params"] == {"requestId": request["id"], "reason": "so"}
            await eventually(lambda connection=connection: not connection.calls)  # type: ignore[misc]
            assert connection.used >= before
        await eventually(lambda: given_up == (["given up"] if end == "cancel" else []))
        assert connection.idle is (era == "stateless")  # a session keeps its connection


@either_way
async def test_a_call_without_a_response_times_out(interceptors: Any) -> None:
    async with scene(interceptors=interceptors, call_timeout=0.05) as place:
        client = await place.session()
        await place.server()
        connection = only_connection(place)
        given_up = asyncio.Event()
        connection.on_unanswered = given_up.set
        answer = await client.answer_to(client.ask("x/y", {}))
        assert answer["error"]["data"]["source"] == "proxy"
        async with asyncio.timeout(LIMIT):
            await given_up.wait()
        assert connection.calls == {}


async def test_a_disconnected_client_leaves_no_state_behind() -> None:
    async with scene() as place:
        client = await place.session()
        server = await place.server()
        await client.answer_to(client.ask("resources/subscribe", {"uri": "a:1"}))
        connection, quota = only_connection(place), place.relay.quota
        assert (list(connection.uris), quota.uris.total) == (["a:1"], 1)
        (session,) = connection.sessions
        await client.close()
        await server.heard("resources/unsubscribe", "a:1")
        await eventually(lambda: not place.relay._sessions_by_peer and not connection.sessions)
        assert (connection.uris, quota.uris.total, quota.uris.counts) == ({}, 0, {})
        assert session.connection is None
        assert connection.idle
        await eventually(lambda: not place.relay._ending)


async def test_a_subscription_lasts_until_the_last_client_disconnects() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        for client in (one, other):
            await client.answer_to(client.ask("resources/subscribe", {"uri": "a:1"}))
        connection = only_connection(place)
        await one.close()
        await eventually(lambda: len(connection.sessions) == 1)
        server.tell("notifications/resources/updated", {"uri": "a:1"})
        assert (await other.method("notifications/resources/updated"))["params"] == {"uri": "a:1"}
        assert not any(m.get("method") == "resources/unsubscribe" for m in server.seen)
        assert place.relay.quota.uris.total == 1
        await other.close()
        await server.heard("resources/unsubscribe", "a:1")


async def test_a_client_that_loses_access_to_a_resource_loses_its_subscription() -> None:
    async with scene() as place:
        one, other, server = await two_sessions(place)
        for uri in ("a:1", "a:2", "a:3"):
            await one.answer_to(one.ask("resources/subscribe", {"uri": uri}))
        await other.answer_to(other.ask("resources/subscribe", {"uri": "a:2"}))
        connection = only_connection(place)
        session, _ = connection.sessions
        place.relay.unwatch(session, lambda uri: uri == "a:1")
        assert set(session.uris) == {"a:1"}
        assert set(connection.uris) == {"a:1", "a:2"}
        await server.heard("resources/unsubscribe", "a:3")
        await other.sync()
        gone = [m["params"]["uri"] for m in server.seen if m["method"] == "resources/unsubscribe"]
        assert gone == ["a:3"]  # the other client is still subscribed to a:2
        assert place.relay.quota.uris.total == 2


async def test_a_lost_connection_is_removed_and_reported() -> None:
    async with scene() as place:
        pool = place.relay.pool
        opened: list[UpstreamConnection] = []
        lost: list[Any] = []
        pool.on_connection = opened.append
        relay_hook = pool.on_lost
        assert relay_hook is not None

        def on_lost(connection: UpstreamConnection, end: Any, sessions: list[Any]) -> None:
            lost.append((connection, type(end), sessions))
            relay_hook(connection, end, sessions)

        pool.on_lost = on_lost
        client = await place.session()
        server = await place.server()
        connection = only_connection(place)
        (session,) = connection.sessions
        assert (opened, lost, pool.opener.error) == ([connection], [], None)
        await server.close()
        await eventually(lambda: lost)
        assert lost == [(connection, ChannelClosed, [session])]
        assert (pool.connections, connection.sessions, session.connection) == ([], {}, None)
        assert not connection.alive
        assert pool._timers == {}
        call = client.ask("x/y", {})
        server = await place.server()
        server.reply(await server.method("x/y"), {})
        assert "result" in await client.answer_to(call)
        assert opened == [connection, only_connection(place)]


async def test_closing_a_connection_cancels_its_background_requests() -> None:
    async with scene(quiet={"slow/work"}) as place:
        await place.session()
        server = await place.server()
        connection = only_connection(place)
        connection.background(connection.peer.request("slow/work", {}))
        await server.method("slow/work")
        (work,) = connection._background
        assert not connection.ending
        await connection.close()
        assert connection.ending
        assert not connection.alive
        await asyncio.wait([work])
        assert work.cancelled()
        assert connection._background == set()


async def test_stateless_notifications_are_forwarded_unless_they_name_a_request() -> None:
    async with scene("stateless") as place:
        client = await place.client()
        client.stateless("x/y", {})
        server = await place.server()
        await server.method("x/y")
        for method in ("notifications/cancelled", "notifications/progress"):
            client.tell(method, {"requestId": 12345, "progressToken": 12345})
        client.tell("notifications/vendor", {"n": 1})
        told = await server.method("notifications/vendor")
        assert told["params"] == {"n": 1}
        assert [m["method"] for m in server.seen if "id" not in m] == ["notifications/vendor"]


@pytest.mark.parametrize("everybody", [True, False])
async def test_hanging_up_ends_the_listen_streams_of_one_or_all_clients(everybody: bool) -> None:
    async with scene("stateless") as place:
        one, other = await place.client(), await place.client()
        wanted = {"notifications": {"toolsListChanged": True}}
        first = one.stateless("subscriptions/listen", wanted)
        server = await place.server()
        await server.method("subscriptions/listen")
        second = other.stateless("subscriptions/listen", wanted)
        await server.method("subscriptions/listen")
        quota = place.relay.quota
        assert quota.streams.total == 2
        edges = list(place.relay._same_era._listening.values())
        place.relay.hang_up(None if everybody else edges[0])
        ended = (await one.answer_to(first))["result"]
        assert ended == {
            "resultType": "complete",
            "_meta": {f"{META}subscriptionId": first},
        }
        assert (await server.method("notifications/cancelled"))["params"]["requestId"]
        if everybody:
            assert "result" in await other.answer_to(second)
        await eventually(lambda: quota.streams.total == (0 if everybody else 1))
        assert len(place.relay._same_era._listening) == (0 if everybody else 1)


async def test_an_answered_server_request_leaves_no_state_behind() -> None:
    async with scene() as place:
        client = await place.session(ASKED)
        server = await place.server()
        call = client.ask("tools/call", {"name": "x"})
        request = await server.method("tools/call")
        (session,) = only_connection(place).sessions
        question = server.ask("roots/list")
        asked = await client.method("roots/list")
        assert (session.asked, len(session._questions)) == (1, 1)
        client.reply(asked, {"roots": []})
        await server.answer_to(question)
        assert (session.asked, session._questions) == (0, {})
        server.reply(request, {"content": []})
        await client.answer_to(call)


# Use


class Client:
    """A stub of a session whose client may have an open stream."""

    def __init__(self, has_stream: bool = False) -> None:
        self.peer = SimpleNamespace(channel=SimpleNamespace(has_stream=has_stream))


def unused_connection() -> Any:
    near, _ = memory_pair()
    conversation = Conversation(ConversationRole.CLIENT, None, principal=ANONYMOUS)
    return UpstreamConnection("raw", Peer(near, conversation))


@pytest.mark.parametrize(
    ("about", "idle", "quiet", "abandoned"),
    [
        ({}, True, True, True),
        ({"sessions": {Client(): None}}, False, True, True),
        ({"sessions": {Client(): None, Client(has_stream=True): None}}, False, True, False),
        ({"calls": {1: object()}}, False, False, False),
        ({"stream_count": 1}, False, False, False),
        ({"uris": {"a:1": {object()}}}, True, False, False),
    ],
    ids=["unused", "session", "listening session", "call", "listen stream", "subscription"],
)
async def test_a_connection_is_idle_quiet_or_abandoned_depending_on_its_use(
    about: dict[str, Any], idle: bool, quiet: bool, abandoned: bool
) -> None:
    connection = unused_connection()
    vars(connection).update(about)
    assert (connection.idle, connection.quiet, connection.abandoned) == (idle, quiet, abandoned)


async def test_a_connection_with_an_occupied_turn_is_in_use() -> None:
    connection = unused_connection()
    turn = connection.turns.try_take("me")
    assert (connection.idle, connection.quiet, connection.abandoned) == (False, False, False)
    turn.release()
    assert (connection.idle, connection.quiet, connection.abandoned) == (True, True, True)


async def test_closing_a_borrowed_connection_leaves_its_peer_open() -> None:
    connection = unused_connection()
    connection.peer.start()
    await connection.close()
    assert (connection.borrowed, connection.ending, connection.alive) == (True, True, True)
    await connection.peer.close()
    assert not connection.alive


async def test_notifications_received_before_a_loss_are_delivered() -> None:
    """The loss may be caused by another client after the result was received."""
    released = asyncio.Event()

    async def slow(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "notifications/progress":
            await released.wait()
        return await proceed(exchange)

    async with scene("handshake", interceptors=(slow,)) as place:
        client = await place.session()
        params = {"name": "t", "_meta": {"progressToken": "mine"}}
        call = client.ask("tools/call", params)
        server = place.servers[-1] if place.servers else await place.server()
        request = await server.method("tools/call")
        connection = only_connection(place)
        token = request["params"]["_meta"]["progressToken"]
        for number in (1, 2):
            server.tell("notifications/progress", {"progressToken": token, "progress": number})
        server.reply(request, {"content": []})
        await server.close()
        await eventually(lambda: connection not in place.relay.pool.connections)
        released.set()
        for number in (1, 2):
            note = await client.method("notifications/progress")
            assert note["params"] == {"progressToken": "mine", "progress": number}
        assert (await client.answer_to(call))["result"] == {"content": []}


async def test_a_turn_lock_has_one_owner_at_a_time_in_order_of_arrival() -> None:
    turns = TurnLock()
    assert turns.free
    first = await turns.take("a", 1.0)
    assert not turns.free
    assert turns.try_take("b") is None
    second = asyncio.create_task(turns.take("b", 5.0))
    third = asyncio.create_task(turns.take("c", 5.0))
    await asyncio.sleep(0)
    assert len(turns._waiting) == 2
    first.release()
    first.release()  # releasing a turn twice is harmless
    turn = await second
    await asyncio.sleep(0)
    assert not third.done()
    assert (len(turns._waiting), turns.free) == (1, False)
    turn.release()
    (await third).release()
    assert turns.free


async def test_an_owner_may_take_several_turns_unless_others_wait() -> None:
    turns = TurnLock()
    held = [await turns.take("a", 1.0), await turns.take("a", 1.0)]
    other = asyncio.create_task(turns.take("b", 5.0))
    await asyncio.sleep(0)
    assert turns.try_take("a") is None
    urgent = turns.try_take("a", urgent=True)
    assert urgent is not None
    assert turns.try_take("c", urgent=True) is None
    patient = asyncio.create_task(turns.take("a", 5.0))
    at_once = await turns.take("a", 5.0, urgent=True)
    await asyncio.sleep(0)
    for turn in (*held, urgent, at_once):
        assert not other.done()
        turn.release()
    turn = await other
    assert not patient.done()
    turn.release()
    (await patient).release()
    assert turns.free


async def test_waiting_for_a_turn_times_out() -> None:
    turns = TurnLock()
    held = await turns.take("a", 1.0)
    with pytest.raises(TimeoutError):
        await turns.take("b", 0.01)
    assert len(turns._waiting) == 0
    held.release()
    assert turns.free


async def test_a_turn_granted_to_a_cancelled_waiter_goes_to_the_next_owner() -> None:
    turns = TurnLock()
    held = await turns.take("a", 1.0)
    cancelled = asyncio.create_task(turns.take("b", 0))
    after = asyncio.create_task(turns.take("c", 5.0))
    await asyncio.sleep(0)
    held.release()
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    (await after).release()
    assert turns.free


async def test_only_the_first_free_turn_of_several_locks_is_taken(
    virtual_time: VirtualTime,
) -> None:
    locks = [TurnLock() for _ in range(3)]
    busy = [lock.try_take("other") for lock in locks]
    waiting = asyncio.create_task(first_turn(locks, "me", 5.0))
    await asyncio.sleep(1)
    for held in busy[1:]:
        assert held is not None
        held.release()
    place, turn = await waiting
    assert place in (1, 2)
    assert sum(lock.free for lock in locks) == 1  # of the two granted turns, only one is kept
    turn.release()
    assert [lock.free for lock in locks] == [False, True, True]
    for lock in locks[1:]:
        lock.try_take("other")
    began = virtual_time.now
    with pytest.raises(TimeoutError):
        await first_turn(locks, "me", 5.0)
    assert virtual_time.now == began + 5.0
    assert [len(lock._waiting) for lock in locks] == [0, 0, 0]


async def test_a_free_turn_is_taken_without_waiting() -> None:
    locks = [TurnLock() for _ in range(3)]
    held = locks[0].try_take("other")
    place, turn = await first_turn(locks, "me", 5.0)
    assert (place, [lock.free for lock in locks]) == (1, [False, False, True])
    turn.release()
    assert held is not None
    held.release()
    assert all(lock.free for lock in locks)
