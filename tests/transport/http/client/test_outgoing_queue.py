"""The order of outgoing messages and the limit of concurrent calls."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.errors import (
    ChannelClosed,
    FairleadError,
    RequestTimeout,
    TransportError,
)
from fairlead.protocol.caller import read_params_head
from fairlead.transport.http.client.http1.http_client import HttpResponse
from fairlead.transport.http.client.outgoing_queue import ConcurrencyLimit
from fairlead.transport.http.client.post_response_stream import PendingPost
from fairlead.wire import Notification, Request, Success
from tests.support.scripted_door import Asked, ScriptedChannel, reply, stream
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    handshake_server,
    progress,
    raw_server,
    stateless_server,
)
from tests.support.virtual_time import VirtualTime


@pytest.mark.covers("HTT-10")
async def test_sending_a_notification_times_out_without_a_response() -> None:
    async def rest(call: Call) -> None:
        await call.gone()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (_, channel),
    ):
        with pytest.raises(RequestTimeout, match="Notify timeout after 50ms"):
            await channel.tell(Notification("notifications/x"), timeout=0.05)


async def test_requests_wait_for_earlier_notifications() -> None:
    accepted = asyncio.Event()

    async def rest(call: Call) -> None:
        if call.rpc == "notifications/x":
            await accepted.wait()
            await call.accept()
        else:
            await call.result({"after": accepted.is_set()})

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (peer, _),
    ):
        await peer.notify("notifications/x")
        asking = asyncio.create_task(peer.request("tools/list"))
        await server.wait_for("notifications/x")
        accepted.set()
        assert bytes(await asking) == b'{"after": true}'


@pytest.mark.covers("HTT-16")
async def test_a_full_pool_does_not_block_responses_of_the_client() -> None:
    """Nine calls wait for responses of the client, and the pool has three connections."""
    answers = asyncio.Queue[Any]()

    async def rest(call: Call) -> None:
        if call.rpc == "tools/call":
            await call.begin_events()
            question = {"jsonrpc": "2.0", "id": call.message["id"], "method": "roots/list"}
            await call.event(question)
            await call.result_event({"n": (await answers.get())["id"]})
            await call.end()
        else:
            answers.put_nowait(call.message)
            await call.accept()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=3) as (peer, _),
    ):
        calls = [peer.request("tools/call", {"name": "x"}) for _ in range(9)]
        assert len(await asyncio.gather(*calls)) == 9


@pytest.mark.covers("HTT-16")
async def test_concurrent_calls_are_limited_and_reuse_connections() -> None:
    running = most = 0

    async def rest(call: Call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        await call.result({})

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=4) as (peer, _),
    ):
        await asyncio.gather(*(peer.request("tools/list") for _ in range(40)))
        assert most <= 4
        assert server.connections <= 6


@pytest.mark.covers("TRN-13")
async def test_senders_wait_while_the_queue_is_above_its_high_water_mark() -> None:
    go_on = asyncio.Event()

    async def rest(call: Call) -> None:
        await go_on.wait()
        await call.result({})

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=1) as (peer, channel),
    ):
        big = {"x": "y" * 400_000}
        calls = [asyncio.create_task(peer.request("tools/list", big)) for _ in range(6)]
        await server.wait_for("tools/list")
        while not channel.congested:
            await asyncio.sleep(0)
        draining = asyncio.create_task(channel.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        go_on.set()
        await asyncio.gather(*calls, draining)
        assert not channel.congested


@pytest.mark.covers("HTT-10")
async def test_a_stateless_request_is_cancelled_by_closing_its_stream() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        try:
            await call.begin_events()
            await call.gone()
        finally:
            hung_up.set()

    async with raw_server(stateless_server(rest)) as server:
        async with connected(server.url, "stateless") as (peer, _):
            with pytest.raises(RequestTimeout, match="SSE response timeout after 100ms"):
                await peer.request("tools/call", {"name": "x"}, timeout=0.1)
            async with asyncio.timeout(5):
                await hung_up.wait()
        assert [call.rpc for call in server.calls] == ["server/discover", "tools/call"]


@pytest.mark.covers("HTT-10")
async def test_a_handshake_request_is_cancelled_by_a_notification_and_closing_its_stream() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        try:
            await call.gone()
        finally:
            hung_up.set()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url, pool_size=1) as (peer, _),
    ):
        asking = asyncio.create_task(peer.request("tools/call", {"name": "x"}))
        never_sent = asyncio.create_task(peer.request("tools/call", {"name": "y"}))
        await server.wait_for("tools/call")
        never_sent.cancel()
        asking.cancel()
        told = await server.wait_for("notifications/cancelled")
        assert told.message["params"]["requestId"] == 2
        async with asyncio.timeout(5):
            await hung_up.wait()
        assert len(server.of("notifications/cancelled")) == 1
        assert len(server.of("tools/call")) == 1


async def test_a_subscription_does_not_count_as_a_call_and_ends_when_it_is_cancelled() -> None:
    hung_up = asyncio.Event()

    async def rest(call: Call) -> None:
        if call.rpc == "subscriptions/listen":
            await call.begin_events()
            await call.event(progress(1))
            await call.gone()
            hung_up.set()
        else:
            await call.result({})

    host = Host()
    async with (
        raw_server(stateless_server(rest)) as server,
        connected(server.url, "stateless", host, pool_size=1) as (peer, _),
    ):
        listening = asyncio.create_task(peer.request("subscriptions/listen", {}, timeout=0))
        await host.told.get()
        await peer.request("tools/list")
        listening.cancel()
        async with asyncio.timeout(5):
            await hung_up.wait()


@pytest.mark.covers("TRN-06")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_completed_failed_and_cancelled_requests_leave_no_state(era: str) -> None:
    async def rest(call: Call) -> None:
        n = call.message["id"]
        match n % 6:
            case 0:
                await call.result({})
            case 1:
                await call.answer(500, "no")
            case 2:
                call.cut()
            case 3:
                await call.begin_events()
                await call.result_event({})
                await call.end()
            case 4:
                await call.begin_events()
                await call.gone()
            case 5:
                await call.gone()

    wrapped = handshake_server(rest) if era == "handshake" else stateless_server(rest)
    async with (
        raw_server(wrapped) as server,
        connected(server.url, era, pool_size=5) as (peer, channel),
    ):

        async def one(n: int) -> None:
            with contextlib.suppress(FairleadError):
                await peer.request("tools/list", timeout=0.02 * (n % 10) + 0.005)

        tasks = [asyncio.create_task(one(n)) for n in range(150)]
        for n, task in enumerate(tasks):
            if n % 7 == 0:
                task.cancel()
            elif n % 10 == 0:
                await asyncio.sleep(0)
        await asyncio.wait(tasks)
        assert channel._receiver.pending == {}
        async with asyncio.timeout(5):
            for _ in range(5):
                await channel._slots.take(1)  # every slot is free again
        assert not channel.congested
        assert peer.connected


# Without a network


def meta(**more: Any) -> Raw:
    stated = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    return Raw(json.dumps({"_meta": stated, **more}).encode())


def answer_to(asked: Asked) -> HttpResponse:
    if "id" not in asked.message:
        return reply(202)
    result = {"protocolVersion": "2025-11-25"} if asked.rpc == "initialize" else {}
    answer = {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}
    return reply(200, answer, **({"Mcp_Session_Id": "s"} if asked.rpc == "initialize" else {}))


class Held:
    """A server that responds immediately, except to held requests, which wait for release."""

    def __init__(self, *held: str) -> None:
        self.held = set(held)
        self.release = asyncio.Semaphore(0)

    async def __call__(self, asked: Asked) -> HttpResponse:
        if asked.rpc in self.held:
            await self.release.acquire()
        return answer_to(asked)


async def turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def shake(one: ScriptedChannel) -> None:
    params = Raw(b'{"protocolVersion":"2025-11-25","capabilities":{}}')
    one.channel.send(Request(0, "initialize", params))
    await one.got()
    one.channel.send(Notification("notifications/initialized"))
    await turns()
    one.delivered.clear()
    one.door.asked.clear()


def rpcs(one: ScriptedChannel) -> list[str]:
    return [asked.rpc for asked in one.door.asked]


async def test_requests_and_notifications_wait_for_an_earlier_notification() -> None:
    held = Held("first")
    async with ScriptedChannel.over(held) as one:
        one.channel.send(Notification("first"))
        one.channel.send(Notification("second"))
        one.channel.send(Request(1, "tools/list"))
        one.channel.send(Success(9, Raw(b"{}")))
        one.channel.send_success(8, b"{}")
        await turns()
        assert rpcs(one) == ["first", "POST", "POST"], "responses do not wait for notifications"
        held.release.release()
        await turns()
        assert rpcs(one)[3:] == ["second", "tools/list"]
        one.channel.send(Request(2, "ping"))
        await turns()
        assert rpcs(one)[5:] == ["ping"]


async def test_messages_wait_at_most_five_seconds_for_an_earlier_notification(
    virtual_time: VirtualTime,
) -> None:
    held = Held("first", "second")
    async with ScriptedChannel.over(held) as one:
        begun = virtual_time.now
        one.channel.send(Notification("first"))
        one.channel.send(Notification("second"))
        one.channel.send(Request(1, "tools/list"))
        await asyncio.sleep(20)
        times = [(asked.rpc, asked.at - begun) for asked in one.door.asked]
        assert times == [("first", 0.0), ("second", 5.0), ("tools/list", 5.0)]
        held.release.release()
        held.release.release()


@pytest.mark.parametrize(("listen", "listens"), [(True, 1), (False, 0)])
async def test_the_listening_stream_opens_after_initialized(listen: bool, listens: int) -> None:
    async with ScriptedChannel.over(Held(), listen=listen) as one:
        one.channel.send(Notification("notifications/initialized"))
        await turns()
        assert rpcs(one) == ["notifications/initialized"], "no session yet"
        one.channel.send(Request(0, "initialize", Raw(b"{}")))
        await one.got()
        one.channel.send(Notification("notifications/other"))
        await turns()
        assert rpcs(one).count("GET") == 0
        one.channel.send(Notification("notifications/initialized"))
        await turns()
        assert rpcs(one).count("GET") == listens


async def test_a_refused_message_is_reported_to_on_error() -> None:
    async def refuse(asked: Asked) -> HttpResponse:
        return reply(400, b"no")

    async with ScriptedChannel.over(refuse) as one:
        one.channel.send(Notification("first"))
        one.channel.send_success(1, b"{}")
        await turns()
        assert [str(error) for error in one.errors] == ["HTTP 400: no", "HTTP 400: no"]


async def test_a_message_that_is_not_accepted_within_30_seconds_is_reported(
    virtual_time: VirtualTime,
) -> None:
    async with ScriptedChannel.over(Held("first", "POST")) as one:
        one.channel.send(Notification("first"))
        one.channel.send_success(1, b"{}")
        await asyncio.sleep(29.9)
        assert one.errors == []
        await asyncio.sleep(0.2)
        assert {type(error) for error in one.errors} == {RequestTimeout}
        late = "Notify timeout after 30000ms"
        assert sorted(str(error) for error in one.errors) == [late, f"{late} (first)"]


async def test_calls_wait_for_a_slot_and_other_messages_do_not() -> None:
    held = Held("tools/call")
    async with ScriptedChannel.over(held, pool_size=2) as one:
        for number in range(4):
            one.channel.send(Request(number, "tools/call", meta(name="x")))
        for number, method in enumerate(("ping", "server/discover", "subscriptions/listen")):
            one.channel.send(Request(10 + number, method, meta()))
        one.channel.send(Request(20, "tools/list"))
        await turns()
        assert sorted(rpcs(one)) == [
            *("ping", "server/discover", "subscriptions/listen"),
            *("tools/call", "tools/call"),
        ]
        held.release.release()
        await turns()
        assert rpcs(one).count("tools/call") == 3
        for _ in range(3):
            held.release.release()
        await turns()
        assert len(one.delivered) == 8


async def test_a_request_that_cannot_be_sent_fails_and_frees_its_slot() -> None:
    async def boom(asked: Asked) -> HttpResponse:
        if asked.rpc == "tools/call":
            raise ValueError("boom")
        return answer_to(asked)

    async with ScriptedChannel.over(boom, pool_size=1) as one:
        for number in (1, 2):
            one.channel.send(Request(number, "tools/call"))
        lost = await one.got(2)
        assert (lost.request_id, type(lost.error)) == (2, TransportError)
        assert str(lost.error) == "ValueError: boom"
        one.channel.send(Request(3, "tools/list"))
        assert (await one.got(3)).id == 3


def cancelled(request_id: int) -> Notification:
    return Notification("notifications/cancelled", Raw(b'{"requestId":%d}' % request_id))


@pytest.mark.parametrize(
    ("era", "method", "told"),
    [
        ("handshake", "tools/call", True),
        ("handshake", "waiting", False),
        ("handshake", "unknown", True),
        ("stateless", "tools/call", False),
        ("stateless", "waiting", False),
        ("stateless", "unknown", False),
    ],
)
async def test_only_handshake_requests_that_were_sent_are_cancelled_by_notification(
    era: str, method: str, told: bool
) -> None:
    async with ScriptedChannel.over(Held("tools/call"), pool_size=1, listen=False) as one:
        if era == "handshake":
            await shake(one)
        params = UNSET if era == "handshake" else meta(name="x")
        for number in (1, 2):
            one.channel.send(Request(number, "tools/call", params))
        await turns()
        assert rpcs(one) == ["tools/call"]
        one.channel.send(cancelled({"tools/call": 1, "waiting": 2, "unknown": 77}[method]))
        await turns()
        assert ("notifications/cancelled" in rpcs(one)) == told
        assert rpcs(one).count("tools/call") == (2 if method == "tools/call" else 1)
        assert one.delivered == []


async def test_server_requests_that_belong_to_a_cancelled_request_are_cancelled() -> None:
    made = stream()

    async def answer(asked: Asked) -> HttpResponse:
        return made if asked.rpc == "tools/call" else answer_to(asked)

    async with ScriptedChannel.over(answer, listen=False) as one:
        await shake(one)
        one.channel.send(Request(1, "tools/call"))
        made.event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
        assert (await one.got()).id == "q"
        one.channel.send(cancelled(1))
        note = await one.got(2)
        assert (note.method, json.loads(bytes(note.params))["requestId"]) == (
            *("notifications/cancelled", "q"),
        )
        assert made.dropped


async def test_a_request_waits_for_a_session_that_is_being_renewed() -> None:
    held = Held()
    forgotten = True

    async def answer(asked: Asked) -> HttpResponse:
        if asked.rpc == "tools/call" and forgotten:
            return reply(404)
        return await held(asked)

    async with ScriptedChannel.over(answer, listen=False) as one:
        await shake(one)
        held.held = {"initialize"}
        one.channel.send(Request(1, "tools/call"))
        await one.asked("initialize")
        one.channel.send(Request(2, "tools/list"))
        await turns()
        assert rpcs(one) == ["tools/call", "initialize"]
        forgotten = False
        held.release.release()
        await turns()
        assert sorted(item.id for item in one.delivered) == [1, 2]


# Limit of calls

HIGH_WATER = 1 << 20


async def test_slots_are_assigned_in_order_and_waiting_bytes_are_counted() -> None:
    limit = ConcurrencyLimit(1)
    await limit.take(HIGH_WATER + 1)
    assert not limit.congested, "no waiting call"
    waiting = [asyncio.create_task(limit.take(size)) for size in (HIGH_WATER, 1)]
    await asyncio.sleep(0)
    assert limit.congested
    draining = asyncio.create_task(limit.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    waiting[1].cancel()
    await asyncio.wait((waiting[1],))
    await draining
    assert not limit.congested
    posted = PendingPost(Request(1, "x"), read_params_head(UNSET))
    limit.release_post(posted)
    await asyncio.sleep(0)
    assert not waiting[0].done(), "a post that holds no slot frees none"
    posted.counted = True
    limit.release_post(posted)
    limit.release_post(posted)
    await waiting[0]
    assert posted.counted is False
    third = asyncio.create_task(limit.take(1))
    await asyncio.sleep(0)
    assert not third.done(), "releasing a post twice frees one slot"
    third.cancel()
    await asyncio.wait((third,))


async def test_every_drain_that_waits_raises_when_the_limit_is_closed() -> None:
    limit = ConcurrencyLimit(1)
    await limit.take(1)
    waiting = asyncio.create_task(limit.take(HIGH_WATER + 1))
    await asyncio.sleep(0)
    draining = [asyncio.create_task(limit.drain()) for _ in range(2)]
    await asyncio.sleep(0)
    limit.close()
    for one in draining:
        with pytest.raises(ChannelClosed) as closed:
            await one
        assert closed.value.delivered is False
    waiting.cancel()
    await asyncio.wait((waiting,))
    await limit.drain()


# Closing


async def test_queued_notifications_and_responses_are_sent_before_the_channel_closes() -> None:
    gate = asyncio.Event()
    done: list[str] = []

    async def answer(asked: Asked) -> HttpResponse:
        await gate.wait()
        done.append(asked.rpc)
        return answer_to(asked)

    async with ScriptedChannel.over(answer) as one:
        one.channel.send(Notification("note"))
        one.channel.send_success(1, b"{}")
        one.channel.send(Request(2, "tools/list"))
        await turns()
        closing = asyncio.create_task(one.channel.close())
        await turns()
        assert not closing.done()
        for attempt in (
            lambda: one.channel.send(Notification("late")),
            lambda: one.channel.send_success(3, b"{}"),
        ):
            with pytest.raises(ChannelClosed) as refused:
                attempt()
            assert refused.value.delivered is False
        for late in (one.channel.tell(Notification("late")), one.channel.start_listening()):
            with pytest.raises(ChannelClosed):
                await late
        gate.set()
        await closing
        assert sorted(done) == ["POST", "note"]
        assert one.door.closed
        assert one.delivered == []


async def test_closing_waits_one_second_for_unsent_messages(virtual_time: VirtualTime) -> None:
    async with ScriptedChannel.over(Held("note")) as one:
        one.channel.send(Notification("note"))
        await turns()
        begun = virtual_time.now
        await one.channel.close()
        assert virtual_time.now - begun == pytest.approx(1.0)
        assert one.errors == []


async def test_closing_the_channel_terminates_the_session() -> None:
    async with ScriptedChannel.over(Held(), listen=False) as one:
        await shake(one)
        assert one.channel.session_id == "s"
        await one.channel.close()
        (ended,) = one.door.of("DELETE")
        assert ended.headers["mcp-session-id"] == "s"
