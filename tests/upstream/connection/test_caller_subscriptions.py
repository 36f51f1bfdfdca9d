"""Subscriptions of stateless clients on the connections that their calls use."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.protocol.caller import Principal, principal_from
from fairlead.upstream.connection.caller_subscriptions import (
    CallerSubscription,
    CallerSubscriptions,
)
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

ADA, BOB = principal_from("ada"), principal_from("bob")


class FakeConnection:
    """A connection for the calls of one principal, which records the requests to its server."""

    name, alive = "red", True

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.peer = self
        self.uris: dict[str, set[object]] = {}
        self.followers: list[Any] = []
        self.requests: list[str] = []
        self.error: Exception | None = None
        self.silent = False
        self.tasks: set[asyncio.Task[Any]] = set()

    async def request(self, method: str, params: dict[str, str]) -> None:
        self.requests.append(f"{method.partition('/')[2]} {params['uri']}")
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.add(asyncio.create_task(work))


class Parts:
    """The connections of a server, and the listen streams of `ada`."""

    def __init__(self, *open_now: FakeConnection) -> None:
        self.connections: Any = list(open_now)
        self.callers = CallerSubscriptions(
            lambda: self.connections,
            lambda connection, caller: connection.principal == caller.principal,
        )
        self.changes: list[tuple[str, str | None]] = []

    def stream(self, *uris: str, besides: Any = None) -> CallerSubscription:
        caller = exchange(principal=ADA).caller
        changed = lambda *change: self.changes.append(change)  # noqa: E731
        return CallerSubscription(caller, uris, changed, besides)


async def test_a_stream_follows_the_open_connections_of_its_client_until_it_ends() -> None:
    mine, other = FakeConnection(ADA), FakeConnection(BOB)
    parts = Parts(mine, other)
    with parts.callers.following(parts.stream("a:1", "a:2")):
        await asyncio.sleep(0.01)
        assert (mine.requests, other.requests) == (["subscribe a:1", "subscribe a:2"], [])
        for changed in mine.followers:
            changed("notifications/resources/updated", "a:1")
        assert parts.changes == [("notifications/resources/updated", "a:1")]
    await asyncio.sleep(0.01)
    assert mine.requests[2:] == ["unsubscribe a:1", "unsubscribe a:2"]
    assert (mine.uris, mine.followers, other.followers) == ({}, [], [])


async def test_streams_of_one_client_share_a_subscription() -> None:
    parts = Parts(mine := FakeConnection(ADA))
    with parts.callers.following(parts.stream("a:1")):
        with parts.callers.following(parts.stream("a:1")):
            await asyncio.sleep(0.01)
        assert mine.requests == ["subscribe a:1"]
        assert len(mine.followers) == 1


async def test_a_stream_does_not_follow_the_connection_that_it_uses_itself() -> None:
    parts = Parts(mine := FakeConnection(ADA))
    with parts.callers.following(parts.stream("a:1", besides=mine)):
        await parts.callers.opened(parts.connections[0], 1.0)
        assert (mine.requests, mine.followers) == ([], [])


@pytest.mark.parametrize("error", [None, RpcError(-32602, "no")], ids=["accepted", "refused"])
async def test_a_new_connection_is_subscribed_before_it_is_used(error: Exception | None) -> None:
    parts, mine = Parts(), FakeConnection(ADA)
    mine.error = error
    opened: Any = mine
    with parts.callers.following(parts.stream("a:1")):
        parts.connections.append(mine)
        await parts.callers.opened(opened, 1.0)
        assert (mine.requests, len(mine.followers)) == (["subscribe a:1"], 1)
        assert list(mine.uris) == ([] if error else ["a:1"])
    assert mine.followers == []


async def test_a_server_that_does_not_answer_delays_a_call_for_a_limited_time(
    virtual_time: VirtualTime,
) -> None:
    parts, mine = Parts(), FakeConnection(ADA)
    mine.silent = True
    opened: Any = mine
    began = virtual_time.now
    with parts.callers.following(parts.stream("a:1")):
        parts.connections.append(mine)
        await parts.callers.opened(opened, 7.0)
    assert virtual_time.now - began == 7.0
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
