"""Tests of interceptors on the reply path of a request without a connection."""

import asyncio
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead import Context, MCPServer
from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.interceptor.direct_edge import direct_exchange
from fairlead.interceptor.exchange import ReplyPathBase
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.envelope import Direction, SessionContext, SessionState, TransportContext
from fairlead.protocol.result_fragments import FRAGMENT
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.server.interception import InterceptedHandler
from fairlead.server.results.encode_fragment import FragmentSender
from fairlead.wire import Notification, Request
from tests.support.raw_server_client import META, wire_to

SESSION = SessionContext(state=SessionState.ACTIVE, session_id="s")


class Edge(ReplyPathBase):
    """Reply path that records its messages."""

    def __init__(self) -> None:
        self.session = SESSION
        self.log_level: str | None = "info"
        self.took: list[tuple[Any, ...]] = []

    async def notify_caller(self, exchange: Exchange, notification: Notification) -> None:
        self.took.append(("told", exchange.request_id, notification))

    def detach(self, exchange: Exchange) -> None:
        self.took.append(("detached", exchange.request_id))

    async def request_caller(
        self,
        exchange: Exchange,
        method: str,
        params: dict[str, Any] | Raw | None,
        *,
        timeout: float | None = None,
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
    """Return the exchange that a handler receives for a request on this reply path."""
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


async def test_notifications_and_requests_of_a_handler_pass_the_interceptors() -> None:
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


async def test_interceptors_may_reject_or_answer_messages_of_a_handler() -> None:
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


async def test_an_intercepted_reply_path_has_the_session_and_log_level_of_its_edge() -> None:
    edge = Edge()
    exchange = await edge_for_handlers(Watch(), edge)
    assert exchange.edge.session is SESSION
    assert exchange.edge.log_level == "info"
    exchange.edge.log_level = "error"
    assert edge.log_level == "error"


class EdgeWithParts(Edge):
    """Reply path that supports fragments."""

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        self.took.append(("part", exchange.request_id, bytes(content)))


async def test_result_fragments_pass_the_interceptors_if_the_reply_path_supports_them() -> None:
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
    """Interceptor that removes the content of fragments."""

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        exchange.message = Notification(exchange.method, Raw(b"{}"))
        return await proceed(exchange)


async def test_a_fragment_emptied_by_an_interceptor_is_not_sent() -> None:
    edge = EdgeWithParts()
    exchange = await edge_for_handlers(Emptying(), edge)
    assert isinstance(exchange.edge, FragmentSender)
    await exchange.edge.fragment(exchange, Raw(b"[]"))
    assert edge.took == []


async def test_the_exchange_is_not_replaced_if_it_has_no_reply_path() -> None:
    seen: list[Exchange] = []

    async def handler(exchange: Exchange) -> Answer:
        seen.append(exchange)
        return None

    caller = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)
    exchange = direct_exchange(Request(7, "tools/call", Raw(b"{}")), caller)
    await InterceptedHandler((Watch(),), {"name": "s"}, handler)(exchange)
    assert seen[0] is exchange


async def test_a_stateless_notification_passes_the_interceptors() -> None:
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


async def test_messages_of_a_server_on_a_connection_pass_the_interceptors() -> None:
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
