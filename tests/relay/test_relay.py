"""The relay: unchanged values, retries, notifications, lost connections and closing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    LocalProtocolError,
    RpcError,
    TransportError,
)
from fairlead.gateway import RelaySettings
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.downgrade.downgrade_error import DowngradeError
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.relay.client_session import ClientSession
from fairlead.relay.relay import Relay
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.transport.memory import memory_pair
from fairlead.transport.stdio import own_stdio
from fairlead.upstream.connection.connection_key import STATELESS as CONNECTION_OF_ALL
from fairlead.wire import Notification
from tests.support.examples import examples
from tests.support.raw_relay import (
    HANDSHAKE,
    META,
    STATELESS,
    Client,
    Scene,
    Server,
    members,
    scene,
)
from tests.support.single_exchange import exchange as single_exchange
from tests.support.virtual_time import VirtualTime

# Numbers and strings as JSON text, because decoding would hide differences.
NUMBERS = ["0", "-0", "1.0", "0.10", "1e400", "-1E+2", "1e-5", "9" * 40, "9007199254740993"]
PIECES = ["a", "é", "\\u00e9", "\\/", "\\ud83d\\ude00", "😀", "\\n", '\\"', "\\\\", " ", "\\u0000"]

strings = st.lists(st.sampled_from(PIECES), max_size=5).map(lambda parts: f'"{"".join(parts)}"')
scalars = st.one_of(st.sampled_from([*NUMBERS, "true", "false", "null"]), strings)
space = st.sampled_from(["", "", " ", "\t"])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    entries = st.lists(st.tuples(strings, space, values), max_size=4, unique_by=lambda e: e[0])
    # Members that the relay interprets and duplicate keys are excluded.
    return entries.map(
        lambda all_of: "{" + ",".join(f'"x{i}":{s}{v}' for i, (_, s, v) in enumerate(all_of)) + "}"
    )


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(values, max_size=4), space).map(
        lambda pair: "[" + f",{pair[1]}".join(pair[0]) + "]"
    )


values = st.recursive(scalars, lambda inner: objects(inner) | arrays(inner), max_leaves=12)
some_objects = objects(values)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(bounded())


async def exchange(
    client: Client, server: Server, params: str, answer: str, extra: str
) -> tuple[bytes, bytes]:
    """Send one request through the relay; return the lines that server and client received."""
    client.send(f'{{"jsonrpc":"2.0","id":"c","method":"vendor/any","params":{params}{extra}}}')
    asked = await server.line()
    ours = members(asked)["id"].decode()
    server.send(f'{{"jsonrpc":"2.0","id":{ours},{answer}}}')
    return asked, await client.line()


async def opened(place: Scene, era: str) -> tuple[Client, Server]:
    if era == "handshake":
        client = await place.session()
        server = await place.server()
        assert (await server.read())["method"] == "notifications/initialized"
        return client, server
    client = await place.client()
    await client.answer_to(client.stateless("server/discover"))
    server = await place.server()
    # The first request was sent by the relay, the second by the client.
    assert [m["method"] for m in server.seen] == ["server/discover", "server/discover"]
    return client, server


def stamped(params: str, era: str) -> str:
    if era == "handshake":
        return params
    meta = (
        f'"_meta":{{"{META}protocolVersion":"{STATELESS}","{META}clientCapabilities":{{}},'
        f'"vendor/k":1e400}}'
    )
    return "{" + meta + ("," if params != "{}" else "") + params[1:]


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@settings(max_examples=examples(40))
@given(params=some_objects, result=some_objects, extra=st.booleans())
def test_params_and_results_are_forwarded_as_unchanged_bytes(
    era: str, params: str, result: str, extra: bool
) -> None:
    async def work() -> None:
        async with scene(era) as place:
            client, server = await opened(place, era)
            more = ',"vendor":[1e400, 1.0]' if extra else ""
            asked, got = await exchange(
                client, server, stamped(params, era), f'"result":{result}', more
            )
            assert members(members(asked)["params"]) == members(stamped(params, era).encode())
            assert members(asked).get("vendor") == (b"[1e400, 1.0]" if extra else None)
            assert got == f'{{"jsonrpc":"2.0","id":"c","result":{result}}}'.encode()

    run(work)


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@settings(max_examples=examples(25))
@given(data=values, message=strings, code=st.sampled_from([-32000, 1, -32602, 7, -32099]))
def test_forwarded_errors_keep_code_message_data_and_unknown_members(
    era: str, data: str, message: str, code: int
) -> None:
    error = f'{{"code":{code},"message":{message},"data":{data},"hint":1e400}}'

    async def work() -> None:
        async with scene(era) as place:
            client, server = await opened(place, era)
            _, got = await exchange(client, server, stamped("{}", era), f'"error":{error}', "")
            assert members(got)["error"] == error.encode()

    run(work)


@pytest.mark.covers("GTW-04")
@settings(max_examples=examples(25))
@given(params=some_objects, result=some_objects)
def test_requests_and_notifications_of_a_server_are_forwarded_as_unchanged_bytes(
    params: str, result: str
) -> None:
    async def work() -> None:
        async with scene() as place:
            client, server = await opened(place, "handshake")
            told = f'{{"jsonrpc":"2.0","method":"vendor/news","params":{params},"more":1e400}}'
            server.send(told)
            got = await client.line()
            assert members(got) == members(told.encode())
            server.send(f'{{"jsonrpc":"2.0","id":"s","method":"vendor/ask","params":{params}}}')
            asked = await client.line()
            assert members(members(asked)["params"]) == members(params.encode())
            client.send(told)
            assert members(await server.line()) == members(told.encode())
            ours = members(asked)["id"].decode()
            client.send(f'{{"jsonrpc":"2.0","id":{ours},"result":{result}}}')
            answered = await server.line()
            assert answered == f'{{"jsonrpc":"2.0","id":"s","result":{result}}}'.encode()

    run(work)


async def test_an_unpaired_surrogate_becomes_a_replacement_character() -> None:
    async with scene() as place:
        client, server = await opened(place, "handshake")
        params = '{"cut":"\\ud83d!","whole":"\\ud83d\\ude00"}'
        asked, _ = await exchange(client, server, params, '"result":{}', "")
        assert members(asked)["params"] == b'{"cut":"\\ufffd!","whole":"\\ud83d\\ude00"}'


@pytest.mark.covers("DEC-13")
async def test_values_are_forwarded_unless_they_are_nested_too_deeply() -> None:
    async with scene() as place:
        client, server = await opened(place, "handshake")
        deep = '{"x":' + "[" * 400 + "]" * 400 + "}"
        asked, got = await exchange(client, server, deep, f'"result":{deep}', "")
        assert members(asked)["params"] == deep.encode()
        assert members(got)["result"] == deep.encode()
        too_deep = "[" * 100_000 + "]" * 100_000
        client.send(f'{{"jsonrpc":"2.0","id":9,"method":"vendor/any","params":{{"x":{too_deep}}}}}')
        refused = await client.read()
        assert refused["error"]["code"] == -32700
        await client.sync()


# Clients that do not wait for the response to `initialize`


@pytest.mark.covers("GTW-03")
async def test_requests_sent_right_after_initialize_are_forwarded_after_its_response() -> None:
    """The relay sends no list change notifications, because no connection was lost."""
    params = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "eager", "version": "1"},
    }
    async with scene() as place:
        client = await place.client()
        client.ask("initialize", params, 1)
        client.ask("tools/call", {"name": "x"}, 2)
        client.ask("tools/call", {"name": "y"}, 3)
        server = await place.server()
        for _ in range(2):
            asked = await server.method("tools/call")
            server.reply(asked, {"was": asked["params"]["name"]})
        assert "result" in await client.answer_to(1)
        assert (await client.answer_to(2))["result"] == {"was": "x"}
        assert (await client.answer_to(3))["result"] == {"was": "y"}
        assert client.skipped == []
        assert len(place.servers) == 1


# Notifications in the wrong direction are forwarded by default and dropped with `strict`.


VENDOR = "notifications/vendor"
UP, DOWN = "notifications/tools/list_changed", "notifications/roots/list_changed"


@pytest.mark.covers("PRO-17", "GTW-04")
@pytest.mark.parametrize("strict", [False, True], ids=["transparent", "strict"])
async def test_a_notification_in_the_wrong_direction_is_dropped_only_in_strict_mode(
    strict: bool,
) -> None:
    async with scene(settings=RelaySettings(strict=strict)) as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        client.tell(UP, {"n": 1})
        client.tell(VENDOR, {"n": 2})
        first = await server.until(lambda said: said["method"] in (UP, VENDOR))
        assert first["method"] == (VENDOR if strict else UP)
        server.tell(DOWN, {"n": 3})
        server.tell(VENDOR, {"n": 4})
        first = await client.until(lambda said: said.get("method") in (DOWN, VENDOR))
        assert first["method"] == (VENDOR if strict else DOWN)
        assert first["params"] == {"n": 4 if strict else 3}


class Parked(ParkedCalls):
    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


async def test_closing_a_relay_does_not_close_shared_parked_calls() -> None:
    usual = RelaySettings()
    theirs = Parked(lambda: usual.max_parked)
    relay = Relay({"command": "true"}, settings=usual, parked=theirs)
    await relay.close()
    assert relay.parked is theirs
    assert not theirs.closed
    relay = Relay({"command": "true"}, settings=usual)
    relay.parked = ours = Parked(lambda: usual.max_parked)
    async with relay.running():
        assert not ours.closed
    assert ours.closed


class Session:
    """Session with subscriptions."""

    def __init__(self, connection: Any = None) -> None:
        self.connection = connection
        self.uris = SubscriptionQuota().held("key")
        self.uris.add("a:1")
        self.uris.add("a:2")

    def detach(self) -> None:
        self.connection = None


class StatelessConnection:
    """Fake connection to a stateless server that records background tasks."""

    stateless = alive = True

    def __init__(self) -> None:
        self.uris: dict[str, set[object]] = {}
        self.name = "raw"
        self.agreement = None
        self.sessions: dict[object, None] = {}
        self.on_news: Any = None
        self.work: list[str] = []
        self.stopped: list[Any] = []
        self.changes = SimpleNamespace(stop=self.stopped.append)

    def background(self, work: Any) -> None:
        self.work.append(work.__qualname__)
        work.close()


async def test_subscriptions_to_resources_that_are_no_longer_permitted_end() -> None:
    relay = Relay({"command": "true"})
    lost: Any = Session()
    relay.unwatch(lost, lambda uri: uri == "a:1")
    assert set(lost.uris) == {"a:1"}
    connection = StatelessConnection()
    served: Any = Session(connection)
    relay.unwatch(served, lambda uri: uri == "a:1")
    assert set(served.uris) == {"a:1"}
    assert connection.work == ["HandshakeToStateless.follow"]
    connection.alive = False  # type: ignore[misc]
    relay.unwatch(served, lambda uri: False)
    assert (set(served.uris), len(connection.work)) == (set(), 1)
    await relay.pool.close()


async def test_hanging_up_ends_the_subscriptions_of_one_client_or_of_all_clients() -> None:
    relay, connection = Relay({"command": "true"}), StatelessConnection()
    given: Any = connection
    relay.pool._connections[CONNECTION_OF_ALL] = [given]
    relay.hang_up("edge")
    relay.hang_up()
    assert connection.stopped == ["edge", None]
    relay.pool._connections.clear()
    await relay.close()


async def test_a_client_is_served_until_its_channel_ends_or_its_task_is_cancelled() -> None:
    relay = Relay({"command": "true"})
    near, far = memory_pair()
    serving = asyncio.create_task(relay.serve(near))
    await asyncio.sleep(0)
    await far.close()
    async with asyncio.timeout(5):
        await serving
    assert relay._sessions_by_peer == {}
    near, far = memory_pair()
    serving = asyncio.create_task(relay.serve(near))
    await asyncio.sleep(0)
    (session,) = relay._sessions_by_peer.values()
    serving.cancel()
    await asyncio.wait([serving])
    assert not session.peer.connected
    assert relay._sessions_by_peer == {}
    await far.close()
    await relay.close()


# Retries and errors of one request


class OneWay:
    """A relay whose connections fail a given number of times."""

    def __init__(self, *failures: Exception, alive: bool = False) -> None:
        self.relay = Relay({"command": "true"}, "raw")
        self.failures = list(failures)
        self.alive = alive
        self.opened = 0
        relay: Any = self.relay
        relay.pool.for_caller = self._open
        relay._sessions.connection_of = self._open_session
        relay._same_era.forward_stateless = self._forward
        relay._same_era.forward_in_session = self._forward
        relay._stateless.answer = self._forward
        relay._bridge = lambda connection: SimpleNamespace(answer=self._forward)
        self.stateless = True

    async def _open(self, caller: Any) -> Any:
        self.opened += 1
        return SimpleNamespace(stateless=self.stateless, alive=self.alive)

    async def _open_session(self, session: Any, caller: Any) -> Any:
        return await self._open(caller)

    async def _forward(self, *_: Any) -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        return b'{"done":1}'


def lost(delivered: bool = False) -> TransportError:
    return TransportError("the connection was lost", delivered=delivered)


@pytest.mark.parametrize("server_stateless", [True, False], ids=["new server", "old server"])
@pytest.mark.parametrize("with_session", [True, False], ids=["session", "alone"])
@pytest.mark.parametrize("stateless", [True, False], ids=["new client", "old client"])
@pytest.mark.parametrize(
    ("failures", "alive", "opened", "answered"),
    [
        ([], False, 1, True),
        ([lost()], False, 2, True),
        ([lost(), lost()], False, 2, False),
        ([lost()], True, 1, False),
        ([lost(delivered=True)], False, 1, False),
        ([RpcError(5, "no")], False, 1, False),
    ],
    ids=["works", "once", "twice", "alive", "delivered", "refused"],
)
async def test_an_undelivered_request_is_sent_again_once(
    failures: list[Exception],
    alive: bool,
    opened: int,
    answered: bool,
    stateless: bool,
    with_session: bool,
    server_stateless: bool,
) -> None:
    way = OneWay(*failures, alive=alive)
    way.stateless = server_stateless
    session: Any = SimpleNamespace() if with_session else None
    asked = single_exchange("tools/call", {"name": "x"}, stateless=stateless)
    if answered:
        assert await way.relay.answer(asked, session) == b'{"done":1}'
    else:
        with pytest.raises(type(failures[-1]), match=str(failures[-1])):
            await way.relay.answer(asked, session)
    assert way.opened == opened


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (RpcError(5, "no", {"x": 1}), 5, "no"),
        (DowngradeError("not supported"), -32601, "not supported"),
        (LocalProtocolError("not now", code=-32600), -32600, "not now"),
        (ConnectFailed("secret", public="is away"), -32603, "server 'raw' is away"),
    ],
    ids=["refused", "downgrade", "protocol", "away"],
)
async def test_failures_are_sent_to_the_client_as_errors(
    failure: Exception, code: int, words: str
) -> None:
    relay = OneWay(failure, failure, alive=True).relay
    with pytest.raises(RpcError) as refused:
        await relay._handle(single_exchange("tools/call", {}))
    assert (refused.value.code, refused.value.message) == (code, words)
    assert refused.value.data == {"x": 1} or refused.value.data["source"] == "proxy"


def test_a_relay_has_one_server_and_uses_the_given_settings_and_quota() -> None:
    relay = Relay({"command": "true"}, "raw")
    assert relay.server_of(single_exchange()) == relay.name == "raw"
    assert relay.answer_inline(single_exchange("ping")) is None
    settings = RelaySettings(max_connections=7)
    assert Relay({"command": "true"}, settings=settings).settings is settings
    assert Relay({"command": "true"}, max_connections=7).settings == settings
    quota = SubscriptionQuota()
    assert Relay({"command": "true"}, quota=quota).quota is quota


class NotedConnection:
    """Fake connection that records notifications."""

    def __init__(self, stateless: bool = False, **about: Any) -> None:
        self.stateless = stateless
        self.alive = about.get("alive", True)
        self.outbox = self
        self.uris: dict[str, set[Any]] = {}
        self.told: list[str] = []
        self.asked: list[Any] = []
        self.peer = self
        self.changes: Any = None
        self.ending = self.borrowed = False
        self.ended = 0

    def put(self, note: Notification) -> None:
        self.told.append(note.method)

    def activate(self, note: Notification) -> None:
        self.told.append("activated")

    async def request(self, method: str, params: Any) -> None:
        self.asked.append((method, params))

    def background(self, work: Any) -> None:
        with contextlib.suppress(StopIteration):
            work.send(None)

    async def end(self) -> None:
        self.ended += 1

    def stop(self, edge: object = None) -> None:
        self.told.append("stopped")


class Noted:
    """A relay with fake connections, whose bridges record calls."""

    def __init__(self, *connections: NotedConnection) -> None:
        self.relay = Relay({"command": "true"}, "raw")
        self.done: list[str] = []
        self.own: set[Any] = set()
        self.default: Any = None
        self.all_connections = list(connections)
        relay: Any = self.relay
        self.opener = relay.pool.opener
        relay.pool = self
        relay._bridge = lambda connection: self

    async def leave(self, session: Any, connection: Any) -> None:
        assert session.connection is None
        assert isinstance(connection, NotedConnection)
        self.done.append("left")

    async def joined(self) -> None:
        self.done.append("joined")
        raise ConnectFailed("away")

    async def follow(self) -> None:
        self.done.append("followed")
        raise ConnectFailed("away")

    async def close(self) -> None:
        self.done.append("closed")


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("notifications/vendor", True),
        ("notifications/roots/list_changed", True),
        ("notifications/cancelled", False),
        ("notifications/progress", False),
    ],
)
def test_notifications_outside_of_sessions_are_sent_to_a_stateless_server(
    method: str, told: bool
) -> None:
    old, new, other = (
        NotedConnection(),
        NotedConnection(stateless=True),
        NotedConnection(stateless=True),
    )
    asked = single_exchange()
    relay = Noted(old, new, other).relay
    relay.on_stateless_notification(Notification(method), asked.caller, asked.transport)
    assert (old.told, new.told, other.told) == ([], [method] if told else [], [])
    Noted(old).relay.on_stateless_notification(Notification(method), asked.caller, asked.transport)
    assert old.told == []


@pytest.mark.parametrize(
    ("connection", "method", "told", "done"),
    [
        (False, "notifications/initialized", ["activated"], []),
        (True, "notifications/initialized", [], ["joined"]),
        (None, "notifications/initialized", [], []),
        (False, "notifications/vendor", ["notifications/vendor"], []),
        (True, "notifications/vendor", ["notifications/vendor"], []),
        (False, "notifications/roots/list_changed", ["notifications/roots/list_changed"], []),
        (True, "notifications/roots/list_changed", [], []),
    ],
)
async def test_notifications_of_clients_are_forwarded_to_their_server(
    connection: bool | None, method: str, told: list[str], done: list[str]
) -> None:
    noted = Noted()
    there = None if connection is None else NotedConnection(stateless=connection)
    session: Any = SimpleNamespace(connection=there)
    noted.relay.told(session, Notification(method))
    await asyncio.sleep(0)
    assert ([] if there is None else there.told) == told
    assert noted.done == done


async def test_notifications_of_a_session_without_a_connection_are_sent_to_a_stateless_server() -> (
    None
):
    connection = NotedConnection(stateless=True)
    session: Any = SimpleNamespace(connection=None)
    Noted(connection).relay.told(session, Notification("notifications/vendor"))
    assert connection.told == ["notifications/vendor"]


@pytest.mark.parametrize(
    ("alive", "own", "others", "unsubscribed"),
    [
        (True, False, False, True),
        (True, False, True, False),
        (True, True, False, False),
        (False, False, False, False),
    ],
)
async def test_the_subscriptions_of_a_client_end_when_it_disconnects(
    alive: bool, own: bool, others: bool, unsubscribed: bool
) -> None:
    connection = NotedConnection(alive=alive)
    noted = Noted()
    noted.own = {connection} if own else set()
    session: Any = Session(connection)
    connection.uris = {"a:1": {session, "other"} if others else {session}}
    noted.relay.leave(session)
    assert connection.uris == ({"a:1": {"other"}} if others else {})
    assert connection.asked == ([("resources/unsubscribe", {"uri": "a:1"})] if unsubscribed else [])
    assert set(session.uris) == set()
    await asyncio.sleep(0)
    assert noted.done == ["left"]


@pytest.mark.parametrize(
    ("stateless", "alive", "done"),
    [
        (True, True, ["left", "followed"]),
        (True, False, ["left"]),
        (False, True, ["left"]),
    ],
)
async def test_a_stateless_server_gets_the_remaining_subscriptions(
    stateless: bool, alive: bool, done: list[str]
) -> None:
    noted = Noted()
    connection = NotedConnection(stateless, alive=alive)
    session: Any = Session(connection)
    noted.relay.leave(session)
    for _ in range(2):
        await asyncio.sleep(0)
    assert noted.done == done
    alone: Any = Session()
    noted.relay.leave(alone)
    await asyncio.sleep(0)
    assert noted.done == done


async def test_losing_a_connection_ends_its_bridge_and_its_listeners(
    caplog: pytest.LogCaptureFixture,
) -> None:
    noted, connection = Noted(), NotedConnection()
    given: Any = connection
    connection.changes = connection
    bridge: Any = noted
    noted.relay._bridges[given] = bridge
    noted.relay._lost(given, ChannelClosed("gone"), [])
    await asyncio.sleep(0)
    assert (noted.done, noted.relay._bridges, connection.told) == (["closed"], {}, ["stopped"])
    connection.ending, connection.changes = True, None
    noted.relay._lost(given, ChannelClosed("gone"), [])
    assert [record.levelname for record in caplog.records] == ["WARNING"]


class WaitingSession(ClientSession):
    """A fake session that may have subscriptions or a listening stream."""

    def __init__(self, *uris: str, listens: bool = False, connected: bool = True) -> None:
        super().__init__(ANONYMOUS)
        self.uris = SubscriptionQuota().held("key")
        for uri in uris:
            self.uris.add(uri)
        self.introduction = Raw(b"{}")
        self._listens = listens
        caller = single_exchange(stateless=False).caller
        peer: Any = SimpleNamespace(
            conversation=SimpleNamespace(peer=caller), connected=connected, channel=None
        )
        self.peer = peer

    def takes(self, note: Notification) -> bool:
        return self._listens


async def test_sessions_with_subscriptions_are_reconnected_after_a_loss(
    virtual_time: VirtualTime,
) -> None:
    noted, connection, reconnected = Noted(), NotedConnection(), list[Any]()

    async def reconnect(session: Any, caller: Any) -> None:
        reconnected.append((session, virtual_time.now))
        raise ConnectFailed("still away")

    relay: Any = noted.relay
    relay._sessions.reconnect = reconnect
    began = virtual_time.now
    waiting, gone = WaitingSession("a:1"), WaitingSession("a:1", connected=False)
    relay._lost(connection, ChannelClosed("gone"), [waiting, gone, WaitingSession()])
    connection.ending = True  # as if the connection had been closed on purpose
    relay._lost(connection, ChannelClosed("gone"), [WaitingSession("a:1")])
    await asyncio.sleep(1)
    assert reconnected == [(waiting, began + 0.5)]


async def test_listening_sessions_that_lost_the_default_connection_join_the_next_one() -> None:
    noted, connection, reconnected = Noted(), NotedConnection(), list[Any]()
    connection.borrowed = True

    async def reconnect(session: Any, caller: Any) -> None:
        reconnected.append(session)

    relay: Any = noted.relay
    relay._sessions.reconnect = reconnect
    listening, quiet = WaitingSession(listens=True), WaitingSession()
    relay._lost(connection, ChannelClosed("gone"), [listening, quiet])
    served = WaitingSession(listens=True)
    served.connection = connection  # type: ignore[assignment]
    relay._orphans.append(served)  # a request of this session has already reconnected it
    for _ in range(2):
        await relay.readopt_sessions()
        assert reconnected == [listening]


async def test_ending_the_streams_of_a_relay_ends_all_its_subscriptions() -> None:
    one, other = NotedConnection(), NotedConnection()
    one.changes = one
    await Noted(one, other).relay.end_streams()
    assert (one.told, one.ended, other.ended) == (["stopped"], 1, 0)


async def test_closing_a_relay_waits_for_background_tasks() -> None:
    noted, ended = Noted(), asyncio.Event()
    bridge: Any = noted
    connection: Any = NotedConnection()
    noted.relay._bridges[connection] = bridge

    async def slow() -> None:
        await ended.wait()

    noted.relay._ending.start(slow())
    closing = asyncio.create_task(noted.relay.close())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not closing.done()
    # One entry for the bridge and one for the connections.
    assert noted.done == ["closed", "closed"]
    ended.set()
    async with asyncio.timeout(5):
        await closing


async def test_delayed_notifications_are_dropped_when_the_client_disconnects() -> None:
    held: list[str] = []

    async def hold(exchange: Exchange, proceed: Proceed) -> Answer:
        held.append(exchange.method)
        await asyncio.Event().wait()
        return None

    relay = Relay({"command": "true"}, interceptors=[hold])
    near, far = memory_pair()
    peer = relay.attach(near, ANONYMOUS)
    (session,) = relay._sessions_by_peer.values()
    reading = asyncio.create_task(far.run(lambda message: None))
    far.send(Notification("notifications/vendor"))
    asked = single_exchange()
    relay.on_stateless_notification(
        Notification("notifications/alone"), asked.caller, asked.transport
    )
    async with asyncio.timeout(5):
        while len(held) < 2:
            await asyncio.sleep(0)
        assert session.passage.busy
        await peer.close()
        assert not session.passage.busy
        assert relay._alone.busy
        await relay.close()
        assert not relay._alone.busy
        await far.close()
        await reading


async def test_a_relay_on_stdio_is_served_until_its_streams_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near, far = memory_pair()

    @contextlib.asynccontextmanager
    async def open_stdio() -> AsyncIterator[Any]:
        yield near

    monkeypatch.setattr(own_stdio, "open_stdio", open_stdio)
    relay = Relay({"command": "true"})
    relay.parked = ours = Parked(lambda: 64)
    serving = asyncio.create_task(relay.run_stdio())
    async with asyncio.timeout(5):
        while not relay._sessions_by_peer:
            await asyncio.sleep(0)
        assert (serving.done(), ours.closed) == (False, False)
        await far.close()
        await serving
    assert (relay._sessions_by_peer, ours.closed) == ({}, True)
    assert relay.name == "server"


@pytest.mark.parametrize("wrong", ["server.py", Path("server.py"), ["python", "server.py"]])
def test_a_command_or_path_in_place_of_an_entry_is_rejected_with_an_example(wrong: Any) -> None:
    with pytest.raises(TypeError, match="^expected an entry or a server object, not .*: pass for"):
        Relay(wrong)
