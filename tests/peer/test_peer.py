"""Tests of peers: outcomes, deadlines, cancellation and the end of connections."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.errors import (
    ChannelClosed,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from fairlead.interceptor import Answer, Exchange, Handler
from fairlead.peer import Peer
from fairlead.peer.connection_state import InFlight
from fairlead.peer.inbound_requests import is_full
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.transport.line_channel import LineChannel
from fairlead.transport.memory import memory_pair
from fairlead.wire import Failure, Notification, Request, Success, decode
from tests.support.virtual_time import VirtualTime


@contextlib.asynccontextmanager
async def talking(handler: Handler, **server_settings: Any) -> AsyncIterator[tuple[Peer, Peer]]:
    """Connect a client and a server that have completed the handshake."""
    left, right = memory_pair()
    client = Peer(left, Conversation(ConversationRole.CLIENT, principal=ANONYMOUS))
    server = Peer(
        right,
        Conversation(ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=ANONYMOUS),
        handler=handler,
        **server_settings,
    )
    client.conversation.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
    client.start()
    server.start()
    await client.notify("notifications/initialized")
    try:
        yield client, server
    finally:
        await client.close()
        await server.close()


@contextlib.asynccontextmanager
async def bare_server(**settings: Any) -> AsyncIterator[tuple[LineChannel, "Frames", Peer]]:
    """Run a server peer, and yield the client's end of its channel."""
    left, right = memory_pair()
    server = Peer(
        right,
        Conversation(ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=ANONYMOUS),
        **settings,
    )
    server.start()
    frames = Frames(left)
    try:
        yield left, frames, server
    finally:
        await server.close()
        await left.close()
        await frames.task


class Frames:
    def __init__(self, channel: LineChannel) -> None:
        self.got: asyncio.Queue[Any] = asyncio.Queue()
        self.task = asyncio.create_task(channel.run(self.got.put_nowait))

    async def next(self) -> Any:
        async with asyncio.timeout(5):
            return await self.got.get()


async def echo(exchange: Exchange) -> Answer:
    return bytes(exchange.message.params)  # type: ignore[arg-type]


class Gate:
    """A handler whose calls wait until they are released."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[Exchange] = asyncio.Queue()
        self.open = asyncio.Event()
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, exchange: Exchange) -> Answer:
        self.started.put_nowait(exchange)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.ended.put_nowait("cancelled")
            raise
        self.ended.put_nowait("finished")
        return b"{}"


@pytest.mark.covers("TRN-06", "PRO-18")
async def test_each_response_is_returned_to_the_caller_of_its_request(loop_kind: str) -> None:
    async with talking(echo) as (client, _):
        answers = await asyncio.gather(*(client.request("x", {"n": n}) for n in range(500)))
        assert [msgspec.json.decode(a)["n"] for a in answers] == list(range(500))
        assert client.outbound.pending == {}


@pytest.mark.covers("TRN-11", "RPC-05")
async def test_an_error_response_is_raised_with_code_message_and_data() -> None:
    async def refuse(exchange: Exchange) -> Answer:
        raise RpcError(-32602, "unknown item", {"uri": "x:y"})

    async with talking(refuse) as (client, _):
        with pytest.raises(RpcError) as refused:
            await client.request("x")
        error = refused.value
        assert (error.code, error.message, error.data) == (-32602, "unknown item", {"uri": "x:y"})
        assert str(error) == "MCP error -32602: unknown item"


async def test_the_bytes_of_a_forwarded_error_are_unchanged() -> None:
    raw = (
        b'{"code":-32050,"message":"m","data":{"big":123456789012345678901234567890},"extra":1.50}'
    )

    async def relay(exchange: Exchange) -> Answer:
        raise RpcError(-32050, "m", raw=raw)

    async with bare_server(handler=relay) as (channel, frames, _):
        channel.send(Request(1, "x"))
        answer = await frames.next()
        assert isinstance(answer, Failure)
        assert bytes(answer.error) == raw


async def test_a_failing_handler_is_answered_with_an_internal_error_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(exchange: Exchange) -> Answer:
        raise ZeroDivisionError("secret path /etc/x")

    async with talking(broken) as (client, _):
        with pytest.raises(RpcError) as refused:
            await client.request("x")
        assert (refused.value.code, refused.value.message) == (-32603, "Internal error")
        assert "secret path" in caplog.text


async def test_a_cancelled_error_raised_by_the_handler_itself_is_a_failure() -> None:
    async def unlucky(exchange: Exchange) -> Answer:
        gone: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        gone.cancel()
        return await gone

    async with talking(unlucky) as (client, server):
        with pytest.raises(RpcError, match="Internal error"):
            await client.request("x", timeout=5)
        assert server.connected


async def test_a_handler_that_does_not_return_bytes_is_a_failure() -> None:
    async def wrong(exchange: Exchange) -> Any:
        return {"not": "encoded"}

    async with talking(wrong) as (client, server):
        with pytest.raises(RpcError, match="Internal error"):
            await client.request("x", timeout=5)
        assert server.connected


@pytest.mark.covers("TRN-10", "PRO-31")
async def test_a_timeout_cancels_the_remote_handler_and_does_not_affect_later_requests(
    loop_kind: str,
) -> None:
    gate = Gate()
    async with talking(gate) as (client, server):
        with pytest.raises(RequestTimeout, match="Request timeout after 20ms") as late:
            await client.request("tools/call", {}, timeout=0.02)
        assert isinstance(late.value, TimeoutError)
        assert await gate.ended.get() == "cancelled"
        assert client.outbound.pending == {}
        assert server._work.running == {}
        # Another request on the same connection is not affected.
        gate.open.set()
        assert bytes(await client.request("x")) == b"{}"


@pytest.mark.covers("PRO-31", "PRO-32", "TRN-10")
async def test_cancelling_the_caller_cancels_the_remote_handler_without_a_response() -> None:
    gate = Gate()
    async with talking(gate) as (client, _):
        task = asyncio.create_task(client.request("x"))
        await gate.started.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await gate.ended.get() == "cancelled"
        gate.open.set()
        await client.request("y")
        assert client.unmatched_count == 0  # the cancelled request got no response


async def test_an_id_may_be_reused_while_a_cancelled_request_cleans_up() -> None:
    started, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_leave(exchange: Exchange) -> Answer:
        if exchange.method == "second":
            return b'{"second":true}'
        started.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cleaning.set()
            await clean.wait()
            raise
        return b"{}"

    async with bare_server(handler=slow_to_leave) as (channel, frames, server):
        channel.send(Request(1, "first"))
        await started.wait()
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":1}')))
        await cleaning.wait()
        channel.send(Request(1, "second"))
        assert await frames.next() == Success(1, Raw(b'{"second":true}'))
        clean.set()
        channel.send(Request(1, "second"))
        assert await frames.next() == Success(1, Raw(b'{"second":true}'))
        async with asyncio.timeout(5):
            while server._work.leaving or server._work.running:
                await asyncio.sleep(0)


async def test_a_request_that_is_cancelled_in_the_same_chunk_never_runs() -> None:
    gate = Gate()
    async with bare_server(handler=gate) as (channel, frames, server):
        channel.send(Request(1, "x"))
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":1}')))
        channel.send(Request(2, "y"))
        assert (await gate.started.get()).request_id == 2
        assert list(server._work.running) == [2]
        gate.open.set()
        assert await frames.next() == Success(2, Raw(b"{}"))
        channel.send(Request(3, "z"))
        await asyncio.sleep(0)  # in progress, but perhaps not started when the peer is closed


@pytest.mark.covers("PRO-31")
async def test_initialize_is_never_cancelled() -> None:
    left, right = memory_pair()
    client = Peer(left, Conversation(ConversationRole.CLIENT, principal=ANONYMOUS))
    client.start()
    frames = Frames(right)
    with pytest.raises(RequestTimeout):
        await client.request("initialize", {}, timeout=0.02)
    await client.close()
    await frames.task
    assert [frames.got.get_nowait().method for _ in range(frames.got.qsize())] == ["initialize"]
    await right.close()


@pytest.mark.covers("RPC-12", "PRO-32")
async def test_a_response_after_the_cancellation_is_counted_and_ignored() -> None:
    left, right = memory_pair()
    client = Peer(left, Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS))
    client.start()
    frames = Frames(right)
    with pytest.raises(RequestTimeout):
        await client.request("x", timeout=0.02)
    asked, cancelled = await frames.next(), await frames.next()
    assert (asked.method, cancelled.method) == ("x", "notifications/cancelled")
    assert msgspec.json.decode(cancelled.params) == {"requestId": asked.id, "reason": "timeout"}
    right.send(Success(asked.id, Raw(b"{}")))
    right.send(Success(999, Raw(b"{}")))
    pending = asyncio.create_task(client.request("y"))
    again = await frames.next()
    right.send(Success(again.id, Raw(b'{"ok":true}')))
    assert bytes(await pending) == b'{"ok":true}'
    assert client.unmatched_count == 2
    await client.close()
    await right.close()
    await frames.task


@pytest.mark.covers("PRO-33")
async def test_progress_restarts_the_timeout_until_the_total_limit_expires() -> None:
    async def slow(exchange: Exchange) -> Answer:
        token = exchange.progress_token
        for step in range(100):
            await asyncio.sleep(0.02)
            params = Raw(msgspec.json.encode({"progressToken": token, "progress": step}))
            await exchange.edge.notify_caller(
                exchange, Notification("notifications/progress", params)
            )
            if exchange.method == "tools/call" and step == 8:
                return b"{}"
        return b"{}"

    async with talking(slow) as (client, _):
        steps: list[float] = []
        result = await client.request(
            "tools/call",
            {},
            timeout=0.1,
            max_total=10,
            on_progress=lambda progress, total, message: steps.append(progress),
        )
        assert bytes(result) == b"{}"
        assert steps == list(range(9))  # all progress arrives before the result
        with pytest.raises(RequestTimeout):
            # without `max_total`, progress does not restart the timeout
            await client.request("tools/call", {}, timeout=0.1)
        with pytest.raises(RequestTimeout):
            await client.request(
                "endless", {}, timeout=0.1, max_total=0.3, on_progress=lambda *_: None
            )


@pytest.mark.covers("PRO-33")
async def test_a_slow_progress_callback_completes_before_the_result() -> None:
    async def quick(exchange: Exchange) -> Answer:
        for step in range(3):
            params = Raw(
                msgspec.json.encode({"progressToken": exchange.progress_token, "progress": step})
            )
            await exchange.edge.notify_caller(
                exchange, Notification("notifications/progress", params)
            )
        return b"{}"

    seen: list[float] = []

    async def look(progress: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(0.01)
        seen.append(progress)
        if progress == 1:
            raise ValueError("the failure of a callback is only logged")

    async with talking(quick) as (client, _):
        await client.request("x", {}, on_progress=look)
        assert seen == [0, 1, 2]


@pytest.mark.covers("TRN-07", "TRN-06")
async def test_a_lost_connection_fails_all_requests_at_once(loop_kind: str) -> None:
    async with talking(Gate()) as (client, server):
        requests = [asyncio.create_task(client.request("x", {"n": n})) for n in range(50)]
        await asyncio.sleep(0)
        await server.channel.close()
        async with asyncio.timeout(2):
            outcomes = await asyncio.gather(*requests, return_exceptions=True)
        assert all(isinstance(o, ChannelClosed) for o in outcomes)
        assert all("Transport closed" in str(o) for o in outcomes)
        assert not client.connected
        with pytest.raises(ChannelClosed, match="Transport not connected"):
            await client.request("y")


@pytest.mark.covers("TRN-04", "PRO-08")
async def test_any_task_may_close_a_peer_and_its_end_is_reported_once() -> None:
    ends: list[ChannelClosed] = []
    left, right = memory_pair()
    client = Peer(
        left,
        Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS),
        on_close=ends.append,
    )
    client.start()
    waiting = asyncio.create_task(client.request("x"))
    await asyncio.sleep(0)
    await asyncio.gather(*(asyncio.create_task(client.close()) for _ in range(5)))
    await client.close()
    with pytest.raises(ChannelClosed):
        await waiting
    assert len(ends) == 1
    await right.close()


async def test_a_handler_may_close_its_own_connection() -> None:
    peers: list[Peer] = []

    async def leave(exchange: Exchange) -> Answer:
        await peers[0].close()
        return b"{}"

    async with talking(leave) as (client, server):
        peers.append(server)
        with pytest.raises(ChannelClosed):
            await client.request("x")
        await server.wait_closed()


@pytest.mark.covers("PRO-38")
async def test_a_handler_may_send_requests_on_its_own_connection() -> None:
    async def curious(exchange: Exchange) -> Answer:
        return await exchange.edge.request_caller(exchange, "ping", None)

    left, right = memory_pair()

    async def pong(exchange: Exchange) -> Answer:
        return b'{"pong":true}'

    client = Peer(left, Conversation(ConversationRole.CLIENT, principal=ANONYMOUS), handler=pong)
    server = Peer(
        right,
        Conversation(ConversationRole.SERVER, gated=False, principal=ANONYMOUS),
        handler=curious,
    )
    client.start()
    server.start()
    client.conversation.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
    server.conversation.receive(
        decode(
            b'{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":'
            b'"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}'
        )  # type: ignore[arg-type]
    )
    await client.notify("notifications/initialized")
    answers = await asyncio.gather(*(client.request("x") for _ in range(20)))
    assert {bytes(a) for a in answers} == {b'{"pong":true}'}
    await client.close()
    await server.close()


@pytest.mark.covers("PRO-37")
async def test_deadlines_of_a_call_are_paused_while_its_caller_is_asked_for_input() -> None:
    left, right = memory_pair()

    async def person(exchange: Exchange) -> Answer:
        await asyncio.sleep(0.3)
        return b'{"roots":[]}'

    async def curious(exchange: Exchange) -> Answer:
        if exchange.method == "slow":
            await asyncio.sleep(600)
        return await exchange.edge.request_caller(exchange, "roots/list", None)

    client = Peer(
        left,
        Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS),
        handler=person,
    )
    server = Peer(
        right,
        Conversation(ConversationRole.SERVER, gated=False, principal=ANONYMOUS),
        handler=curious,
    )
    client.start()
    server.start()
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {}}
    initialize = client.conversation.request("initialize", hello)
    server.conversation.receive(initialize)
    client.conversation.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
    await client.notify("notifications/initialized")
    assert bytes(await client.request("x", timeout=0.15)) == b'{"roots":[]}'
    with pytest.raises(RequestTimeout):
        await client.request("slow", timeout=0.05)
    await client.close()
    await server.close()


@pytest.mark.covers("PRO-38")
async def test_listening_requests_do_not_count_towards_the_limit() -> None:
    begun: asyncio.Queue[str] = asyncio.Queue()

    async def lasting(exchange: Exchange) -> Answer:
        begun.put_nowait(exchange.method)
        await asyncio.Event().wait()
        return None

    async with bare_server(handler=lasting, max_in_flight=2) as (channel, _, server):
        for number in range(1, 6):
            channel.send(Request(number, "subscriptions/listen"))
        for number in range(6, 9):
            channel.send(Request(number, "x"))
        async with asyncio.timeout(5):
            came = [await begun.get() for _ in range(7)]
        assert came == [*["subscriptions/listen"] * 5, "x", "x"]
        await asyncio.sleep(0)
        assert begun.empty()  # the third "x" request waits
        for number in range(9, 200):  # more listen requests than the limit
            channel.send(Request(number, "subscriptions/listen"))
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(server._work.running) < 80


@pytest.mark.covers("PRO-38")
async def test_requests_beyond_the_limit_wait_and_are_then_refused() -> None:
    gate = Gate()
    async with bare_server(handler=gate, max_in_flight=2) as (channel, frames, server):
        for number in range(1, 2000):
            channel.send(Request(number, "x"))
            if number % 100 == 0:
                await asyncio.sleep(0)
        refused = await frames.next()
        assert isinstance(refused, Failure)
        assert "Too many requests" in refused.message
        assert len(server._work.running) == 2
        assert len(server._inbound_requests._queued) == 1024
        # Cancellations and responses are still read.
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":3}')))
        channel.send(Notification("notifications/cancelled", Raw(b'{"requestId":1}')))
        assert await gate.ended.get() == "cancelled"
        assert len(server._inbound_requests._queued) <= 1023
        gate.open.set()
        outcomes: dict[Any, Any] = {}
        while len(outcomes) < 1997 - 1:
            message = await frames.next()
            assert message.id not in outcomes  # each request is answered once
            outcomes[message.id] = message
        assert 1 not in outcomes
        assert 3 not in outcomes


@pytest.mark.covers("TRN-15", "DEC-13")
async def test_a_client_skips_invalid_frames_and_reports_them() -> None:
    left, right = memory_pair()
    errors: list[Exception] = []
    client = Peer(
        left,
        Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS),
        on_error=errors.append,
    )
    client.start()
    frames = Frames(right)
    pending = asyncio.create_task(client.request("x"))
    asked = await frames.next()
    right.write(b"log: starting\n")
    right.send(Success(asked.id, Raw(b"{}")))
    assert bytes(await pending) == b"{}"
    assert [type(e).__name__ for e in errors] == ["RemoteProtocolError"]
    assert client.malformed == 1
    assert frames.got.empty()  # a client does not answer invalid frames
    await client.close()
    await right.close()
    await frames.task


@pytest.mark.covers("DEC-13")
async def test_a_program_that_writes_a_long_usage_text_is_disconnected_at_once() -> None:
    left, right = memory_pair()
    client = Peer(left, Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS))
    client.start()
    pending = asyncio.create_task(client.request("initialize", {}))
    await asyncio.sleep(0)
    right.write(b"Usage: prog [options]\n" * 50_000)
    with pytest.raises(ChannelClosed, match=r"starting with 'Usage: prog \[options\]'"):
        async with asyncio.timeout(5):
            await pending
    await client.close()
    await right.close()


@pytest.mark.covers("DEC-13", "DEC-15", "RPC-11")
async def test_a_server_answers_invalid_frames_with_errors() -> None:
    async with bare_server(handler=echo) as (channel, frames, _):
        channel.write(b"what?\n")
        first = await frames.next()
        assert (first.id, first.code, first.absent_id) == (None, -32700, False)
        channel.write(b'{"jsonrpc":"2.0","id":7,"method":5}\n')
        second = await frames.next()
        assert (second.id, second.code) == (7, -32600)
        channel.write(b'[{"jsonrpc":"2.0","id":8,"method":"x"}]\n')
        third = await frames.next()
        assert (third.code, "Batches" in third.message) == (-32600, True)


@pytest.mark.covers("TRN-13")
async def test_a_request_times_out_even_if_the_peer_does_not_read() -> None:
    left, right = memory_pair()  # the other end of the channel is never run
    client = Peer(left, Conversation(ConversationRole.CLIENT, gated=False, principal=ANONYMOUS))
    client.start()
    big = {"x": "y" * (1 << 20)}
    with pytest.raises(RequestTimeout):
        await client.request("one", big, timeout=0.05)
    with pytest.raises(RequestTimeout) as second:
        await client.request("two", big, timeout=0.05)
    assert second.value.delivered is False  # the request was not sent, so it may be sent again
    with pytest.raises(RequestTimeout):
        await client.notify("three", timeout=0.05)
    await client.close()
    await right.close()


async def test_a_handler_that_ignores_its_cancellation_does_not_delay_closing() -> None:
    started = asyncio.Event()
    release = asyncio.Event()
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    async def stubborn(exchange: Exchange) -> Answer:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return b"{}"

    async with talking(stubborn) as (client, server):
        task = asyncio.create_task(client.request("x"))
        await started.wait()
        async with asyncio.timeout(4):
            await server.close()
        with pytest.raises(ChannelClosed):
            await task
        release.set()
        for _ in range(3):
            await asyncio.sleep(0)
    gc.collect()
    assert failures == []


@pytest.mark.covers("QUA-05")
async def test_a_closed_peer_can_be_garbage_collected() -> None:
    async with talking(echo) as (client, server):
        await client.request("x", {})
        references = [weakref.ref(client), weakref.ref(server)]
    del client, server
    await asyncio.sleep(0)
    gc.collect()
    assert [r() for r in references] == [None, None]


async def test_queued_requests_continue_after_the_end_of_input_while_requests_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of a cancelled request counts as progress although it is not answered."""
    monkeypatch.setattr("fairlead.peer.peer.EOF_GRACE", 0.2)
    started: asyncio.Queue[str] = asyncio.Queue()
    input_ended = asyncio.Event()

    async def handle(exchange: Exchange) -> Answer:
        started.put_nowait(exchange.method)
        if exchange.method == "slow":
            await input_ended.wait()
            await asyncio.sleep(0.3)  # longer than one grace period, shorter than two
            return b"{}"
        try:
            await asyncio.Event().wait()
        finally:
            await input_ended.wait()
        raise AssertionError

    async with bare_server(handler=handle, on_eof=lambda peer: input_ended.set()) as (
        client,
        frames,
        _,
    ):
        client.send(Request(1, "cancelled"))
        client.send(Request(2, "slow"))
        async with asyncio.timeout(5):
            assert {await started.get(), await started.get()} == {"cancelled", "slow"}
        client.send(Notification("notifications/cancelled", Raw(b'{"requestId":1}')))
        await client.close_sink()
        assert await frames.next() == Success(2, Raw(b"{}"))


async def test_a_peer_without_a_handler_rejects_every_method_as_unknown() -> None:
    async with bare_server() as (client, frames, _):
        client.send(Request(1, "tools/list"))
        refused = await frames.next()
        assert (refused.id, refused.code) == (1, -32601)
        assert refused.message == "Method not found: tools/list"


async def test_failing_peer_callbacks_are_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*args: object) -> None:
        raise ValueError("callback")

    settings = {"on_error": fail, "on_close": fail, "on_notification": fail}
    async with bare_server(handler=echo, **settings) as (client, frames, server):
        client.send(Notification("notifications/initialized"))
        client.send(Notification("notifications/x"))
        client.send(Request(1, "m", Raw(b"{}")))
        assert await frames.next() == Success(1, Raw(b"{}"))
        await client.close()
        async with asyncio.timeout(5):
            await server.wait_closed()
    assert "a message could not be handled" in caplog.text
    assert "on_error failed" in caplog.text
    assert "on_close failed" in caplog.text


async def test_a_request_on_an_ended_connection_fails_without_being_sent() -> None:
    async with talking(echo) as (client, _):
        await client.close()
        with pytest.raises(ChannelClosed) as closed:
            await client.request("m")
        assert closed.value.delivered is False
        with pytest.raises(ChannelClosed) as closed:
            client.outbound.forward_nowait("m", Raw(b"{}"), lambda outcome: None)
        assert closed.value.delivered is False


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LocalProtocolError("not now", code=-32600), -32600, "not now"),
        (RemoteProtocolError("odd", code=-32700), -32700, "odd"),
        (ChannelClosed("gone"), -32603, "Internal error"),
        (ValueError("secret"), -32603, "Internal error"),
    ],
)
async def test_the_error_response_of_a_failing_handler_shows_only_protocol_errors(
    error: Exception, code: int, message: str
) -> None:
    async def handle(exchange: Exchange) -> Answer:
        raise error

    async with talking(handle) as (client, _):
        with pytest.raises(RpcError) as refused:
            await client.request("m")
    assert (refused.value.code, refused.value.message) == (code, message)


@pytest.mark.parametrize(("seconds", "answered"), [(1.4, True), (1.6, False)])
async def test_a_request_may_take_a_second_and_a_half_after_the_end_of_input(
    virtual_time: VirtualTime, seconds: float, answered: bool
) -> None:
    async def slow(exchange: Exchange) -> Answer:
        await asyncio.sleep(seconds)
        return b"{}"

    async with bare_server(handler=slow) as (client, frames, server):
        client.send(Request(1, "x"))
        await client.close_sink()
        await server.wait_closed()
        assert frames.got.qsize() == answered


@pytest.mark.parametrize(("seconds", "cleaned"), [(0.9, True), (1.1, False)])
async def test_a_cancelled_handler_has_a_second_to_clean_up(
    virtual_time: VirtualTime, seconds: float, cleaned: bool
) -> None:
    done: list[float] = []
    started = asyncio.Event()

    async def untidy(exchange: Exchange) -> Answer:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(seconds)
            done.append(virtual_time.now)
        raise AssertionError

    async with bare_server(handler=untidy) as (client, _, server):
        client.send(Request(1, "x"))
        await started.wait()
        begun = virtual_time.now
        await server.close()
        assert virtual_time.now - begun == pytest.approx(min(seconds, 1.0))
        assert bool(done) == cleaned
    await asyncio.sleep(1)


@pytest.mark.parametrize(("lines", "size", "closed"), [(99, 10, False), (100, 10, True)])
async def test_a_program_that_writes_a_hundred_invalid_lines_is_disconnected(
    lines: int, size: int, closed: bool
) -> None:
    await chat(b"x" * size, lines, closed=closed)


@pytest.mark.parametrize(("size", "closed"), [(32 << 10, True), ((32 << 10) - 1, False)])
async def test_a_program_that_writes_64_kilobytes_of_invalid_lines_is_disconnected(
    size: int, closed: bool
) -> None:
    await chat(b"x" * size, 2, closed=closed)


async def chat(line: bytes, count: int, *, closed: bool) -> None:
    """Write invalid lines to a client, then a valid line."""
    left, right = memory_pair()
    told: asyncio.Queue[Notification] = asyncio.Queue()
    conversation = Conversation(ConversationRole.CLIENT, principal=ANONYMOUS)
    client = Peer(left, conversation, on_notification=told.put_nowait)
    conversation.set_agreement(Agreement(revision=NEWEST_HANDSHAKE))
    client.start()
    reading = asyncio.create_task(right.run(lambda item: None))
    for _ in range(count):
        right.write(line + b"\n")
    right.send(Notification("notifications/x"))
    async with asyncio.timeout(5):
        if closed:
            end = await client.wait_closed()
            assert "writes output that is not MCP" in str(end)
        else:
            assert (await told.get()).method == "notifications/x"
    await client.close()
    await right.close()
    await reading


@pytest.mark.parametrize(("listening", "at_work", "full"), [(64, 1, False), (64, 2, True)])
async def test_up_to_64_listening_requests_do_not_count_towards_the_limit(
    listening: int, at_work: int, full: bool
) -> None:
    work = InFlight(2)
    tasks = [asyncio.create_task(asyncio.Event().wait()) for _ in range(listening + at_work)]
    for number, task in enumerate(tasks):
        work.running[number] = task  # type: ignore[assignment]
        if number < listening:
            work.mark_long_lived(task)  # type: ignore[arg-type]
    assert is_full(work) == full
    one_more = asyncio.create_task(asyncio.Event().wait())
    work.running[-1] = one_more  # type: ignore[assignment]
    work.mark_long_lived(one_more)  # type: ignore[arg-type]
    assert is_full(work)  # the 65th listening request counts
    for task in (*tasks, one_more):
        task.cancel()
    await asyncio.wait((*tasks, one_more))
    assert work.lasting == set()
