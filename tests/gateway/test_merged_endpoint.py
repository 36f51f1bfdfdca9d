"""Clients of the merged endpoint: connecting, notifications, and disconnecting."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.gateway.clients.client_registry import ClientRegistry
from fairlead.gateway.merged_endpoint import MergedEndpoint
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.caller import Principal, principal_from
from fairlead.protocol.headers import ParamHeader
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.transport.memory import memory_pair
from fairlead.wire import Message, Notification, Request, Success, to_json
from tests.support.catalog_items import raw
from tests.support.single_exchange import exchange

ADA, BOB = principal_from("ada"), principal_from("bob")


class Place:
    """An endpoint, and a record of its calls to other gateway components."""

    # Handlers for requests that these tests do not send.
    subscribe = unsubscribe = listen = set = initialize = discover = None

    def __init__(self, *interceptors: Any, **views: View) -> None:
        self.done: list[Any] = []
        self.catalog = MergedCatalog()
        self.members = {"red": self}
        self.clients = ClientRegistry({})
        self.hold: asyncio.Event | None = None
        self.block_all = self.done.append
        parts: Any = self
        self.endpoint = MergedEndpoint(
            info={"name": "x", "version": "1"},
            clients=self.clients,
            registry=parts,
            catalog=self.catalog,
            lists=parts,
            router=parts,
            views=ClientViews(views, View.everything()),
            subscriptions=parts,
            changes=parts,
            log_levels=parts,
            handshake=parts,
            envelope=parts,
            interceptors=interceptors,
            search=None,
            desk=parts,
            until_disconnected=parts,
        )
        self.endpoint.handler = self.handler

    async def handler(self, asked: Exchange) -> Answer:
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError as cause:
                self.done.append(("cancelled", *cause.args))
                raise
        return to_json({"method": asked.method})

    @property
    def replicas(self) -> Any:
        return self

    def leave(self, client: Any) -> None:
        self.done.append(("left", client))

    def unwatch(self, client: Any, uri: str) -> None:
        self.done.append(("unwatch", client, uri))
        client.uris.pop(uri)

    def session_attached(self, client: Any, session: Any) -> None:
        self.done.append(("attached", client, session))

    def session_lost(self, client: Any, session: Any) -> None:
        self.done.append(("lost", client, session))

    def forget(self, peer: Any) -> None:
        self.done.append(("forget", peer))

    def stop(self, edge: object = None) -> None:
        self.done.append("stop")

    async def end(self, edge: object = None) -> None:
        self.done.append(("end", edge))


class RawClient:
    """A client at the other end of a channel."""

    def __init__(self) -> None:
        self.channel, self.other = memory_pair()
        self.came: asyncio.Queue[Message] = asyncio.Queue()
        self.reading = asyncio.create_task(self.channel.run(self.came.put_nowait))

    def attach(self, place: Place, principal: Principal = ADA) -> Any:
        self.peer = place.endpoint.attach(self.other, principal)
        return place.clients.merged[self.peer]

    async def ask(self, method: str, params: Any = None) -> Any:
        self.channel.send(Request(7, method, UNSET if params is None else Raw(to_json(params))))
        async with asyncio.timeout(5):
            answer = await self.came.get()
        assert isinstance(answer, Success)
        return json.loads(bytes(answer.result))

    async def initialize(self) -> None:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}}
        await self.ask("initialize", {**about, "clientInfo": {"name": "c", "version": "1"}})
        self.channel.send(Notification("notifications/initialized"))
        await self.ask("ping")

    async def end(self) -> None:
        async with asyncio.timeout(5):
            await asyncio.wait({self.reading})


async def test_a_client_is_registered_until_its_connection_ends() -> None:
    place, one, other = Place(), RawClient(), RawClient()
    client = one.attach(place)
    other.attach(place, BOB)
    await one.initialize()
    assert [known.principal for known in place.clients] == [ADA, BOB]
    client.uris.update({"a:1": "red", "b:1": "red"})
    await one.channel.close()
    async with asyncio.timeout(5):
        await one.peer.wait_closed()
    assert [known.principal for known in place.clients] == [BOB]
    assert client.gone
    assert [entry for entry in place.done if entry != "stop"] == [
        ("left", client),
        ("unwatch", client, "a:1"),
        ("unwatch", client, "b:1"),
        ("forget", one.peer),
    ]
    assert "stop" in place.done  # the listen streams of the client end with its input
    await other.peer.close()


async def test_subscriptions_are_informed_of_attached_and_lost_connections() -> None:
    place, one = Place(), RawClient()
    client = one.attach(place)
    session: Any = client.session_with("red")
    session.attached()
    session.lost()
    assert place.done == [("attached", client, session), ("lost", client, session)]
    await one.peer.close()


async def test_a_client_is_served_until_its_channel_ends() -> None:
    place, one = Place(), RawClient()
    serving = asyncio.create_task(place.endpoint.serve(one.other, ADA))
    await asyncio.sleep(0)
    (client,) = place.clients
    await one.initialize()
    assert not serving.done()
    await one.channel.close()
    async with asyncio.timeout(5):
        await serving
    assert ("end", client.peer) in place.done
    assert list(place.clients) == []


async def test_cancelling_serve_closes_the_connection_of_the_client() -> None:
    place, one = Place(), RawClient()
    serving = asyncio.create_task(place.endpoint.serve(one.other, ADA))
    await asyncio.sleep(0)
    serving.cancel()
    await asyncio.wait({serving})
    await one.end()
    assert list(place.clients) == []


class FakeConnection:
    def __init__(self, stateless: bool = False, borrowed: bool = False) -> None:
        self.stateless, self.borrowed = stateless, borrowed
        self.told: list[str] = []
        self.outbox = self

    def put(self, note: Notification) -> None:
        self.told.append(note.method)


async def test_client_notifications_are_forwarded_only_on_the_clients_own_connections() -> None:
    place, one = Place(), RawClient()
    client = one.attach(place)
    await one.initialize()
    mine, shared, stateless = (
        FakeConnection(),
        FakeConnection(borrowed=True),
        FakeConnection(stateless=True),
    )
    for number, connection in enumerate((mine, shared, stateless, None)):
        client.sessions[number] = SimpleNamespace(connection=connection)
    for method in ("notifications/initialized", "notifications/roots/list_changed"):
        one.channel.send(Notification(method))
    await one.ask("ping")
    assert mine.told == ["notifications/roots/list_changed"]
    assert (shared.told, stateless.told) == ([], [])
    await one.peer.close()


@pytest.mark.parametrize("passes", [True, False])
async def test_interceptors_may_suppress_a_cancellation(passes: bool) -> None:
    seen: list[str] = []

    async def look(asked: Exchange, proceed: Proceed) -> Answer:
        seen.append(asked.method)
        return await proceed(asked) if passes else None

    place, one = Place(look), RawClient()
    one.attach(place)
    await one.initialize()
    place.hold = asyncio.Event()
    one.channel.send(Request(8, "tools/call", Raw(b'{"name":"x"}')))
    cancelled = Raw(b'{"requestId":8,"reason":"enough"}')
    one.channel.send(Notification("notifications/cancelled", cancelled))
    one.channel.send(Notification("notifications/vendor"))
    async with asyncio.timeout(5):
        while "notifications/vendor" not in seen:
            await asyncio.sleep(0)
    assert seen[-2:] == ["notifications/cancelled", "notifications/vendor"]
    await asyncio.sleep(0)
    assert [entry[1] for entry in place.done if entry[0] == "cancelled"] == (
        ["enough"] if passes else []
    )
    await one.peer.close()


async def test_ending_streams_blocks_all_messages_on_the_hold_desk() -> None:
    place = Place()
    await place.endpoint.end_streams()
    assert place.done == ["the gateway is closing", ("end", None)]
    without: Any = place.endpoint
    without._desk = None
    await without.end_streams()
    assert place.done[2:] == [("end", None)]
    async with place.endpoint.running():
        pass
    asked = exchange()
    note = Notification("notifications/vendor")
    place.endpoint.on_stateless_notification(note, asked.caller, asked.transport)


@pytest.mark.parametrize(
    ("tool", "who", "count"), [("s_t", ADA, 0), ("s_t", BOB, 1), ("x", BOB, 0)]
)
def test_param_headers_are_returned_only_for_tools_in_the_view(
    tool: str, who: Principal, count: int
) -> None:
    place = Place(ada=View(deny=("s_t",)))
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    place.catalog.put("s", ListKind.TOOLS, [raw(name="t", inputSchema=schema)])
    found = place.endpoint.tool_param_headers(tool, who)
    assert [type(one) for one in found] == [ParamHeader] * count
