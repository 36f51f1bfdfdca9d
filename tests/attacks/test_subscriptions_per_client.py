"""Limits on subscriptions per client, across its sessions and listen streams."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec import structs

from fairlead import MCPClient, MCPServer, RpcError
from fairlead.gateway import Gateway, Relay
from fairlead.limits import (
    CLIENT_LISTENERS,
    CLIENT_SUBSCRIPTIONS,
    LISTENERS,
    SESSION_SUBSCRIPTIONS,
    SUBSCRIPTIONS,
    Limit,
)
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.transport.memory import memory_pair
from tests.support.gateway_servers import LIMIT, STATELESS, config, serving, until
from tests.support.raw_server_client import META, Wire


@contextlib.contextmanager
def set_to(limit: Limit, value: int) -> Iterator[None]:
    before, limit.value = limit.value, value
    try:
        yield
    finally:
        limit.value = before


def quota_of(target: Any) -> SubscriptionQuota:
    return target.changes.quota if isinstance(target, MCPServer) else target.quota


def counted(target: Any) -> tuple[int, int]:
    quota = quota_of(target)
    return quota.uris.total, quota.streams.total


@contextlib.asynccontextmanager
async def sessions(target: Any, count: int, principal: str | None) -> AsyncIterator[list[Wire]]:
    wires = []
    for _ in range(count):
        wire = Wire.__new__(Wire)
        wire.left, right = memory_pair()
        wire.peer = target.attach(right, principal)
        wire._frames, wire._reading = asyncio.Queue(), None
        wire.read()
        wires.append(wire)
    try:
        yield wires
    finally:
        for wire in wires:
            await wire.close()
        await until(lambda: principal is None or not _holds(target, principal))


@contextlib.contextmanager
def limited(target: Any, limit: Limit, value: int) -> Iterator[None]:
    """Change a limit of one server or gateway, but not of its upstream servers."""
    quota = quota_of(target)
    for counts in (quota.uris, quota.streams):
        if counts.each is limit:
            counts.each = structs.replace(limit, value=value)
        elif counts.together is limit:
            counts.together = structs.replace(limit, value=value)
    yield
    quota.uris.each, quota.uris.together = CLIENT_SUBSCRIPTIONS, SUBSCRIPTIONS
    quota.streams.each, quota.streams.together = CLIENT_LISTENERS, LISTENERS


def _holds(target: Any, principal: str) -> bool:
    quota, key = quota_of(target), ("principal", principal)
    return key in quota.uris.counts or key in quota.streams.counts


def notes() -> MCPServer:
    server = MCPServer("notes")

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    return server


async def subscribe(wire: Wire, first: int, count: int) -> list[str]:
    """Subscribe to `count` notes, and return the messages of rejected subscriptions."""
    refused = []
    for number in range(first, first + count):
        answer = await wire.ask("resources/subscribe", {"uri": f"note://{number}"}, id=number + 1)
        if "error" in answer:
            refused.append(answer["error"]["message"])
    return refused


@contextlib.asynccontextmanager
async def served(kind: str) -> AsyncIterator[Any]:
    """Yield the notes server alone, behind a relay, or behind a gateway."""
    if kind == "server":
        yield notes()
    elif kind == "relay":
        relay = Relay(notes())
        try:
            yield relay
        finally:
            await relay.close()
    else:
        async with serving(notes()) as url, Gateway() as gateway:
            await gateway.connect({"notes": {"url": url}})
            await gateway.listed()
            yield gateway


KINDS = ["server", "relay", "gateway"]


@pytest.mark.parametrize("kind", KINDS)
async def test_sessions_of_one_client_share_a_subscription_limit(kind: str) -> None:
    async with asyncio.timeout(LIMIT), served(kind) as target:
        with limited(target, CLIENT_SUBSCRIPTIONS, 10):
            async with sessions(target, 3, "ann") as wires, sessions(target, 1, "ben") as others:
                for wire in [*wires, *others]:
                    await wire.greet()
                refused = [await subscribe(wire, 10 * n, 6) for n, wire in enumerate(wires)]
                assert [len(one) for one in refused] == [0, 2, 6]
                assert refused[2][0] == "No more than 10 subscriptions of one client"
                assert await subscribe(others[0], 0, 6) == []
                await wires[0].ask("resources/unsubscribe", {"uri": "note://0"}, id="u")
                assert await subscribe(wires[2], 100, 1) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_subscriptions_of_an_ended_session_do_not_count_towards_the_limit(kind: str) -> None:
    async with asyncio.timeout(LIMIT), served(kind) as target:
        with limited(target, CLIENT_SUBSCRIPTIONS, 10):
            for _ in range(3):
                async with sessions(target, 1, "ann") as (wire,):
                    await wire.greet()
                    assert await subscribe(wire, 0, 10) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_subscriptions_of_all_clients_together_are_limited(kind: str) -> None:
    async with asyncio.timeout(LIMIT), served(kind) as target:
        with limited(target, SUBSCRIPTIONS, 10):
            async with sessions(target, 1, "ann") as (ann,), sessions(target, 1, "ben") as (ben,):
                await ann.greet()
                await ben.greet()
                assert await subscribe(ann, 0, 8) == []
                assert len(await subscribe(ben, 100, 4)) == 2


def filter_of(*uris: str) -> dict[str, Any]:
    return {"notifications": {"resourceSubscriptions": list(uris)}, "_meta": META}


async def listen(wire: Wire, count: int, first: int = 0) -> list[str]:
    """Open `count` streams, and return the messages of rejected ones."""
    refused = []
    for number in range(first, first + count):
        uris = (f"note://{number}a", f"note://{number}b")
        wire.send("subscriptions/listen", filter_of(*uris), id=number)
        answer = await wire.next()
        if "error" in answer:
            refused.append(answer["error"]["message"])
        else:
            assert answer["method"] == "notifications/subscriptions/acknowledged"
    return refused


@pytest.mark.parametrize("kind", KINDS)
async def test_listen_streams_of_one_client_are_limited_together(kind: str) -> None:
    async with asyncio.timeout(LIMIT), served(kind) as target:
        with limited(target, CLIENT_LISTENERS, 5):
            async with sessions(target, 2, "ann") as wires, sessions(target, 1, "ben") as (ben,):
                assert await listen(wires[0], 4) == []
                assert (
                    await listen(wires[1], 3) == ["No more than 5 listen streams of one client"] * 2
                )
                assert await listen(ben, 3) == []
        with limited(target, CLIENT_SUBSCRIPTIONS, 5):
            async with sessions(target, 2, "ann") as wires:
                assert await listen(wires[0], 2) == []
                assert await listen(wires[1], 1) == ["No more than 5 subscriptions of one client"]


async def test_http_listen_streams_are_counted_per_client_address() -> None:
    async with asyncio.timeout(LIMIT), serving(notes()) as url:
        with set_to(CLIENT_LISTENERS, 3):
            async with contextlib.AsyncExitStack() as stack:
                clients = []
                for _ in range(4):
                    opening = MCPClient.connect_http(url, config(STATELESS))
                    clients.append(await stack.enter_async_context(opening))
                for client in clients[:3]:
                    await client.subscribe("note://1")
                with pytest.raises(Exception, match="No more than 3 listen streams"):
                    await clients[3].subscribe("note://1")
                await clients[0].unsubscribe("note://1")
                await clients[3].subscribe("note://1")


def test_the_cost_of_a_subscription_does_not_depend_on_the_number_of_subscriptions() -> None:
    with set_to(SESSION_SUBSCRIPTIONS, 10**6), set_to(CLIENT_SUBSCRIPTIONS, 10**6):
        times = []
        held = SubscriptionQuota().held("c")
        for _ in range(2):
            began = time.process_time()
            for n in range(40_000):
                held.add(f"{len(times)} {n}")
            times.append(time.process_time() - began)
        assert times[1] < 4 * times[0] + 0.05


def test_listen_streams_of_all_clients_together_are_limited() -> None:
    quota = SubscriptionQuota()
    with set_to(LISTENERS, 1), quota.listening("a", object(), 1):
        with pytest.raises(RpcError, match="of all clients together"):
            with quota.listening("b", object(), 1):
                pass
    assert (quota.uris.total, quota.streams.total) == (0, 0)


@pytest.mark.parametrize("count", [350])
async def test_many_subscriptions_at_a_stateless_server_share_few_streams(count: int) -> None:
    """A new subscription replaces only one of the streams."""
    server, opened = notes(), []
    listened = server.changes.listen

    async def listen_and_count(exchange: Any, capabilities: Any) -> bytes:
        opened.append(len(bytes(exchange.message.params)))
        return await listened(exchange, capabilities)

    server.changes.listen = listen_and_count  # type: ignore[method-assign]
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_inprocess(server, config(STATELESS)) as client,
    ):
        for n in range(count):
            await client.subscribe(f"note://{n}")
        assert max(opened) < 3000  # the size of a request with 100 URIs
        await asyncio.gather(*(client.subscribe(f"note://x{n}") for n in range(count)))
        assert len(opened) < count + 20  # concurrent subscriptions are combined into one request
        server.resource_updated("note://x3")
        for n in range(count):
            await client.unsubscribe(f"note://{n}")


async def test_a_gateway_opens_few_streams_to_a_stateless_server() -> None:
    server = notes()
    async with asyncio.timeout(LIMIT), serving(server) as url, Gateway() as gateway:
        await gateway.connect({"notes": {"url": url}})
        await gateway.listed()
        async with sessions(gateway, 1, "ann") as (wire,):
            await wire.greet()
            assert await subscribe(wire, 0, 300) == []
            assert counted(gateway) == (300, 0)
            # three streams for subscriptions and two for list changes
            assert counted(server)[1] <= 3 + 2
