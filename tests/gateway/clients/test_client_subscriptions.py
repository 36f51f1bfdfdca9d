"""Subscriptions of clients: every request is answered, and no subscription is left behind."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import RpcError
from fairlead.errors import ConnectFailed
from fairlead.gateway import Gateway, View
from fairlead.gateway.catalog.views import ClientViews
from fairlead.gateway.clients import client_subscriptions
from fairlead.gateway.clients.client_subscriptions import ClientSubscriptions
from fairlead.gateway.handshake_results import CAPABILITIES
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.relay.request_params import uris_of
from fairlead.transport.background_tasks import BackgroundTasks
from fairlead.upstream.connection.caller_subscriptions import CallerSubscriptions
from tests.support.gateway_servers import HANDSHAKE, LIMIT, joining, make, serving, until
from tests.support.single_exchange import exchange


async def test_subscribe_and_unsubscribe_requests_have_empty_results() -> None:
    seen: list[tuple[str, Answer]] = []

    async def record(exchange: Exchange, proceed: Proceed) -> Answer:
        answer = await proceed(exchange)
        if exchange.method.endswith("subscribe"):
            seen.append((exchange.method, answer))
        return answer

    gateway = Gateway(interceptors=[record])
    async with asyncio.timeout(LIMIT), serving(make("red")) as url, gateway:
        await gateway.connect({"red": {"url": url}})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, HANDSHAKE) as client:
            for uri in ("red://fixed", "red://item/1"):
                subscribed = await client.request("resources/subscribe", {"uri": uri})
                assert bytes(subscribed) == b"{}"
            assert len(gateway.upstream_subscriptions) == 2
            for left in (1, 1):  # a second unsubscribe has the same result
                gone = await client.request("resources/unsubscribe", {"uri": "red://fixed"})
                assert bytes(gone) == b"{}"
                assert len(gateway.upstream_subscriptions) == left
            with pytest.raises(RpcError):
                await client.request("resources/subscribe", {"uri": "green://none"})
            assert len(gateway.upstream_subscriptions) == 1
        await until(lambda: len(gateway.upstream_subscriptions) == 0)
    # An interceptor sees None if a message has no response.
    assert seen == [("resources/subscribe", b"{}")] * 2 + [("resources/unsubscribe", b"{}")] * 2


# Subscriptions with fake servers


class FakeRelay:
    """A relay that records the URIs that sessions stop watching."""

    def __init__(self) -> None:
        self.unwatched: list[str] = []

    def unwatch(self, session: Any, permits: Callable[[str], bool]) -> None:
        ended = [uri for uri in session.uris if not permits(uri)]
        session.uris.difference_update(ended)
        self.unwatched += ended


class FakeConnection:
    """A connection of a session that records the requests to the server."""

    def __init__(self, *, borrowed: bool = False, alive: bool = True) -> None:
        self.borrowed, self.alive = borrowed, alive
        self.peer = self
        self.uris: dict[str, set[Any]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.error: BaseException | None = None

    async def request(self, method: str, params: Any) -> None:
        self.asked.append((method, params))
        if self.error is not None:
            raise self.error


class FakeSession:
    """The session of a client with one server."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.uris: set[str] = set()


class FakeClient:
    """A client, its subscriptions and its sessions with servers."""

    def __init__(self, uris: dict[str, str]) -> None:
        self.uris = uris
        self.gone = False
        self.peer = object()
        self.sessions: dict[object, Any] = {}

    def session_with(self, relay: object) -> Any:
        return self.sessions.setdefault(relay, FakeSession())


class FakeUpstream:
    """A server with only a default connection."""

    def __init__(self) -> None:
        self.pool = self
        self.callers = CallerSubscriptions(list, lambda connection, caller: False)


class Parts:
    """The collaborators of subscriptions: servers `red` and `blue`, and records of calls."""

    def __init__(self, **views: View) -> None:
        self.relays = {name: FakeRelay() for name in ("red", "blue")}
        self.members: dict[str, Any] = {
            name: SimpleNamespace(name=name, replicas=[relay], upstreams=[FakeUpstream()])
            for name, relay in self.relays.items()
        }
        self.owners = {"red:1": "red", "red:2": "red", "blue:1": "blue", "gone:1": "gone"}
        self.is_ready = True
        self.refused: set[str] = set()
        self.done: list[Any] = []
        self.goes_on: asyncio.Event | None = None
        self.streams = asyncio.Event()
        self.tasks = BackgroundTasks()
        self.views = ClientViews(views, View.everything())
        parts: Any = self
        self.subscriptions = ClientSubscriptions(
            parts,
            parts,
            catalog=parts,
            registry=parts,
            router=parts,
            lists=parts,
            views=self.views,
            tasks=self.tasks,
            deadline=3.0,
        )

    # Catalog, router and lists

    def owner(self, uri: str, view: View) -> str | None:
        return self.owners.get(uri) if view.permits_uri(uri) else None

    async def resource(self, asked: Exchange) -> Any:
        return self.members[self.owners[str(asked.head.uri)]]

    async def ready(self) -> None:
        self.done.append("ready")

    # Subscriptions at servers

    async def add(self, member: Any, uri: str, watcher: object, deadline: float) -> bool:
        self.done.append(("add", member.name, uri, deadline))
        if self.goes_on is not None:
            await self.goes_on.wait()
        return uri not in self.refused

    async def add_all(self, wanted: Any, watcher: object, deadline: float) -> list[str]:
        return [uri for uri, one in wanted.items() if await self.add(one, uri, watcher, deadline)]

    def remove(self, name: str, uri: str, watcher: object) -> None:
        self.done.append(("remove", name, uri))

    # Changes

    def subscribe(self, edge: object, uri: str) -> None:
        self.done.append(("+", uri))

    def unsubscribe(self, edge: object, uri: str) -> None:
        self.done.append(("-", uri))

    def changed_for(self, edges: Iterable[object], method: str, uri: str) -> None:
        self.done += [("changed", edge, method, uri) for edge in edges]

    def all_lists_changed(self, edges: Iterable[object]) -> None:
        self.done += [("lists", edge) for edge in edges]

    @contextlib.contextmanager
    def admitted(self, asked: Exchange, uris: int) -> Iterator[None]:
        self.done.append(("begin", uris))
        yield None
        self.done.append("end")

    async def listen_admitted(self, asked: Exchange, capabilities: Any) -> bytes:
        assert capabilities == CAPABILITIES
        self.done.append(("listen", uris_of(asked), len(self.subscriptions.listeners)))
        await self.streams.wait()
        return b'{"over":1}'

    async def ask(self, method: str, uri: str | None, client: Any) -> bytes:
        asked = exchange(method, {} if uri is None else {"uri": uri}, stateless=False)
        handle = getattr(self.subscriptions, method.partition("/")[2])
        answer: bytes = await handle(asked, client)
        return answer

    def listen(self, *uris: str, **about: Any) -> "asyncio.Task[Answer]":
        params = {"notifications": {"resourceSubscriptions": list(uris)}}
        asked = exchange("subscriptions/listen", params, **about)
        return asyncio.create_task(self.subscriptions.listen(asked))


def watcher(**uris: str) -> Any:
    watched = {uri.replace("_", ":"): server for uri, server in uris.items()}
    return FakeClient(watched)


async def test_a_client_is_subscribed_at_the_server_that_owns_the_resource() -> None:
    parts, client = Parts(), watcher()
    assert await parts.ask("resources/subscribe", "red:1", client) == b"{}"
    assert parts.done == [("+", "red:1"), ("add", "red", "red:1", 3.0)]
    assert client.uris == {"red:1": "red"}
    parts.done.clear()
    assert await parts.ask("resources/subscribe", "red:1", client) == b"{}"
    assert parts.done == [("+", "red:1")]  # the client is subscribed already
    parts.owners["red:1"] = "blue"
    parts.done.clear()
    await parts.ask("resources/subscribe", "red:1", client)
    assert parts.done == [
        ("+", "red:1"),
        ("remove", "red", "red:1"),
        ("add", "blue", "red:1", 3.0),
    ]
    assert client.uris == {"red:1": "blue"}


async def test_a_client_with_its_own_connection_subscribes_on_that_connection() -> None:
    parts, client, other = Parts(), watcher(), watcher()
    relay, connection = parts.relays["red"], FakeConnection()
    for one in (client, other):
        one.session_with(relay).connection = connection
        await parts.ask("resources/subscribe", "red:1", one)
    sessions = {one.sessions[relay] for one in (client, other)}
    assert connection.asked == [("resources/subscribe", {"uri": "red:1"})]
    assert connection.uris == {"red:1": sessions}
    assert [one.uris for one in sessions] == [{"red:1"}] * 2
    assert (client.uris, parts.done) == ({"red:1": "red"}, [("+", "red:1")] * 2)


@pytest.mark.parametrize("connection", [FakeConnection(borrowed=True), FakeConnection(alive=False)])
async def test_a_subscription_moves_to_a_connection_that_the_client_opens_later(
    connection: Any,
) -> None:
    parts, client = Parts(), watcher()
    session = client.session_with(parts.relays["red"])
    session.connection = connection
    await parts.ask("resources/subscribe", "red:1", client)
    assert (session.uris, connection.asked) == ({"red:1"}, [])
    assert parts.done == [("+", "red:1"), ("add", "red", "red:1", 3.0)]
    parts.done.clear()
    parts.subscriptions.session_attached(client, session)
    assert parts.done == []
    session.connection = FakeConnection()
    parts.subscriptions.session_attached(client, session)
    assert parts.done == [
        ("remove", "red", "red:1"),
        ("changed", client.peer, "notifications/resources/updated", "red:1"),
    ]


@pytest.mark.parametrize("error", [RpcError(-32601, "no"), ConnectFailed("gone")])
async def test_a_failed_subscription_on_a_clients_own_connection_is_removed(
    error: Exception,
) -> None:
    parts, client = Parts(), watcher()
    session = client.session_with(parts.relays["red"])
    session.connection = connection = FakeConnection()
    connection.error = error
    refused = isinstance(error, RpcError)
    with pytest.raises(RpcError if refused else ConnectFailed) as caught:
        await parts.ask("resources/subscribe", "red:1", client)
    if refused:
        assert "Server 'red' refused the subscription to red:1" in str(caught.value)
    assert (session.uris, connection.uris, client.uris) == (set(), {}, {})
    assert parts.done == [("+", "red:1"), ("-", "red:1")]


@pytest.mark.parametrize(
    ("gone", "elsewhere", "notified"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
async def test_a_client_that_lost_its_own_connection_is_notified_of_possible_updates(
    gone: bool, elsewhere: bool, notified: bool
) -> None:
    parts, client = Parts(), watcher(red_1="red")
    session = client.session_with(parts.relays["red"])
    session.uris.add("red:1")
    session.connection = FakeConnection() if elsewhere else None
    client.gone = gone
    parts.subscriptions.session_lost(client, session)
    changes = [
        ("lists", client.peer),
        ("changed", client.peer, "notifications/resources/updated", "red:1"),
    ]
    assert parts.done == (changes if notified else [])


async def test_listen_streams_are_found_by_the_declared_capabilities_of_their_clients() -> None:
    parts = Parts()
    streams = [parts.listen(), parts.listen(capabilities=b'{"sampling":{}}')]
    for _ in range(3):
        await asyncio.sleep(0)
    listening, upstream = parts.subscriptions.listening, parts.members["red"].upstreams[0]
    [declaring] = [
        one for one in parts.subscriptions.listeners if b"sampling" in one.caller.capabilities
    ]
    assert list(listening(upstream, (True, b'{"sampling":{}}'))) == [declaring.edge]
    assert list(listening(upstream, (False, b'{"sampling":{}}'))) == []
    parts.streams.set()
    await asyncio.gather(*streams)
    await parts.tasks.close()


@pytest.mark.parametrize("gone", [True, False])
async def test_a_client_without_a_connection_is_not_subscribed(gone: bool) -> None:
    parts = Parts()
    client = watcher() if gone else None
    if client is not None:
        client.gone = True
    assert await parts.ask("resources/subscribe", "red:1", client) == b"{}"
    assert parts.done == [("+", "red:1")]


async def test_a_refused_subscription_is_removed() -> None:
    parts, client = Parts(), watcher()
    parts.refused.add("red:1")
    with pytest.raises(RpcError, match="Server 'red' refused the subscription to red:1") as refused:
        await parts.ask("resources/subscribe", "red:1", client)
    assert refused.value.code == -32603
    assert (client.uris, parts.done[-1]) == ({}, ("-", "red:1"))


async def test_a_cancelled_subscription_is_removed() -> None:
    parts, client = Parts(), watcher()
    parts.goes_on = asyncio.Event()
    asking = asyncio.create_task(parts.ask("resources/subscribe", "red:1", client))
    await asyncio.sleep(0)
    assert client.uris == {"red:1": "red"}
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (client.uris, parts.done[-1]) == ({}, ("-", "red:1"))


async def test_unsubscribing_ends_the_subscription() -> None:
    parts, client = Parts(), watcher(red_1="red")
    assert await parts.ask("resources/unsubscribe", None, client) == b"{}"
    assert parts.done == []
    assert await parts.ask("resources/unsubscribe", "red:2", client) == b"{}"
    assert await parts.ask("resources/unsubscribe", "red:1", None) == b"{}"
    assert parts.done == [("-", "red:2"), ("-", "red:1")]
    assert await parts.ask("resources/unsubscribe", "red:1", client) == b"{}"
    assert parts.done[-2:] == [("-", "red:1"), ("remove", "red", "red:1")]
    assert client.uris == {}


async def test_unsubscribing_ends_the_subscription_in_all_sessions_of_the_client() -> None:
    parts, client = Parts(), watcher()
    await parts.ask("resources/subscribe", "red:1", client)
    await parts.ask("resources/subscribe", "red:2", client)
    await parts.ask("resources/unsubscribe", "red:1", client)
    assert client.sessions[parts.relays["red"]].uris == {"red:2"}
    assert (parts.relays["red"].unwatched, parts.relays["blue"].unwatched) == (["red:1"], [])


def test_a_narrower_view_ends_subscriptions_to_resources_outside_it() -> None:
    parts, client = Parts(), watcher(red_1="red", red_2="red", blue_1="blue")
    parts.subscriptions.narrow(client, lambda server, uri: server == "red" and uri != "red:2")
    assert client.uris == {"red:1": "red"}
    assert parts.done == [
        ("-", "red:2"),
        ("remove", "red", "red:2"),
        ("-", "blue:1"),
        ("remove", "blue", "blue:1"),
    ]


async def test_a_listener_gets_resources_that_its_view_permits_and_servers_accept() -> None:
    parts = Parts(ada=View(deny=("red:2",)))
    parts.refused.add("blue:1")
    stream = parts.listen("red:1", "red:2", "blue:1", "gone:1", "none:1", principal="ada")
    for _ in range(3):
        await asyncio.sleep(0)
    assert parts.done == [
        ("begin", 5),
        ("add", "red", "red:1", 3.0),
        ("add", "blue", "blue:1", 3.0),
        ("listen", ["red:1"], 1),
    ]
    [listener] = parts.subscriptions.listeners
    assert (listener.principal, listener.uris) == ("ada", ["red:1"])
    parts.streams.set()
    assert await stream == b'{"over":1}'
    await asyncio.gather(*parts.tasks)
    assert parts.done[4:] == ["end", ("remove", "red", "red:1"), ("remove", "blue", "blue:1")]
    assert parts.subscriptions.listeners == set()


@pytest.mark.parametrize(
    ("uris", "ready", "waited"),
    [(["red:1"], False, True), (["red:1"], True, False), ([], False, False)],
)
async def test_a_listener_waits_for_starting_servers(
    uris: list[str], ready: bool, waited: bool
) -> None:
    parts = Parts()
    parts.is_ready = ready
    parts.streams.set()
    await parts.listen(*uris)
    assert ("ready" in parts.done) is waited
    await parts.tasks.close()


async def test_a_view_that_changes_while_a_client_subscribes_applies_to_the_subscription() -> None:
    parts = Parts()
    parts.goes_on = asyncio.Event()
    stream = parts.listen("red:1", "red:2", principal="ada")
    await asyncio.sleep(0)
    parts.views.replace({"ada": View(deny=("red:1",))}, View.everything())
    parts.goes_on.set()
    parts.streams.set()
    await stream
    assert ("listen", ["red:2"], 1) in parts.done
    await parts.tasks.close()


async def test_subscribing_many_resources_does_not_block_other_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_subscriptions, "URIS_PER_TURN", 2)
    parts = Parts()
    parts.owners.update((f"many:{number}", "red") for number in range(5))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    before = turns
    owners = await parts.subscriptions._owners(
        exchange("subscriptions/listen"), [f"many:{number}" for number in range(5)]
    )
    assert (len(owners), turns - before) == (5, 2)
    before = turns
    listener: Any = object()
    await parts.subscriptions._remove(listener, owners)
    assert turns - before == 2
    counting.cancel()
