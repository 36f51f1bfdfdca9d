"""The endpoint of one server: restricted views, listen streams, and waiting."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import RpcError
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.unknown_items import UnknownItems
from fairlead.gateway.catalog.views import ClientViews, View
from fairlead.gateway.server_endpoint import SingleServerEndpoint
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.protocol.caller import Principal, principal_from
from fairlead.protocol.headers import ParamHeader
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.server.results.result_envelope import ResultEnvelope
from fairlead.transport.memory import memory_pair
from fairlead.wire import Message, Notification, Request, to_json
from tests.support.catalog_items import raw, tools
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

ADA, BOB = principal_from("ada"), principal_from("bob")
PART = View(deny=("red_secret", "b:*", "red_hidden"))


class FakeRelay:
    """A relay that records the requests from the endpoint."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.unwatched: list[Any] = []

    def told(self, session: Any, note: Notification) -> None:
        self.heard.append((session, note.method))

    def on_stateless_notification(self, note: Notification, caller: Any, context: Any) -> None:
        self.heard.append((caller.principal, note.method))

    def unwatch(self, session: Any, permits: Any) -> None:
        self.unwatched.append((session, [uri for uri in ("a:1", "b:1") if permits(uri)]))


class FakeReplicas(list[Any]):
    answer: Any
    leave: Any


class FakeMember:
    """The server `red`."""

    name = "red"

    def __init__(self) -> None:
        self.spec = SimpleNamespace(filters_tools=False)
        self.asked: list[Exchange] = []
        self.left_by: list[Any] = []
        self.hung_up: list[Any] = []
        self.introduced = asyncio.Event()
        self.introduced.set()
        self.refusal: RpcError | None = None
        self.wait = asyncio.Event()
        self.wait.set()
        self.relay = FakeRelay()
        self.ended = 0
        self.relay.hang_up = self.hung_up.append
        self.relay.end_streams = self._end_streams
        self.replicas = FakeReplicas([self.relay])
        self.replicas.answer, self.replicas.leave = self._answer, self.left_by.append

    async def _end_streams(self) -> None:
        self.ended += 1

    async def _answer(self, asked: Exchange, client: Any) -> Answer:
        self.asked.append(asked)
        if client is not None:
            client.session_with(self.relay)
        await self.wait.wait()
        return b'{"by":"red"}'

    async def introduction(self) -> RpcError | None:
        self.introduced.set()
        return self.refusal


TOOLS = "; tools/list returns the available tools"
PROMPTS = "; prompts/list returns the available prompts"
RESOURCES = "; resources/list or resources/templates/list returns the available resources"


class Place:
    def __init__(self, *interceptors: Any, filters_tools: bool = False, **views: View) -> None:
        self.member: Any = FakeMember()
        self.member.spec.filters_tools = filters_tools
        self.catalog = MergedCatalog()
        self.catalog.put("red", ListKind.TOOLS, tools("log", "secret"))
        self.catalog.put("red", ListKind.PROMPTS, [raw(name="hello"), raw(name="hidden")])
        self.views = ClientViews(views, View.everything())
        self.ready_count = 0
        self.search = False
        self.alone: list[str] = []
        lists: Any = self
        self.endpoint = SingleServerEndpoint(
            self.member,
            info={"name": "x", "version": "1"},
            catalog=self.catalog,
            lists=lists,
            views=self.views,
            unknown=UnknownItems(lists, {}, suggests=False),
            envelope=ResultEnvelope({"name": "x", "version": "1"}),
            quota=SubscriptionQuota(),
            interceptors=interceptors,
            until_disconnected=self._until_disconnected,
        )

    def _until_disconnected(self, asked: Exchange, answer: Any) -> Any:
        self.alone.append(asked.method)
        return answer

    async def ready(self) -> None:
        self.ready_count += 1

    async def ask(
        self, method: str, params: Any = None, principal: Principal = ADA, **about: Any
    ) -> Any:
        asked = exchange(method, params, principal=principal, **about)
        answer = await self.endpoint.handler(asked)
        return json.loads(bytes(answer or b""))


@pytest.mark.parametrize(
    ("method", "params", "refusal"),
    [
        ("tools/call", {"name": "log"}, None),
        ("tools/call", {"name": "secret"}, (-32602, f"Unknown tool: secret{TOOLS}")),
        ("tools/call", {}, (-32602, "params.name is required: the name of a tool")),
        ("prompts/get", {"name": "hello"}, None),
        ("prompts/get", {"name": "hidden"}, (-32602, f"Unknown prompt: hidden{PROMPTS}")),
        ("resources/read", {"uri": "a:1"}, None),
        ("resources/read", {"uri": "b:1"}, (-32602, f"Resource not found: b:1{RESOURCES}")),
        ("resources/read", {}, (-32602, "params.uri is required: the URI of a resource")),
        ("resources/subscribe", {"uri": "b:1"}, (-32602, f"Resource not found: b:1{RESOURCES}")),
        ("resources/unsubscribe", {"uri": "b:1"}, None),
        ("completion/complete", {"ref": {"name": "hello"}}, None),
        (
            "completion/complete",
            {"ref": {"name": "hidden"}},
            (-32602, f"Unknown prompt: hidden{PROMPTS}"),
        ),
        ("completion/complete", {"ref": {"uri": "a:{x}"}}, None),
        (
            "completion/complete",
            {"ref": {"uri": "b:{x}"}},
            (
                -32602,
                "Unknown resource template: b:{x}; resources/templates/list returns the available "
                "resource templates",
            ),
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "hidden", "uri": "a:{x}"}},
            (-32602, "params.ref must have either a name or a URI"),
        ),
        ("vendor/x", {}, (-32601, "Method not found: vendor/x")),
        ("server/discover", {}, None),
    ],
)
async def test_a_restricted_client_reaches_only_items_in_its_view(
    method: str, params: Any, refusal: tuple[int, str] | None
) -> None:
    place = Place(ada=PART)
    if refusal is None:
        assert await place.ask(method, params) == {"by": "red"}
    else:
        with pytest.raises(RpcError) as refused:
            await place.ask(method, params)
        assert (refused.value.code, refused.value.message) == refusal
        assert place.member.asked == []
    assert await place.ask(method, params, BOB) == {"by": "red"}  # unrestricted


async def test_the_error_code_for_a_missing_resource_depends_on_the_era() -> None:
    with pytest.raises(RpcError) as refused:
        await Place(ada=PART).ask("resources/read", {"uri": "b:1"}, stateless=False)
    assert refused.value.code == -32002


async def test_lists_for_a_restricted_client_are_read_from_the_catalog() -> None:
    place = Place(ada=PART)
    found = await place.ask("tools/list", {})
    assert [tool["name"] for tool in found["tools"]] == ["log"]
    assert (place.ready_count, place.member.asked) == (1, [])


async def test_the_tool_filter_of_a_server_entry_applies_to_all_clients() -> None:
    place = Place(filters_tools=True)
    assert "tools" in await place.ask("tools/list", {}, BOB)
    assert place.member.asked == []


async def test_a_server_outside_the_view_is_unknown() -> None:
    place = Place(ada=View(servers=("blue",)))
    assert (place.endpoint.hides(ADA), place.endpoint.hides(BOB)) == (True, False)
    with pytest.raises(RpcError, match="Unknown server: red") as refused:
        await place.ask("ping")
    assert refused.value.code == -32602
    assert place.endpoint.tool_param_headers("log", ADA) == ()


async def test_a_request_uses_a_view_that_changed_while_its_server_started() -> None:
    place = Place(ada=PART)
    place.member.introduced.clear()
    place.member.refusal = RpcError(-32603, "still starting")
    with pytest.raises(RpcError, match="still starting"):
        await place.ask("tools/call", {"name": "log"})
    place.member.introduced.clear()

    async def changes() -> None:
        place.views.replace({"ada": View(servers=("blue",))}, View.everything())
        place.member.introduced.set()

    place.member.introduction = changes
    with pytest.raises(RpcError, match="Unknown server: red"):
        await place.ask("tools/call", {"name": "log"})


async def test_interceptors_get_the_merged_name() -> None:
    seen: list[tuple[Any, Any]] = []

    async def look(asked: Exchange, proceed: Proceed) -> Answer:
        seen.append((asked.target, asked.alias))
        return await proceed(asked)

    place = Place(look)
    await place.ask("tools/call", {"name": "log"}, BOB)
    await place.ask("prompts/get", {"name": "new"}, BOB)
    await place.ask("resources/read", {"uri": "a:1"}, BOB)
    assert seen == [("red_log", "log"), ("red_new", "new"), ("a:1", None)]
    assert {asked.server for asked in place.member.asked} == {"red"}


async def test_a_listener_is_registered_until_its_stream_ends() -> None:
    place = Place(ada=PART)
    place.member.wait.clear()
    wanted = {"notifications": {"resourceSubscriptions": ["a:1", "b:1"]}}
    listening = asyncio.create_task(place.ask("subscriptions/listen", wanted))
    other = asyncio.create_task(place.ask("subscriptions/listen", wanted, BOB))
    for _ in range(3):
        await asyncio.sleep(0)
    mine, others = place.member.asked
    told = json.loads(bytes(mine.message.params))
    assert told["notifications"]["resourceSubscriptions"] == ["a:1"]
    assert (mine.permits("a:1"), mine.permits("b:1"), others.permits) == (True, False, None)
    assert {principal for _, principal in place.endpoint.listeners.values()} == {ADA, BOB}
    place.endpoint.end_listen_streams({ADA})
    assert place.member.hung_up == [mine.edge]
    place.member.wait.set()
    await asyncio.gather(listening, other)
    assert place.endpoint.listeners == {}


async def test_removing_a_server_waits_up_to_one_second_for_its_last_responses(
    virtual_time: VirtualTime,
) -> None:
    place = Place()
    await place.endpoint.wait_until_idle()
    began = virtual_time.now
    place.member.wait.clear()
    pending = asyncio.create_task(place.ask("vendor/x", {}, BOB))
    await asyncio.sleep(0)
    await place.endpoint.wait_until_idle()
    assert virtual_time.now == began + 1.0
    idle = asyncio.create_task(place.endpoint.wait_until_idle())
    await asyncio.sleep(0.5)
    place.member.wait.set()
    await pending
    await idle
    assert virtual_time.now == began + 1.5
    assert place.endpoint._pending == 0
    # The endpoint can wait again after it was idle.
    place.member.wait.clear()
    pending = asyncio.create_task(place.ask("vendor/x", {}, BOB))
    await asyncio.sleep(0)
    await place.endpoint.wait_until_idle()
    assert virtual_time.now == began + 2.5
    place.member.wait.set()
    await pending


# Clients with connections


class RawClient:
    """A client at the other end of a channel that sends messages and keeps the received ones."""

    def __init__(self, place: Place, principal: Principal = ADA) -> None:
        self.channel, other = memory_pair()
        self.came: asyncio.Queue[Message] = asyncio.Queue()
        self.peer = place.endpoint.attach(other, principal)
        self.session = place.endpoint.clients[self.peer]
        self.reading = asyncio.create_task(self.channel.run(self.came.put_nowait))

    async def ask(self, method: str, params: Any = None) -> Any:
        self.channel.send(Request(7, method, UNSET if params is None else Raw(to_json(params))))
        return await self.next()

    async def next(self) -> Any:
        async with asyncio.timeout(5):
            return await self.came.get()

    async def initialize(self) -> None:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}}
        await self.ask("initialize", {**about, "clientInfo": {"name": "c", "version": "1"}})
        self.channel.send(Notification("notifications/initialized"))
        await self.ask("ping")

    async def end(self) -> None:
        async with asyncio.timeout(5):
            await asyncio.wait({self.reading})


async def test_closing_an_endpoint_closes_the_connections_of_its_clients() -> None:
    place = Place()
    clients = [RawClient(place), RawClient(place, BOB)]
    for client in clients:
        await client.initialize()
        client.session.watched.add("a:1")
    assert len(place.endpoint.clients) == 2
    await place.endpoint.close()
    for client in clients:
        await client.end()
        assert (client.session.gone, set(client.session.watched)) == (True, set())
    assert place.endpoint.clients == {}
    assert place.member.left_by == [client.session for client in clients]


async def test_the_params_of_initialize_are_stored_for_the_server_connection() -> None:
    place = Place()
    client = RawClient(place)
    await client.initialize()
    assert place.alone == []
    await place.ask("ping")
    assert place.alone == ["ping"]  # a request without a client connection
    introduction = json.loads(bytes(client.session.introduction or b""))
    assert introduction["clientInfo"] == {"name": "c", "version": "1"}
    await place.endpoint.close()


async def test_client_notifications_are_forwarded_to_the_relays_of_its_sessions() -> None:
    place = Place()
    client = RawClient(place)
    await client.initialize()
    session = client.session.sessions[place.member.relay]
    client.channel.send(Notification("notifications/roots/list_changed"))
    await client.ask("ping")
    assert place.member.relay.heard == [
        (session, "notifications/initialized"),
        (session, "notifications/roots/list_changed"),
    ]
    await place.endpoint.close()


async def test_a_request_waits_for_earlier_notifications() -> None:
    order: list[str] = []
    go_on = asyncio.Event()

    async def slow(asked: Exchange, proceed: Proceed) -> Answer:
        if asked.method == "notifications/vendor":
            await go_on.wait()
        order.append(asked.method)
        return await proceed(asked)

    place = Place(slow)
    client = RawClient(place)
    await client.initialize()
    order.clear()
    client.channel.send(Notification("notifications/vendor"))
    asked = asyncio.create_task(client.ask("vendor/x"))
    await client.peer.channel.drain()
    for _ in range(5):
        await asyncio.sleep(0)
    assert order == []
    go_on.set()
    await asked
    assert order == ["notifications/vendor", "vendor/x"]
    await place.endpoint.close()


@pytest.mark.parametrize(("level", "kept"), [("error", "error"), ("loud", "debug")])
async def test_a_valid_log_level_of_a_client_is_stored(level: str, kept: str) -> None:
    place = Place()
    client = RawClient(place)
    await client.initialize()
    for one in ("debug", level):
        await client.ask("logging/setLevel", {"level": one})
    assert client.session.level == kept
    assert [asked.method for asked in place.member.asked][-1] == "logging/setLevel"
    await place.endpoint.close()


async def test_clients_are_notified_of_a_changed_view() -> None:
    place = Place()
    ada, bob = RawClient(place), RawClient(place, BOB)
    for client in (ada, bob):
        await client.initialize()
    fresh = RawClient(place)  # the client has not completed the handshake
    listening = asyncio.create_task(place.ask("subscriptions/listen", {}))
    place.member.wait.clear()
    for _ in range(3):
        await asyncio.sleep(0)
    place.views.replace({"ada": PART}, View.everything())
    place.endpoint.views_changed({ADA})
    kinds = [(await ada.next()).method for _ in range(3)]
    assert kinds == [
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
    ]
    session = ada.session.sessions[place.member.relay]
    assert place.member.relay.unwatched == [(session, ["a:1"])]
    assert len(place.member.hung_up) == 1
    assert place.member.left_by == []
    place.views.replace({"ada": View(servers=("blue",))}, View.everything())
    place.endpoint.views_changed({ADA})
    assert set(place.member.left_by) == {ada.session, fresh.session}
    assert len(place.member.relay.unwatched) == 1
    place.member.wait.set()
    await asyncio.gather(listening, ada.next(), ada.next(), ada.next())
    assert (bob.came.qsize(), fresh.came.qsize()) == (0, 0)
    await place.endpoint.close()


async def test_resource_notifications_are_permitted_by_the_current_view_only() -> None:
    place = Place(ada=PART)
    client = RawClient(place)
    await client.initialize()
    session: Any = client.session.sessions[place.member.relay]
    assert [session.permits(uri) for uri in ("a:1", "b:1")] == [True, False]
    place.views.replace({"ada": View(servers=("blue",))}, View.everything())
    assert not session.permits("a:1")
    place.views.replace({}, View.everything())
    assert session.permits("b:1")
    await place.endpoint.close()


# Stateless clients


@pytest.mark.parametrize(
    ("view", "heard"),
    [
        (View(), True),
        (View(rename={"red_log": "x"}), True),
        (View(servers=("red",)), True),
        (View(servers=("blue",)), False),
        (PART, False),
        (View(allow=("a",)), False),
        (View(hide=("a",)), False),
    ],
    ids=["all", "renamed", "this", "another", "denied", "allowed", "hidden"],
)
async def test_only_stateless_notifications_of_unrestricted_clients_are_forwarded(
    view: View, heard: bool
) -> None:
    place = Place(ada=view)
    asked = exchange(principal=ADA)
    note = Notification("notifications/vendor")
    place.endpoint.on_stateless_notification(note, asked.caller, asked.transport)
    expected = [(ADA, "notifications/vendor")] if heard else []
    assert place.member.relay.heard == expected


async def test_notifications_held_by_interceptors_are_dropped_on_close() -> None:
    held = asyncio.Event()

    async def hold(asked: Exchange, proceed: Proceed) -> Answer:
        held.set()
        await asyncio.Event().wait()
        return None

    place = Place(hold)
    asked = exchange(principal=BOB)
    note = Notification("notifications/vendor")
    place.endpoint.on_stateless_notification(note, asked.caller, asked.transport)
    await held.wait()
    assert place.endpoint._stateless_notifications.busy
    await place.endpoint.close()
    assert not place.endpoint._stateless_notifications.busy


async def test_ending_streams_ends_the_listen_streams_at_all_replicas() -> None:
    place = Place()
    await place.endpoint.end_streams()
    assert place.member.ended == 1
    assert place.endpoint.answer_inline(exchange("ping")) is None
    async with place.endpoint.running():
        pass


async def test_a_tool_call_waits_for_a_starting_server_if_there_are_interceptors() -> None:
    async def look(asked: Exchange, proceed: Proceed) -> Answer:
        return await proceed(asked)

    place = Place(look)
    place.member.introduced.clear()
    place.member.refusal = RpcError(-32603, "still starting")
    assert await place.ask("resources/read", {"uri": "a:1"}, BOB) == {"by": "red"}
    assert await place.ask("tools/call", {}, BOB) == {"by": "red"}
    with pytest.raises(RpcError, match="still starting"):
        await place.ask("tools/call", {"name": "log"}, BOB)
    unwatched = Place()
    unwatched.member.introduced.clear()
    unwatched.member.refusal = RpcError(-32603, "still starting")
    assert await unwatched.ask("tools/call", {"name": "log"}, BOB) == {"by": "red"}


async def test_param_headers_are_returned_only_for_tools_in_the_view() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    place = Place(ada=PART, bob=View(servers=("blue",)))
    place.catalog.put(
        "red",
        ListKind.TOOLS,
        [raw(name=name, inputSchema=schema) for name in ("log", "secret")],
    )
    headers = place.endpoint.tool_param_headers("log", ADA)
    assert len(headers) == 1
    assert isinstance(headers[0], ParamHeader)
    cases = {
        ("log", "ada"): headers,
        ("secret", "ada"): (),
        ("secret", "cy"): headers,
        ("log", "bob"): (),
        ("none", "cy"): (),
    }
    for (tool, who), expected in cases.items():
        assert place.endpoint.tool_param_headers(tool, principal_from(who)) == expected
