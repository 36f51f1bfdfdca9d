"""Tests of delegated requests, which run without a task."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed, RequestTimeout, RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.limits import IN_FLIGHT, QUEUED_REQUEST_BYTES, QUEUED_REQUESTS
from fairlead.peer.connection_state import FEW, ConnectionState, InFlight
from fairlead.peer.inbound_requests import MAX_QUEUED, MAX_QUEUED_BYTES, Backlog
from fairlead.protocol.caller import ANONYMOUS, Caller, ParamsHead
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.envelope import Direction
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.transport.memory import memory_pair
from fairlead.wire import Failure, Notification, Request, RequestId, Success
from fairlead.wire.messages import size_of
from tests.peer.test_peer import Frames, bare_server, talking
from tests.support.virtual_time import VirtualTime

LIMIT = 5.0


class Taker:
    """A delegate that accepts all requests and answers them when a test allows it."""

    def __init__(self) -> None:
        self.taken: asyncio.Queue[Exchange] = asyncio.Queue()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, exchange: Exchange) -> "Taker":
        self.taken.put_nowait(exchange)
        return self

    def cancel(self, reason: str) -> None:
        self.cancelled.put_nowait(reason)

    async def next(self) -> Exchange:
        async with asyncio.timeout(LIMIT):
            return await self.taken.get()


async def never(exchange: Exchange) -> Answer:
    raise AssertionError("no request needs a task")


def call(request_id: int) -> Request:
    return Request(request_id, "tools/call", Raw(b'{"name":"x"}'))


async def test_the_response_to_a_delegated_request_is_sent_once_and_may_be_an_error() -> None:
    taker = Taker()
    async with talking(never, take=taker) as (client, server):
        asked = asyncio.create_task(client.request("tools/call", {"name": "x"}))
        exchange = await taker.next()
        server.delegated.answer(taker, exchange.request_id, b'{"n":1}')
        server.delegated.answer(taker, exchange.request_id, b'{"n":2}')
        assert await asked == Raw(b'{"n":1}')
        refused = asyncio.create_task(client.request("tools/call", {"name": "y"}))
        server.delegated.answer(taker, (await taker.next()).request_id, RpcError(-32602, "no"))
        with pytest.raises(RpcError, match="no"):
            await refused


async def test_an_undelegated_request_gets_a_task() -> None:
    taker = Taker()

    async def handler(exchange: Exchange) -> Answer:
        return b'{"by":"task"}'

    async with talking(handler, take=taker) as (client, server):
        asked = asyncio.create_task(client.request("tools/call", {"name": "x"}))
        server.delegated.undelegate(taker, await taker.next())
        assert await asked == Raw(b'{"by":"task"}')


async def test_a_delegate_receives_the_cancellation_reason_and_no_response_is_sent() -> None:
    taker = Taker()
    async with bare_server(handler=never, take=taker) as (channel, frames, server):
        channel.send(call(1))
        await taker.next()
        channel.send(
            Notification("notifications/cancelled", Raw(b'{"requestId":1,"reason":"tea"}'))
        )
        async with asyncio.timeout(LIMIT):
            assert await taker.cancelled.get() == "tea"
        server.delegated.answer(taker, 1, b"{}")
        channel.send(call(1))  # the id may be used again
        await taker.next()
        server.delegated.answer(taker, 1, b'{"second":true}')
        answer = await frames.next()
        assert isinstance(answer, Success)
        assert answer.result == Raw(b'{"second":true}')


async def test_the_end_of_the_connection_cancels_delegated_requests() -> None:
    taker = Taker()
    async with talking(never, take=taker) as (client, server):
        asked = asyncio.create_task(client.request("tools/call", {"name": "x"}))
        await taker.next()
        await server.close()
        async with asyncio.timeout(LIMIT):
            assert await taker.cancelled.get() == "the client disconnected"
        with pytest.raises(ChannelClosed):
            await asked


async def test_delegated_requests_count_towards_the_limit() -> None:
    taker = Taker()
    async with bare_server(handler=never, take=taker, max_in_flight=1) as (channel, frames, server):
        channel.send(call(1))
        channel.send(call(2))
        await taker.next()
        assert taker.taken.empty()
        server.delegated.answer(taker, 1, b"{}")
        answers: list[Any] = [await frames.next(), await frames.next()]
        # The second request was queued and then got a task.
        assert [type(a) for a in answers] == [Success, Failure]


async def test_a_forwarded_request_has_one_outcome_even_after_a_timeout() -> None:
    taker = Taker()
    async with talking(never, take=taker) as (client, server):
        outcomes: asyncio.Queue[Any] = asyncio.Queue()

        def fill(_: object) -> Raw:
            return Raw(b'{"name":"x"}')

        client.outbound.forward_nowait("tools/call", fill, outcomes.put_nowait, timeout=0.05)
        exchange = await taker.next()
        async with asyncio.timeout(LIMIT):
            assert isinstance(await outcomes.get(), RequestTimeout)
            assert await taker.cancelled.get() == "timeout"
        server.delegated.answer(taker, exchange.request_id, b"{}")
        given_up = client.outbound.forward_nowait("tools/call", fill, outcomes.put_nowait)
        await taker.next()
        client.outbound.cancel_forwarded(given_up, "changed my mind")
        async with asyncio.timeout(LIMIT):
            assert await taker.cancelled.get() == "changed my mind"
        client.outbound.forward_nowait("tools/call", fill, outcomes.put_nowait)
        server.delegated.answer(taker, (await taker.next()).request_id, b'{"third":true}')
        async with asyncio.timeout(LIMIT):
            assert await outcomes.get() == Raw(b'{"third":true}')
        await server.close()
        assert outcomes.empty()


@pytest.mark.parametrize("passed_on", [True, False], ids=["passed on", "held back"])
async def test_a_delegated_request_is_cancelled_once(passed_on: bool) -> None:
    taker = Taker()
    held: asyncio.Queue[Any] = asyncio.Queue()

    def on_cancelled(note: Notification, cancel: Any) -> None:
        if passed_on:
            cancel("tea")
        held.put_nowait(cancel)

    async with bare_server(handler=never, take=taker, on_cancelled=on_cancelled) as (
        channel,
        _,
        server,
    ):
        channel.send(call(1))
        await taker.next()
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":1}')))
        async with asyncio.timeout(LIMIT):
            await held.get()
        channel.send(call(2))
        await taker.next()
        await server.close()
        reasons = sorted(taker.cancelled.get_nowait() for _ in range(taker.cancelled.qsize()))
        assert reasons == sorted(
            ["tea" if passed_on else "the client disconnected", "the client disconnected"]
        )


async def test_a_cancellation_without_a_reason_has_a_default_reason() -> None:
    taker = Taker()
    async with bare_server(handler=never, take=taker) as (channel, _, _server):
        channel.send(call(1))
        await taker.next()
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":1}')))
        async with asyncio.timeout(LIMIT):
            assert await taker.cancelled.get() == "cancelled by the caller"


async def test_an_undelegated_request_is_awaited_at_the_end_of_input(
    virtual_time: VirtualTime,
) -> None:
    taker = Taker()

    async def handler(exchange: Exchange) -> Answer:
        return b"{}"

    async with bare_server(handler=handler, take=taker) as (channel, frames, server):
        channel.send(call(1))
        exchange = await taker.next()
        await channel.close_sink()
        begun = virtual_time.now
        asyncio.get_running_loop().call_later(1, server.delegated.undelegate, taker, exchange)
        await server.wait_closed()
        assert virtual_time.now - begun == pytest.approx(1)
        assert frames.got.qsize() == 1


async def test_the_connection_ends_after_the_last_response_following_the_end_of_input(
    virtual_time: VirtualTime,
) -> None:
    taker = Taker()
    async with bare_server(handler=never, take=taker) as (channel, frames, server):
        channel.send(call(1))
        await taker.next()
        await channel.close_sink()
        begun = virtual_time.now
        asyncio.get_running_loop().call_later(1, server.delegated.answer, taker, 1, b"{}")
        await server.wait_closed()
        assert virtual_time.now - begun == pytest.approx(1)
        assert frames.got.qsize() == 1


async def test_a_request_that_follows_a_request_with_a_task_also_gets_a_task() -> None:
    taker, begun = Taker(), list[str]()

    def take(exchange: Exchange) -> Taker | None:
        return None if exchange.method == "x" else taker(exchange)

    async def handler(exchange: Exchange) -> Answer:
        begun.append(exchange.method)
        return b"{}"

    async with bare_server(handler=handler, take=take) as (channel, frames, server):
        channel.send(Request(1, "x"))
        channel.send(Request(2, "y"))
        assert [(await frames.next()).id for _ in range(2)] == [1, 2]
        assert begun == ["x", "y"]
        assert server.delegated.behind == 0
        channel.send(Request(3, "y"))
        assert (await taker.next()).request_id == 3
        server.delegated.answer(taker, 3, b"{}")
        assert (await frames.next()).id == 3


async def test_responses_are_written_together_while_many_requests_are_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taker, joined = Taker(), list[int]()
    async with bare_server(handler=never, take=taker) as (channel, frames, server):
        for number in range(FEW + 3):
            channel.send(call(number))
            await taker.next()
        taken = server._work.taken
        monkeypatch.setattr(
            type(server.channel), "join_writes", lambda _: joined.append(len(taken))
        )
        for number in range(FEW + 3):
            server.delegated.answer(taker, number, b"{}")
        monkeypatch.undo()
        assert joined == [FEW + 2, FEW + 1]
        assert [(await frames.next()).id for _ in range(FEW + 3)] == list(range(FEW + 3))


CALLER = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)


class Waiting:
    """The backlog of a connection that handles one request at a time."""

    def __init__(self) -> None:
        self.client, self.channel = memory_pair()
        conversation = Conversation(
            ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=ANONYMOUS
        )
        self.work = InFlight(1)
        self.line = ConnectionState(self.channel, conversation, self.work)
        self.begun: list[RequestId] = []
        self.backlog = Backlog(self.line, lambda exchange, request_id: self._begin(request_id))

    def _begin(self, request_id: RequestId) -> None:
        self.begun.append(request_id)

    def put(self, number: int, params: bytes = b"{}") -> Request:
        request = Request(number, "x", Raw(params))
        self.line.conversation.receive_request(request)
        edge: Any = None
        way = Direction.CLIENT_TO_SERVER
        exchange = Exchange(request, CALLER, ParamsHead(), way, self.channel.context, edge)
        self.backlog.put(exchange)
        return request


async def test_queued_requests_start_in_order_as_the_limit_allows() -> None:
    one = Waiting()
    hits = IN_FLIGHT.hits
    for number in range(4):
        one.put(number)
    assert IN_FLIGHT.hits == hits + 4
    one.backlog.drop(1)
    one.backlog.drop(9)
    one.backlog.next()
    one.backlog.next()
    assert one.begun == [0, 2]
    one.work.running[2] = asyncio.ensure_future(asyncio.sleep(0))
    one.backlog.next()
    assert one.begun == [0, 2]
    await one.work.running.pop(2)
    one.backlog.next()
    one.backlog.next()
    assert one.begun == [0, 2, 3]


async def test_queued_requests_do_not_start_after_the_end_of_the_connection() -> None:
    one = Waiting()
    one.put(1)
    one.line.finish(ChannelClosed())
    one.backlog.next()
    assert one.begun == []


async def test_requests_beyond_the_queue_limit_are_refused() -> None:
    one = Waiting()
    hits = QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits
    for number in range(MAX_QUEUED):
        one.put(number)
    assert one.line.conversation.unanswered_count == MAX_QUEUED
    assert QUEUED_REQUESTS.hits == hits[0]
    one.put(MAX_QUEUED)
    assert one.line.conversation.unanswered_count == MAX_QUEUED
    assert (QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits) == (hits[0] + 1, hits[1])
    frames = Frames(one.client)
    refused = await frames.next()
    assert isinstance(refused, Failure)
    assert (refused.id, refused.code) == (MAX_QUEUED, -32603)
    assert refused.message == "Too many requests: 1 are in progress. Try again later"
    await one.channel.close()
    await one.client.close()
    await frames.task


async def test_requests_beyond_the_byte_limit_are_refused() -> None:
    one = Waiting()
    hits = QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits
    small = size_of(Request(0, "x", Raw(b"{}")))
    first = one.put(0, b'"%b"' % (b"x" * (MAX_QUEUED_BYTES - small - 100)))
    rest = MAX_QUEUED_BYTES - size_of(first)
    empty = size_of(Request(1, "x", Raw(b'""')))
    one.put(1, b'"%b"' % (b"x" * (rest - empty + 1)))
    assert (QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits) == (hits[0], hits[1] + 1)
    one.put(2, b'"%b"' % (b"x" * (rest - empty)))
    assert QUEUED_REQUEST_BYTES.hits == hits[1] + 1
    assert [exchange.request_id for exchange in one.backlog.items] == [0, 2]
