"""Tests of messages in both directions that pass through interceptors."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import ChannelClosed, RpcError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.peer.intercepted_peer import InterceptedNotifier, InterceptedPeer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from fairlead.protocol.envelope import Direction
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.transport.line_channel import LineChannel
from fairlead.transport.memory import memory_pair
from fairlead.wire import Notification, Request, Success
from tests.peer.test_peer import Frames

Intercept = Callable[[Exchange, Proceed], Awaitable[Answer]]
OUT, IN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


class Watch:
    """An interceptor that records every message and acts on it by method."""

    def __init__(self) -> None:
        self.seen: list[Exchange] = []
        self.acts: dict[str, Intercept] = {}

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.seen.append(exchange)
        act = self.acts.get(exchange.method)
        return await (proceed(exchange) if act is None else act(exchange, proceed))

    @property
    def methods(self) -> list[tuple[str, Direction]]:
        return [(one.method, one.direction) for one in self.seen]


async def refuse(exchange: Exchange, proceed: Proceed) -> Answer:
    raise RpcError(-32001, "no")


async def fail(exchange: Exchange, proceed: Proceed) -> Answer:
    raise ValueError("odd")


@asynccontextmanager
async def watched(
    **options: Any,
) -> AsyncIterator[tuple[InterceptedPeer, Watch, LineChannel, Frames]]:
    """Run a client with an interceptor, and yield the server's end of its channel."""
    left, right = memory_pair()
    watch = Watch()
    conversation = Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS)
    client = InterceptedPeer(left, conversation, [watch], **options)
    client.start()
    frames = Frames(right)
    try:
        yield client, watch, right, frames
    finally:
        await client.close()
        await right.close()
        await frames.task


@pytest.mark.parametrize(
    ("params", "sent"),
    [(None, UNSET), ({"a": 1}, Raw(b'{"a":1}')), (Raw(b'{"b":2}'), Raw(b'{"b":2}'))],
    ids=["none", "mapping", "raw"],
)
async def test_an_outbound_notification_passes_interceptors_with_its_params(
    params: Any, sent: Any
) -> None:
    async with watched() as (client, watch, _, frames):
        await client.notify("notifications/x", params)
        assert await frames.next() == Notification("notifications/x", sent)
        [exchange] = watch.seen
        assert exchange.message == Notification("notifications/x", sent)
        assert (exchange.direction, exchange.related) == (OUT, None)
        assert (exchange.caller.revision, exchange.caller.stateless) == (NEWEST, True)
        assert exchange.caller.principal == ANONYMOUS


async def test_outbound_messages_have_the_negotiated_revision() -> None:
    async with watched() as (client, watch, _, frames):
        client.conversation.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
        await client.notify("notifications/x")
        await frames.next()
        caller = watch.seen[0].caller
        assert (caller.revision, caller.stateless) == (NEWEST_HANDSHAKE, False)


async def test_a_notification_is_not_sent_if_an_interceptor_refuses_or_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with watched() as (client, watch, _, frames):
        watch.acts = {"notifications/no": refuse, "notifications/odd": fail}
        for name in ("no", "odd", "yes"):
            await client.notify(f"notifications/{name}")
        assert (await frames.next()).method == "notifications/yes"
        assert "an interceptor failed; notifications/odd was not sent" in caplog.text


async def test_a_notification_on_a_closed_connection_raises_channel_closed() -> None:
    async with watched() as (client, _, _channel, _frames):
        await client.close()
        with pytest.raises(ChannelClosed):
            await client.notify("notifications/x")


async def test_an_interceptor_may_reject_an_inbound_notification() -> None:
    told: asyncio.Queue[Notification] = asyncio.Queue()
    async with watched(on_notification=told.put_nowait) as (_, watch, channel, _frames):
        watch.acts = {"notifications/no": refuse, "notifications/odd": fail}
        for name in ("no", "odd", "yes"):
            channel.send(Notification(f"notifications/{name}"))
        async with asyncio.timeout(5):
            assert (await told.get()).method == "notifications/yes"
        assert watch.methods == [(f"notifications/{n}", IN) for n in ("no", "odd", "yes")]
        assert told.empty()


async def test_interceptors_process_inbound_notifications_even_without_a_listener() -> None:
    async with watched() as (client, watch, channel, frames):
        channel.send(Notification("notifications/x"))
        asking = asyncio.create_task(client.request("x"))
        channel.send(Success((await frames.next()).id, Raw(b"{}")))
        await asking
        assert ("notifications/x", IN) in watch.methods


async def test_interceptors_get_the_id_with_which_a_request_is_sent() -> None:
    async with watched() as (client, watch, channel, frames):
        sent: list[Any] = []
        asking = asyncio.create_task(client.request("x", {"a": 1}, on_sent=sent.append))
        asked = await frames.next()
        channel.send(Success(asked.id, Raw(b"[1]")))
        assert await asking == Raw(b"[1]")
        [exchange] = watch.seen
        assert isinstance(exchange.message, Request)
        assert sent == [asked.id] == [exchange.message.id]


async def test_an_interceptor_may_answer_or_repeat_an_outbound_request() -> None:
    async def answer(exchange: Exchange, proceed: Proceed) -> Answer:
        return b'"ours"'

    async def nothing(exchange: Exchange, proceed: Proceed) -> Answer:
        return None

    async def twice(exchange: Exchange, proceed: Proceed) -> Answer:
        await proceed(exchange)
        return await proceed(exchange)

    async with watched() as (client, watch, channel, frames):
        watch.acts = {"answered": answer, "nothing": nothing, "twice": twice}
        assert await client.request("answered") == Raw(b'"ours"')
        assert await client.request("nothing") == Raw(b"{}")
        asking = asyncio.create_task(client.request("twice"))
        ids = []
        for number in (1, 2):
            asked = await frames.next()
            ids.append(asked.id)
            channel.send(Success(asked.id, Raw(b"%d" % number)))
        assert await asking == Raw(b"2")
        assert len(set(ids)) == 2


async def test_progress_passes_interceptors_before_the_result() -> None:
    heard: list[float] = []
    async with watched() as (client, watch, channel, frames):
        asking = asyncio.create_task(
            client.request("x", on_progress=lambda done, *_: heard.append(done))
        )
        asked = await frames.next()
        for done in (1, 2):
            params = Raw(b'{"progressToken":%d,"progress":%d}' % (asked.id, done))
            channel.send(Notification("notifications/progress", params))
        channel.send(Success(asked.id, Raw(b"{}")))
        await asking
        assert heard == [1, 2]
        assert watch.methods[1:] == [("notifications/progress", IN)] * 2
        assert [one.related for one in watch.seen[1:]] == [asked.id] * 2


async def test_an_outbound_cancellation_passes_interceptors() -> None:
    async with watched() as (client, watch, _, frames):
        asking = asyncio.create_task(client.request("x"))
        asked = await frames.next()
        asking.cancel()
        assert (await frames.next()).method == "notifications/cancelled"
        assert watch.methods == [("x", OUT), ("notifications/cancelled", OUT)]
        assert watch.seen[1].related == asked.id


async def test_a_rejected_inbound_cancellation_has_no_effect() -> None:
    begun, gate, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def handler(exchange: Exchange) -> Answer:
        begun.set()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return b"{}"

    async with watched(handler=handler) as (client, watch, channel, frames), asyncio.timeout(5):
        client.conversation.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
        watch.acts = {"notifications/cancelled": refuse}
        channel.send(Request(5, "vendor/x"))
        await begun.wait()
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":5}')))
        while ("notifications/cancelled", IN) not in watch.methods:
            await asyncio.sleep(0)
        await client._inbound_notes.passed()
        gate.set()
        watch.acts = {}
        channel.send(Request(6, "vendor/x"))
        assert (await frames.next()).id == 6
        assert ended == []


async def test_interceptors_get_the_request_to_which_a_notification_belongs() -> None:
    watch, told = Watch(), list[Notification]()
    notifier = InterceptedNotifier([watch], b'{"name":"s"}')

    async def deliver(note: Notification) -> None:
        told.append(note)

    async with watched() as (client, _, _channel, frames):
        client.conversation.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
        about = client._exchange(Request(7, "tools/call", Raw(b'{"name":"t"}')))
        note = Notification("notifications/x", Raw(b'{"name":"n"}'))
        await notifier.tell(about, note, deliver, client)
        assert told == [note]
        [exchange] = watch.seen
        assert (exchange.related, exchange.direction) == (7, IN)
        assert exchange.caller.info == b'{"name":"s"}'
        assert exchange.caller.revision is NEWEST_HANDSHAKE
        assert exchange.head.name == "n"
        await notifier.to_session(client, note)
        assert await frames.next() == note
        await notifier.to_session(client, Notification("notifications/y"))
        assert await frames.next() == Notification("notifications/y")
        assert [one.related for one in watch.seen[1:]] == [None, None]
        watch.acts = {"notifications/x": refuse}
        await notifier.tell(about, note, deliver, client)
        assert told == [note]
