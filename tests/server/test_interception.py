"""The way back of a request that came alone: interceptors see what the server says there."""

import asyncio
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead import Context, MCPServer
from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.interceptor.direct_edge import direct_exchange
from fairlead.interceptor.exchange import ReplyPathBase
from fairlead.protocol.caller import Caller
from fairlead.protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from fairlead.protocol.identity.principal import ANONYMOUS
from fairlead.protocol.result_fragments import FRAGMENT
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.server.interception import InterceptedHandler
from fairlead.server.results.encode_fragment import FragmentSender
from fairlead.wire import Notification, Request
from tests.support.raw_server_client import META, wire_to

SESSION = SessionContext(state=SessionState.ACTIVE, session_id="s")


class Edge(ReplyPathBase):
    """A way back that notes what takes it."""

    def __init__(self) -> None:
        self.session = SESSION
        self.log_level: str | None = "info"
        self.took: list[tuple[Any, ...]] = []

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        self.took.append(("told", exchange.request_id, notification))

    def detach(self, exchange: Exchange) -> None:
        self.took.append(("detached", exchange.request_id))

    async def request_caller(
        self, exchange: Exchange, method: str, params: dict[str, Any] | Raw | None
    ) -> Raw:
        self.took.append(("asked", exchange.request_id, method, params))
        return Raw(b'{"a":1}')


class Watch:
    def __init__(self) -> None:
        self.seen: list[Exchange] = []
        self.refuses: set[str] = set()
        self.answers: dict[str, Answer] = {}

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.seen.append(exchange)
        if exchange.method in self.refuses:
            raise RpcError(-32001, "no")
        if exchange.method in self.answers:
            return self.answers[exchange.method]
        return await proceed(exchange)


async def edge_for_handlers(watch: Watch, edge: Edge) -> Exchange:
    """The exchange that a handler gets for a request that came over this edge."""
    seen: list[Exchange] = []

    async def handler(exchange: Exchange) -> Answer:
        seen.append(exchange)
        return b"{}"

    caller = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)
    exchange = direct_exchange(Request(7, "tools/call", Raw(b"{}")), caller)
    exchange.edge = edge
    assert await InterceptedHandler((watch,), {"name": "s"}, handler)(exchange) == b"{}"
    assert seen[0].edge is not edge
    return seen[0]


async def test_what_is_told_and_asked_passes_the_interceptors() -> None:
    watch, edge = Watch(), Edge()
    exchange = await edge_for_handlers(watch, edge)
    note = Notification("notifications/x", Raw(b'{"b":2}'))
    await exchange.edge.notify_caller(exchange, note)
    for params, sent in ((None, None), ({"c": 3}, Raw(b'{"c":3}')), (Raw(b"{}"), Raw(b"{}"))):
        answer = await exchange.edge.request_caller(exchange, "roots/list", params)
        assert answer == Raw(b'{"a":1}')
        assert edge.took[-1] == ("asked", 7, "roots/list", sent)
    exchange.edge.detach(exchange)
    assert edge.took[0] == ("told", 7, note)
    assert edge.took[-1] == ("detached", 7)
    assert [(one.method, one.related, one.direction) for one in watch.seen] == [
        ("notifications/x", 7, Direction.SERVER_TO_CLIENT),
        *[("roots/list", 7, Direction.SERVER_TO_CLIENT)] * 3,
    ]
    assert watch.seen[0].caller.info == b'{"name":"s"}'
    assert watch.seen[1].message == Request(0, "roots/list", UNSET)


async def test_interceptors_refuse_or_answer_what_is_said() -> None:
    watch, edge = Watch(), Edge()
    watch.refuses = {"notifications/x", "sampling/createMessage"}
    watch.answers = {"roots/list": b'{"roots":[]}', "ping": None}
    exchange = await edge_for_handlers(watch, edge)
    await exchange.edge.notify_caller(exchange, Notification("notifications/x"))
    with pytest.raises(RpcError, match="no"):
        await exchange.edge.request_caller(exchange, "sampling/createMessage", {})
    assert await exchange.edge.request_caller(exchange, "roots/list", {}) == Raw(b'{"roots":[]}')
    assert await exchange.edge.request_caller(exchange, "ping", {}) == Raw(b"{}")
    assert edge.took == []


async def test_the_session_and_its_level_are_those_of_the_edge() -> None:
    edge = Edge()
    exchange = await edge_for_handlers(Watch(), edge)
    assert exchange.edge.session is SESSION
    assert exchange.edge.log_level == "info"
    exchange.edge.log_level = "error"
    assert edge.log_level == "error"


class EdgeWithParts(Edge):
    """A way back that takes parts of results."""

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        self.took.append(("part", exchange.request_id, bytes(content)))


async def test_parts_of_a_result_pass_the_interceptors_where_there_are_any() -> None:
    assert not isinstance((await edge_for_handlers(Watch(), Edge())).edge, FragmentSender)
    watch, edge = Watch(), EdgeWithParts()
    exchange = await edge_for_handlers(watch, edge)
    assert isinstance(exchange.edge, FragmentSender)
    await exchange.edge.fragment(exchange, Raw(b'[{"type":"text","text":"a"}]'))
    assert edge.took == [("part", 7, b'[{"type":"text","text":"a"}]')]
    (seen,) = watch.seen
    assert seen.method == FRAGMENT
    watch.refuses = {FRAGMENT}
    await exchange.edge.fragment(exchange, Raw(b"[]"))
    assert len(edge.took) == 1


class Emptying(Watch):
    """Leaves nothing of a part."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        exchange.message = Notification(exchange.method, Raw(b"{}"))
        return await proceed(exchange)


async def test_a_part_that_an_interceptor_emptied_is_not_sent() -> None:
    edge = EdgeWithParts()
    exchange = await edge_for_handlers(Emptying(), edge)
    assert isinstance(exchange.edge, FragmentSender)
    await exchange.edge.fragment(exchange, Raw(b"[]"))
    assert edge.took == []


async def test_a_request_without_a_way_back_needs_none() -> None:
    seen: list[Exchange] = []

    async def handler(exchange: Exchange) -> Answer:
        seen.append(exchange)
        return None

    caller = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)
    exchange = direct_exchange(Request(7, "tools/call", Raw(b"{}")), caller)
    await InterceptedHandler((Watch(),), {"name": "s"}, handler)(exchange)
    assert seen[0] is exchange


async def test_a_notification_outside_of_any_connection_is_seen() -> None:
    watch, done = Watch(), asyncio.Event()

    async def last(exchange: Exchange, proceed: Proceed) -> Answer:
        done.set()
        return await proceed(exchange)

    server = MCPServer("s", interceptors=[watch, last])
    assert server.on_stateless_notification is not None
    note = Notification("notifications/cancelled", Raw(b'{"requestId":1}'))
    context = TransportContext(transport_type="http")
    server.on_stateless_notification(note, Caller(NEWEST, True, ANONYMOUS), context)
    async with asyncio.timeout(5):
        await done.wait()
    (seen,) = watch.seen
    assert (seen.message, seen.direction) == (note, Direction.CLIENT_TO_SERVER)
    assert MCPServer("s").on_stateless_notification is None


async def test_a_connection_shows_interceptors_what_the_server_says() -> None:
    watch = Watch()
    server = MCPServer("s", interceptors=[watch])

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    async with wire_to(server) as wire:
        call = {"name": "work", "_meta": {**META, "progressToken": 5}}
        wire.send("tools/call", call, id=1)
        assert (await wire.next())["params"] == {"progressToken": 5, "progress": 1}
        assert (await wire.next())["id"] == 1
    assert [one.method for one in watch.seen] == ["tools/call", "notifications/progress"]
