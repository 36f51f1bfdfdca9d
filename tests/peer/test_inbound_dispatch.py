"""Tests of dispatching inbound messages, and of reports about invalid frames."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed, RemoteProtocolError, RpcError
from fairlead.interceptor import Answer, Exchange, MalformedFrame
from fairlead.limits import BATCH_QUEUE
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.envelope import Direction, TransportContext
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.transport.line_channel import LineChannel
from fairlead.transport.memory import memory_pair
from fairlead.wire import Failure, Notification, Request, Success
from tests.peer.test_peer import Frames, Gate, bare_server, echo

MEMORY = TransportContext(transport_type="memory")


@asynccontextmanager
async def bare_client(**settings: Any) -> AsyncIterator[tuple[LineChannel, Frames, Peer]]:
    """Run a client peer, and yield the server's end of its channel."""
    left, right = memory_pair()
    conversation = Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS)
    client = Peer(left, conversation, **settings)
    client.start()
    frames = Frames(right)
    try:
        yield right, frames, client
    finally:
        await client.close()
        await right.close()
        await frames.task


async def test_invalid_frames_are_reported() -> None:
    gate = Gate()
    async with bare_server(handler=gate) as (channel, frames, server):
        heard: list[MalformedFrame] = []
        server.on_malformed = heard.append
        assert server.on_malformed == heard.append
        channel.write(b"what?\n")
        channel.send(Request(1, "x"))
        channel.send(Request(1, "x"))
        channel.send(Success(99, Raw(b"{}")))
        refusals = [await frames.next(), await frames.next()]
        gate.open.set()
        assert isinstance(await frames.next(), Success)
        why = refusals[0].message, refusals[1].message
        common = {"direction": Direction.CLIENT_TO_SERVER, "transport": MEMORY}
        again = b'{"jsonrpc":"2.0","id":1,"method":"x"}'
        stray = b'{"jsonrpc":"2.0","id":99,"result":{}}'
        assert heard == [
            MalformedFrame(frame=b"what?", size=5, kind="not a message", why=why[0], **common),
            MalformedFrame(frame=again, size=len(again), kind="refused", why=why[1], **common),
            MalformedFrame(
                frame=stray, size=len(stray), kind="unmatched", why=heard[2].why, **common
            ),
        ]
        assert (server.malformed, server.unmatched_count) == (1, 1)


async def test_invalid_frames_are_counted_without_a_listener() -> None:
    async with bare_server(handler=echo) as (channel, frames, server):
        channel.write(b"what?\n")
        channel.send(Success(99, Raw(b"{}")))
        channel.send(Request(2, "x", Raw(b"{}")))
        assert [type(await frames.next()) for _ in range(2)] == [Failure, Success]
        assert (server.malformed, server.unmatched_count) == (1, 1)


@pytest.mark.parametrize(
    ("revision", "frame", "request_id", "absent"),
    [
        (NEWEST_HANDSHAKE, b"what?", None, False),
        (NEWEST_HANDSHAKE, b'{"jsonrpc":"2.0","id":7,"method":5}', 7, False),
        (NEWEST, b"what?", None, True),
        (NEWEST, b'{"jsonrpc":"2.0","id":7,"method":5}', 7, False),
    ],
)
async def test_the_error_response_to_an_invalid_frame_has_an_id_if_it_is_known(
    revision: Revision, frame: bytes, request_id: int | None, absent: bool
) -> None:
    left, right = memory_pair()
    conversation = Conversation(ConversationRole.SERVER, assume=revision, principal=ANONYMOUS)
    server, frames = Peer(right, conversation), Frames(left)
    server.start()
    left.write(frame + b"\n")
    refused = await frames.next()
    assert isinstance(refused, Failure)
    assert (refused.id, refused.absent_id) == (request_id, absent)
    await server.close()
    await left.close()
    await frames.task


async def test_an_unreadable_response_fails_its_request() -> None:
    errors: list[Exception] = []
    async with bare_client(on_error=errors.append) as (channel, frames, client):
        waiting = asyncio.create_task(client.request("x"))
        asked = await frames.next()
        channel.write(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":5}\n' % asked.id)
        with pytest.raises(RemoteProtocolError):
            await waiting
        assert len(errors) == 1
        assert client.outbound.pending == {}
        assert frames.got.empty()  # not cancelled, because a response arrived


async def test_a_notification_is_passed_to_the_callback() -> None:
    told: asyncio.Queue[Notification] = asyncio.Queue()
    async with bare_client(on_notification=told.put_nowait) as (channel, _, _client):
        note = Notification("notifications/x", Raw(b'{"a":1}'))
        channel.send(note)
        async with asyncio.timeout(5):
            assert await told.get() == note


async def test_a_failing_notification_callback_is_reported_and_does_not_end_the_connection() -> (
    None
):
    errors: asyncio.Queue[Exception] = asyncio.Queue()

    def fail(_: Notification) -> None:
        raise ValueError("odd")

    async with bare_client(on_notification=fail, on_error=errors.put_nowait) as (channel, _, peer):
        channel.send(Notification("notifications/x"))
        async with asyncio.timeout(5):
            assert str(await errors.get()) == "odd"
        assert peer.connected


async def test_a_batch_is_refused_unless_the_revision_supports_it() -> None:
    batch = b'[{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1}}]\n'
    for revision in (Revision.V2025_03_26, NEWEST_HANDSHAKE):
        left, right = memory_pair()
        conversation = Conversation(ConversationRole.SERVER, assume=revision, principal=ANONYMOUS)
        server, frames = Peer(right, conversation, handler=echo), Frames(left)
        server.start()
        left.write(batch)
        answer = await frames.next()
        if revision.batches:
            assert answer == Success(1, Raw(b'{"a":1}'))
            assert server.malformed == 0
        else:
            assert answer.code == -32600
            assert answer.message == "Batches are not part of the agreed protocol version"
            assert server.malformed == 1
        await server.close()
        await left.close()
        await frames.task


async def test_later_requests_in_a_batch_are_refused_if_unread_responses_accumulate() -> None:
    left, right = memory_pair()
    conversation = Conversation(
        ConversationRole.SERVER, assume=Revision.V2025_03_26, principal=ANONYMOUS
    )
    large = b'"' + b"x" * (1 << 20) + b'"'

    def inline(exchange: Exchange) -> Answer:
        return large

    server = Peer(right, conversation, inline=inline, inline_methods={"x"})
    server.start()
    hits = BATCH_QUEUE.hits
    one = b'{"jsonrpc":"2.0","id":%d,"method":"x"}'
    left.write(b"[%b]\n" % b",".join(one % number for number in (1, 2)))
    while not conversation.accepts_batches or not right.congested:
        await asyncio.sleep(0)
    frames = Frames(left)
    assert await frames.next() == Success(1, Raw(large))
    refused = await frames.next()
    assert (refused.id, refused.code) == (2, -32600)
    assert refused.message == (
        "The responses to this batch are too large; send its requests one by one"
    )
    assert BATCH_QUEUE.hits == hits + 1
    await server.close()
    await left.close()
    await frames.task


async def test_an_inline_handler_may_answer_refuse_or_defer_a_request() -> None:
    def inline(exchange: Exchange) -> Answer:
        if exchange.method == "refused":
            raise RpcError(-32001, "no")
        return b'"inline"' if exchange.method == "inline" else None

    methods = {"inline", "refused", "left"}
    async with bare_server(handler=echo, inline=inline, inline_methods=methods) as (
        channel,
        frames,
        server,
    ):
        for number, method in enumerate(["inline", "refused", "left", "other"]):
            channel.send(Request(number, method, Raw(b'{"by":"task"}')))
        got = {one.id: one for one in [await frames.next() for _ in range(4)]}
        assert got[0] == Success(0, Raw(b'"inline"'))
        assert (got[1].code, got[1].message) == (-32001, "no")
        assert got[2] == Success(2, Raw(b'{"by":"task"}'))
        assert got[3] == Success(3, Raw(b'{"by":"task"}'))
        assert server.conversation.unanswered_count == 0


async def test_a_handler_task_waits_until_its_large_response_has_been_read() -> None:
    large = b'"' + b"x" * (1 << 20) + b'"'

    async def handler(exchange: Exchange) -> Answer:
        if exchange.method == "told":
            note = Notification("notifications/x", Raw(b'{"a":%b}' % large))
            await exchange.edge.notify_caller(exchange, note)
            told.set()
            return b"{}"
        return large

    told = asyncio.Event()
    for method in ("answered", "told"):
        left, right = memory_pair()
        conversation = Conversation(
            ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=ANONYMOUS
        )
        server = Peer(right, conversation, handler=handler)
        server.start()
        left.send(Request(1, method))
        async with asyncio.timeout(5):
            while not right.congested:
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert server._work.running.keys() == {1}
        assert not told.is_set()
        frames = Frames(left)
        await frames.next()
        async with asyncio.timeout(5):
            while server._work.running:
                await asyncio.sleep(0)
        await server.close()
        await left.close()
        await frames.task
    assert told.is_set()


async def test_no_notification_of_a_request_follows_its_response() -> None:
    seen: asyncio.Queue[Exchange] = asyncio.Queue()

    async def handler(exchange: Exchange) -> Answer:
        seen.put_nowait(exchange)
        await exchange.edge.notify_caller(exchange, Notification("notifications/early"))
        return b"{}"

    async with bare_server(handler=handler) as (channel, frames, server):
        channel.send(Request(1, "x"))
        assert (await frames.next()).method == "notifications/early"
        assert isinstance(await frames.next(), Success)
        exchange = await seen.get()
        await server.notify_caller(exchange, Notification("notifications/late"))
        await server.notify("notifications/other")
        assert (await frames.next()).method == "notifications/other"


async def test_the_stream_of_a_request_can_be_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    detached: list[Any] = []
    monkeypatch.setattr(
        LineChannel, "detach", lambda _, request_id: detached.append(request_id), raising=False
    )

    async def handler(exchange: Exchange) -> Answer:
        exchange.edge.detach(exchange)
        return b"{}"

    async with bare_server(handler=handler) as (channel, frames, _):
        channel.send(Request(7, "x"))
        await frames.next()
    assert detached == [7]


async def test_a_request_other_than_ping_waits_for_the_response_to_initialize() -> None:
    gate, begun = asyncio.Event(), list[str]()

    async def handler(exchange: Exchange) -> Answer:
        begun.append(exchange.method)
        if exchange.method == "initialize":
            await gate.wait()
        return b"{}"

    left, right = memory_pair()
    server = Peer(
        right, Conversation(ConversationRole.SERVER, principal=ANONYMOUS), handler=handler
    )
    server.start()
    frames = Frames(left)
    about = b'"capabilities":{},"clientInfo":{"name":"c","version":"1"}'
    hello = b'{"protocolVersion":"2025-11-25",%b}' % about
    left.send(Request(1, "initialize", Raw(hello)))
    left.send(Notification("notifications/initialized"))
    left.send(Request(2, "tools/list"))
    left.send(Request(3, "ping"))
    assert (await frames.next()).id == 3
    assert begun == ["initialize", "ping"]
    gate.set()
    assert [(await frames.next()).id for _ in range(2)] == [1, 2]
    left.send(Request(4, "tools/list"))
    assert (await frames.next()).id == 4
    await server.close()
    await left.close()
    await frames.task


async def test_an_error_of_the_channel_ends_the_connection_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(self: LineChannel, deliver: Any) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(LineChannel, "run", fail)
    left, _right = memory_pair()
    errors: list[Exception] = []
    ends: list[ChannelClosed] = []
    conversation = Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS)
    client = Peer(left, conversation, on_error=errors.append, on_close=ends.append)
    client.start()
    end = await client.wait_closed()
    assert end.reason == "odd"
    assert [str(error) for error in errors] == ["odd"]
    assert ends == [end]


async def test_extra_members_of_a_cancelled_request_are_dropped() -> None:
    gate, exchanges = asyncio.Event(), list[Exchange]()

    async def handler(exchange: Exchange) -> Answer:
        exchanges.append(exchange)
        exchange.edge.add_extra_members(exchange.request_id, {"more": Raw(b"1")})
        await gate.wait()
        return b"{}"

    async with bare_server(handler=handler) as (channel, frames, server), asyncio.timeout(5):
        members = server._inbound_requests.responses.members
        channel.send(Request(1, "x"))
        while not members:
            await asyncio.sleep(0)
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":1}')))
        while members:
            await asyncio.sleep(0)
        server.add_extra_members(9, {"more": Raw(b"1")})
        assert members == {}
        channel.send(Request(2, "x"))
        gate.set()
        assert await frames.next() == Success(2, Raw(b"{}"), {"more": Raw(b"1")})
        assert members == {}
