"""Tests of notifications that pass through interceptors: order, waiting and closing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.peer import Peer
from fairlead.peer import notification_pipeline as passage_module
from fairlead.peer.notification_pipeline import NotificationPipeline
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.revisions import NEWEST
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification


@asynccontextmanager
async def passing(*interceptors: Interceptor) -> AsyncIterator[tuple[NotificationPipeline, Peer]]:
    left, right = memory_pair()
    passage = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
    try:
        yield passage, Peer(left, Conversation(ConversationRole.CLIENT, principal=ANONYMOUS))
    finally:
        passage.close()
        await left.close()
        await right.close()


def note(number: int) -> Notification:
    return Notification(f"notifications/{number}", Raw(b'{"reason":"%d"}' % number))


class Hold:
    """Hold every notification until it is released."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.reached.set()
        await self.release.wait()
        return await proceed(exchange)


def methods(notes: Sequence[Notification]) -> list[str]:
    return [one.method.removeprefix("notifications/") for one in notes]


async def test_a_notification_is_delivered_at_once_if_there_are_no_interceptors() -> None:
    async with passing() as (passage, peer):
        delivered: list[Notification] = []
        passage.put(note(1), peer, delivered.append)
        assert methods(delivered) == ["1"]
        assert not passage.busy
        await passage.passed()


async def test_waiting_for_the_pipeline_ends_when_all_earlier_notifications_were_delivered() -> (
    None
):
    hold = Hold()
    async with passing(hold) as (passage, peer), asyncio.timeout(5):
        delivered: list[Notification] = []
        for number in range(3):
            passage.put(note(number), peer, delivered.append)
        assert passage.busy
        waiting = asyncio.create_task(passage.passed())
        await hold.reached.wait()
        assert not waiting.done()
        hold.release.set()
        await waiting
        assert methods(delivered) == ["0", "1", "2"]


async def test_the_pipeline_is_idle_after_the_last_notification() -> None:
    hold = Hold()
    hold.release.set()
    async with passing(hold) as (passage, peer), asyncio.timeout(5):
        delivered: list[Notification] = []
        for number in range(2):
            passage.put(note(number), peer, delivered.append)
            await passage.passed()
            while passage.busy:
                await asyncio.sleep(0)
            assert methods(delivered) == [str(one) for one in range(number + 1)]


async def test_closing_the_pipeline_releases_waiters_and_drops_notifications() -> None:
    hold = Hold()
    async with passing(hold) as (passage, peer), asyncio.timeout(5):
        delivered: list[Notification] = []
        passage.put(note(1), peer, delivered.append)
        passage.put(note(2), peer, delivered.append)
        gone = asyncio.create_task(passage.passed())
        waiting = asyncio.create_task(passage.passed())
        await hold.reached.wait()
        gone.cancel()
        await asyncio.wait((gone,))
        passage.close()
        await waiting
        hold.release.set()
        assert not passage.busy
        assert delivered == []


async def test_a_cancelled_waiter_does_not_stop_later_notifications() -> None:
    hold = Hold()
    async with passing(hold) as (passage, peer), asyncio.timeout(5):
        delivered: list[Notification] = []
        passage.put(note(1), peer, delivered.append)
        gone = asyncio.create_task(passage.passed())
        await hold.reached.wait()
        gone.cancel()
        await asyncio.wait((gone,))
        passage.put(note(2), peer, delivered.append)
        hold.release.set()
        await passage.passed()
        assert methods(delivered) == ["1", "2"]


async def test_an_interceptor_does_not_wait_for_its_own_notification() -> None:
    async def asks(exchange: Exchange, proceed: Proceed) -> Answer:
        await passage.passed()
        return await proceed(exchange)

    async with passing(asks) as (passage, peer), asyncio.timeout(5):
        delivered: list[Notification] = []
        passage.put(note(1), peer, delivered.append)
        await passage.passed()
        assert methods(delivered) == ["1"]


@pytest.mark.parametrize("error", [RpcError(-32000, "no"), ValueError("broken")])
async def test_a_rejected_notification_does_not_delay_the_next_one(error: Exception) -> None:
    async def refuses(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "notifications/1":
            raise error
        return await proceed(exchange)

    async with passing(refuses) as (passage, peer), asyncio.timeout(5):
        delivered: list[Notification] = []
        for number in (1, 2):
            passage.put(note(number), peer, delivered.append)
        await passage.passed()
        assert methods(delivered) == ["2"]


async def test_a_cancellation_is_delivered_with_its_reason() -> None:
    hold = Hold()
    hold.release.set()
    async with passing(hold) as (passage, peer), asyncio.timeout(5):
        reasons: list[str] = []
        passage.cancel(note(7), peer, reasons.append)
        passage.cancel(Notification("notifications/cancelled"), peer, reasons.append)
        await passage.passed()
        assert reasons == ["7", ""]


@pytest.mark.parametrize(("limit", "value"), [("MAX_NOTES", 2)])
async def test_the_oldest_notifications_are_dropped_if_interceptors_are_slow(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(passage_module, limit, value)
    hold = Hold()
    async with passing(hold) as (passage, peer), asyncio.timeout(5):
        delivered: list[Notification] = []
        passage.put(note(0), peer, delivered.append)
        await hold.reached.wait()  # in progress, so no longer counted
        for number in range(1, 5):
            passage.put(note(number), peer, delivered.append)
        hold.release.set()
        await passage.passed()
        for number in range(5, 7):
            passage.put(note(number), peer, delivered.append)
        await passage.passed()
        assert methods(delivered) == ["0", "3", "4", "5", "6"]


async def test_a_notification_without_a_connection_passes_through_interceptors() -> None:
    seen: list[Exchange] = []

    async def watch(exchange: Exchange, proceed: Proceed) -> Answer:
        seen.append(exchange)
        return await proceed(exchange)

    caller = Caller(NEWEST, True, "ada")
    context = TransportContext(transport_type="http", path="/mcp")
    for interceptors in ([watch], []):
        delivered: list[Notification] = []
        pipeline = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        pipeline.put_stateless(note(1), caller, context, delivered.append)
        async with asyncio.timeout(5):
            await pipeline.passed()
        assert delivered == [note(1)]
    [exchange] = seen
    assert (exchange.caller, exchange.transport) == (caller, context)
    assert exchange.direction is Direction.CLIENT_TO_SERVER


async def test_a_task_started_by_a_delivery_may_wait_for_the_pipeline() -> None:
    """An interceptor must not wait for the pipeline, which waits for it; other tasks may."""

    async def watch(exchange: Exchange, proceed: Proceed) -> Answer:
        await pipeline.passed()  # returns at once, because the pipeline waits for this interceptor
        answer = await proceed(exchange)
        await pipeline.passed()
        return answer

    async with passing(watch) as (pipeline, peer), asyncio.timeout(5):
        tasks: list[asyncio.Task[None]] = []

        def deliver(_: Notification) -> None:
            tasks.append(asyncio.create_task(pipeline.passed()))

        pipeline.put(note(1), peer, deliver)
        await pipeline.passed()
        await asyncio.gather(*tasks)
        assert len(tasks) == 1
