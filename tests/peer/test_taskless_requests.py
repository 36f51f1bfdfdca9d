"""Requests that somebody takes over, so that no task of the connection waits for them."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed, RequestTimeout, RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.wire import Failure, Notification, Request, Success
from tests.peer.test_peer import bare_server, talking

LIMIT = 5.0


class Taker:
    """Takes everything over, and answers when it is told to."""

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
    raise AssertionError("nobody asked for a task")


def call(request_id: int) -> Request:
    return Request(request_id, "tools/call", Raw(b'{"name":"x"}'))


async def test_the_answer_is_sent_once_and_a_refusal_is_one() -> None:
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


async def test_one_that_is_given_back_gets_its_task() -> None:
    taker = Taker()

    async def handler(exchange: Exchange) -> Answer:
        return b'{"by":"task"}'

    async with talking(handler, take=taker) as (client, server):
        asked = asyncio.create_task(client.request("tools/call", {"name": "x"}))
        server.delegated.undelegate(taker, await taker.next())
        assert await asked == Raw(b'{"by":"task"}')


async def test_cancelling_tells_why_and_nothing_is_answered() -> None:
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
        channel.send(call(1))  # the id is free again
        await taker.next()
        server.delegated.answer(taker, 1, b'{"second":true}')
        answer = await frames.next()
        assert isinstance(answer, Success)
        assert answer.result == Raw(b'{"second":true}')


async def test_the_end_of_the_connection_cancels_what_was_taken() -> None:
    taker = Taker()
    async with talking(never, take=taker) as (client, server):
        asked = asyncio.create_task(client.request("tools/call", {"name": "x"}))
        await taker.next()
        await server.close()
        async with asyncio.timeout(LIMIT):
            assert await taker.cancelled.get() == "the client has gone"
        with pytest.raises(ChannelClosed):
            await asked


async def test_those_taken_count_as_under_way() -> None:
    taker = Taker()
    async with bare_server(handler=never, take=taker, max_in_flight=1) as (channel, frames, server):
        channel.send(call(1))
        channel.send(call(2))
        await taker.next()
        assert taker.taken.empty()
        server.delegated.answer(taker, 1, b"{}")
        answers: list[Any] = [await frames.next(), await frames.next()]
        # The second one waited for its turn, and then had a task.
        assert [type(a) for a in answers] == [Success, Failure]


async def test_what_is_handed_on_has_one_outcome_also_if_that_is_its_time() -> None:
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
