"""The order of outgoing messages, and the limit of calls at once."""

import asyncio
import contextlib
from typing import Any

import pytest

from fairlead.errors import (
    FairleadError,
    RequestTimeout,
)
from fairlead.wire import Notification
from tests.support.scripted_http_server import (
    Call,
    Host,
    connected,
    handshake_server,
    progress,
    raw_server,
    stateless_server,
)


@pytest.mark.covers("HTT-10")
async def test_a_notification_that_nobody_accepts_times_out() -> None:
    async def rest(call: Call) -> None:
        await call.gone()

    async with (
        raw_server(handshake_server(rest)) as server,
        connected(server.url) as (_, channel),
    ):
        with pytest.raises(RequestTimeout, match="Notify timeout after 50ms"):
            await channel.tell(Notification("notifications/x"), timeout=0.05)


async def test_requests_wait_for_notifications_that_were_sent_before() -> None:
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
async def test_full_pools_do_not_block_answers_and_cancellations() -> None:
    """Ten calls wait for answers that the client owes."""
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
async def test_at_most_so_many_calls_are_made_at_once_over_kept_connections() -> None:
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
async def test_senders_are_asked_to_wait_when_much_is_waiting() -> None:
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
async def test_a_stateless_request_is_cancelled_by_hanging_up() -> None:
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
async def test_a_handshake_request_is_cancelled_by_a_notification_and_hanging_up() -> None:
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


async def test_a_subscription_is_not_counted_and_ends_when_it_is_cancelled() -> None:
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
async def test_nothing_is_left_after_requests_that_end_in_every_way(era: str) -> None:
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
