"""Replicas of a server in a gateway: choice, failover, lists and the registry of members."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import (
    ChannelClosed,
    CircuitOpenError,
    ConnectFailed,
    LocalProtocolError,
    RpcError,
)
from fairlead.gateway.backends.backend import Member
from fairlead.gateway.backends.registry import BackendRegistry
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.protocol.caller import SUBSCRIPTION_KEY
from fairlead.protocol.downgrade.downgrade_error import DowngradeError
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.relay.replicas import Replicas, unavailable_error
from fairlead.upstream.server_lists import ServerLists
from fairlead.upstream.startup_wait import StartupWait, StillStarting
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

Outcome = bytes | Exception


class FakeReplica:
    """Fake replica that returns or raises given outcomes."""

    def __init__(self, name: str, *outcomes: Outcome, rank: int = 0) -> None:
        self.name = name
        self.rank = rank
        self.outcomes = list(outcomes)
        self.asked = 0
        self.closed = 0
        self.awaited = 0
        self.refreshed = 0
        self.startup_wait = StartupWait(5.0, 0.0)
        self.lists = ServerLists(ListKind, for_client=False)
        self.upstream = self
        self.health = None
        self.left: list[object] = []
        self.connecting: asyncio.Future[None] | None = None

    async def answer(self, exchange: Any, visitor: Any) -> bytes:
        self.asked += 1
        outcome = self.outcomes.pop(0) if self.outcomes else self.name.encode()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def state(self) -> str:
        return ("connected", "connecting", "failed", "connected")[self.rank]

    async def default_connection(self) -> None:
        self.awaited += 1
        if self.connecting is not None:
            await self.connecting
        if self.outcomes and isinstance(self.outcomes[0], Exception):
            raise self.outcomes[0]

    def refresh_lists(self) -> None:
        self.refreshed += 1

    def leave(self, session: object) -> None:
        self.left.append(session)

    async def close(self) -> None:
        self.closed += 1


class FakeClient:
    def __init__(self) -> None:
        self.gone = False
        self.sessions: dict[object, object] = {}

    def session_with(self, relay: object) -> object:
        return self.sessions.get(relay)


def member(*replicas: FakeReplica, changed: Callable[[ListKind], None] = lambda _: None) -> Member:
    given: Any = list(replicas)
    return Member("red", Replicas("red", given), MergedCatalog(), changed)


def lost(*, delivered: bool) -> ChannelClosed:
    return ChannelClosed("lost", delivered=delivered)


STARTING = StillStarting(StartupWait(5.0, 0.0))


@pytest.mark.parametrize(
    ("error", "code", "text", "data"),
    [
        (
            CircuitOpenError(5.0, "red"),
            -32603,
            "red failed too often",
            {"retryAfter": 5.0, "server": "red"},
        ),
        (STARTING, -32603, "red is still starting, after 5 s", {"starting": True, "server": "red"}),
        (DowngradeError("no words"), -32601, "no words", {}),
        (LocalProtocolError("not now", code=-32602), -32602, "not now", {}),
        (ConnectFailed("secret", public="is not there"), -32603, "is not there", {}),
    ],
    ids=["circuit", "starting", "downgrade", "protocol", "connect"],
)
def test_the_error_for_a_client_contains_only_public_reasons(
    error: Exception, code: int, text: str, data: dict[str, Any]
) -> None:
    refused = unavailable_error("red", error)
    assert refused.code == code
    assert text in refused.message
    assert "secret" not in refused.message
    assert isinstance(refused.data, dict)
    assert {**refused.data, **data, "source": "proxy"} == refused.data


@pytest.mark.parametrize(
    ("first", "asked", "refused"),
    [
        (b"{}", (1, 0), False),
        (lost(delivered=False), (1, 1), False),
        (lost(delivered=True), (1, 0), True),
        (CircuitOpenError(5.0, "red"), (1, 1), False),
        (STARTING, (1, 0), True),
        (LocalProtocolError("not now", code=-32602), (1, 0), True),
        (RpcError(5, "its own"), (1, 0), True),
    ],
    ids=["answered", "not sent", "sent", "circuit", "starting", "protocol", "refused"],
)
async def test_an_undelivered_request_is_sent_to_another_replica(
    first: Outcome, asked: tuple[int, int], refused: bool
) -> None:
    one, other = FakeReplica("one", first), FakeReplica("other", rank=2)
    both = member(one, other)
    if refused:
        with pytest.raises(RpcError) as error:
            await both.replicas.answer(exchange(), None)
        assert (error.value.message == "its own") is isinstance(first, RpcError)
    else:
        assert await both.replicas.answer(exchange(), None) in (b"{}", b"other")
    assert (one.asked, other.asked) == asked


async def test_the_last_error_is_reported_unless_it_is_an_open_circuit() -> None:
    one = FakeReplica("one", lost(delivered=False))
    other = FakeReplica("other", CircuitOpenError(5.0, "red"), rank=3)
    with pytest.raises(RpcError) as refused:
        await member(one, other).replicas.answer(exchange(), None)
    assert isinstance(refused.value.data, dict)
    assert "retryAfter" not in refused.value.data


async def test_requests_are_distributed_among_the_replicas_of_the_lowest_rank() -> None:
    replicas = [FakeReplica("a"), FakeReplica("b"), FakeReplica("c", rank=2)]
    several = member(*replicas)
    found = [await several.replicas.answer(exchange(), None) for _ in range(6)]
    assert {b"a", b"b"} == set(found)
    assert [one.asked for one in replicas][2] == 0
    alone = FakeReplica("x", rank=3)
    assert await member(alone).replicas.answer(exchange(), None) == b"x"


async def test_a_session_stays_with_its_replica_until_another_replica_has_a_lower_rank() -> None:
    one, other = FakeReplica("one"), FakeReplica("other")
    both, client = member(one, other), FakeClient()
    visitor: Any = client
    asked = exchange(stateless=False)
    first = await both.replicas.answer(asked, visitor)
    assert {await both.replicas.answer(asked, visitor) for _ in range(4)} == {first}
    assert list(both.replicas._sticky) == [visitor]
    mine = one if first == b"one" else other
    mine.rank = 1
    assert await both.replicas.answer(asked, visitor) != first
    client.sessions = {one: "session"}
    both.replicas.leave(visitor)
    assert (both.replicas._sticky, one.left, other.left, client.sessions) == (
        {},
        ["session"],
        [],
        {},
    )
    client.gone = True
    await both.replicas.answer(asked, visitor)
    assert both.replicas._sticky == {}


def round_of(state: str) -> bytes:
    return json.dumps({"resultType": "input_required", "requestState": state}).encode()


async def test_a_request_state_is_sent_to_the_replica_that_created_it() -> None:
    one, other = FakeReplica("one"), FakeReplica("other")
    both = member(one, other)
    for _ in range(4):
        one.outcomes = other.outcomes = [round_of("a")]
        before = one.asked
        question = json.loads(bytes(await both.replicas.answer(exchange(params={}), None) or b""))
        whose = b"one" if one.asked > before else b"other"
        for _ in range(3):
            again = exchange(params={"requestState": question["requestState"]})
            assert await both.replicas.answer(again, None) == whose
    with pytest.raises(RpcError, match="requestState is not valid"):
        await both.replicas.answer(exchange(params={"requestState": "a"}), None)
    unaffected = exchange("tools/list", {"requestState": "a"})
    assert await both.replicas.answer(unaffected, None) in (b"one", b"other")


async def test_a_subscription_waits_until_its_server_connects_or_is_removed() -> None:
    one = FakeReplica("one", lost(delivered=False), lost(delivered=False))
    alone = member(one)
    listening = asyncio.create_task(
        alone.replicas.answer(exchange("subscriptions/listen", {}), None)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert (one.asked, listening.done()) == (1, False)
    alone.replicas.connected()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (one.asked, listening.done()) == (2, False)
    alone.retire()
    async with asyncio.timeout(5):
        over = json.loads(bytes(await listening or b""))
    assert over == {"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: 1}}
    assert one.asked == 2


async def test_a_subscription_ends_when_its_replica_is_lost() -> None:
    one = FakeReplica("one", lost(delivered=True))
    answer = await member(one).replicas.answer(exchange("subscriptions/listen", {}), None)
    assert json.loads(bytes(answer or b""))["resultType"] == "complete"


async def test_the_wait_ends_when_the_first_replica_has_started(virtual_time: VirtualTime) -> None:
    slow, fast = FakeReplica("slow", rank=1), FakeReplica("fast", rank=1)
    loop = asyncio.get_running_loop()
    slow.connecting, fast.connecting = loop.create_future(), loop.create_future()
    waiting = asyncio.create_task(member(slow, fast).replicas._wait_for_first())
    await asyncio.sleep(1)
    assert not waiting.done()
    fast.connecting.set_result(None)
    assert await waiting is None
    assert slow.connecting.cancelled()


@pytest.mark.parametrize(
    ("ranks", "awaited"), [((0, 1), (0, 0)), ((2, 3), (0, 0)), ((1, 2), (1, 0)), ((1, 1), (1, 1))]
)
async def test_requests_wait_only_for_replicas_that_are_starting(
    ranks: tuple[int, int], awaited: tuple[int, int]
) -> None:
    replicas = [FakeReplica(str(n), rank=rank) for n, rank in enumerate(ranks)]
    assert await member(*replicas).replicas._wait_for_first() is None
    assert tuple(one.awaited for one in replicas) == awaited


async def test_a_request_fails_with_a_clear_error_if_all_replicas_start_too_slowly() -> None:
    replicas = [
        FakeReplica("a", STARTING, rank=1),
        FakeReplica("b", ConnectFailed("no"), rank=1),
    ]
    both = member(*replicas)
    assert await both.replicas._wait_for_first() is STARTING
    with pytest.raises(RpcError, match="is still starting"):
        await both.replicas.answer(exchange(), None)
    assert [one.asked for one in replicas] == [0, 0]
    failed = member(*[FakeReplica(name, ConnectFailed("no"), rank=1) for name in "ab"])
    assert await failed.replicas._wait_for_first() is None


@pytest.mark.parametrize(
    ("ranks", "known", "cleared"),
    [((1, 2), False, True), ((0, 1), False, False), ((1, 1), True, False)],
)
async def test_requests_wait_for_the_first_lists_of_a_starting_server(
    ranks: tuple[int, int], known: bool, cleared: bool
) -> None:
    one = member(*[FakeReplica(str(n), rank=rank) for n, rank in enumerate(ranks)])
    one.introduced.set()
    one.known = known
    one.begins()
    assert one.introduced.is_set() is not cleared


@pytest.mark.parametrize(
    ("ranks", "over"), [((2, 3), True), ((1, 2), False), ((0, 2), False), ((2, 2), True)]
)
async def test_requests_stop_waiting_when_all_replicas_have_failed(
    ranks: tuple[int, int], over: bool
) -> None:
    one = member(*[FakeReplica(str(n), rank=rank) for n, rank in enumerate(ranks)])
    one.failed()
    assert (one.listed.is_set(), one.introduced.is_set()) == (over, over)


async def test_the_wait_for_lists_is_limited_by_the_longest_start_up_time(
    virtual_time: VirtualTime,
) -> None:
    short, long = FakeReplica("short", rank=1), FakeReplica("long", rank=1)
    short.startup_wait, long.startup_wait = StartupWait(5.0, 0.0), StartupWait(20.0, 0.0)
    both = member(short, long)
    began = virtual_time.now
    refused = await both.introduction()
    assert virtual_time.now == began + 20.0
    assert refused is not None
    assert "red is still starting, after 20 s" in refused.message
    both.introduced.set()
    assert await both.introduction() is None


@pytest.mark.parametrize(
    ("ranks", "ages", "refreshed"),
    [
        ((0, 2), (10.0, 10.0), (1, 0)),
        ((0, 2), (9.9, 10.0), (0, 0)),
        ((2, 0), (10.0, 10.0), (0, 1)),
        ((2, 1), (10.0, 10.0), (0, 0)),
        ((0, 0), (9.9, 10.0), (0, 1)),
    ],
)
async def test_outdated_lists_of_connected_servers_are_requested_again(
    virtual_time: VirtualTime,
    ranks: tuple[int, int],
    ages: tuple[float, float],
    refreshed: tuple[int, int],
) -> None:
    replicas = [FakeReplica(str(n), rank=rank) for n, rank in enumerate(ranks)]
    for replica, age in zip(replicas, ages, strict=True):
        replica.lists.listed_at = virtual_time.now - age
    member(*replicas).refresh_if_older(10.0)
    assert tuple(one.refreshed for one in replicas) == refreshed


async def test_refreshing_requests_the_lists_of_all_replicas() -> None:
    replicas = [FakeReplica("a"), FakeReplica("b", rank=2)]
    member(*replicas).refresh()
    assert [one.refreshed for one in replicas] == [1, 1]


async def test_lists_of_a_removed_server_are_not_shown() -> None:
    replicas, changed = [FakeReplica("a"), FakeReplica("b")], list[ListKind]()
    both = member(*replicas, changed=changed.append)
    await both.close()
    assert [one.closed for one in replicas] == [1, 1]
    assert both.listed.is_set()
    assert both.introduced.is_set()
    replicas[0].lists.put(ListKind.TOOLS, [Raw(b'{"name":"late"}')])
    upstream: Any = replicas[0]
    both.update(upstream)
    assert (changed, both.catalog.own_names(ListKind.TOOLS, "red")) == ([], [])


# The registry


def registered(*names: str) -> tuple[BackendRegistry, list[Member]]:
    registry, members = BackendRegistry(), []
    for name in names:
        replicas: Any = [FakeReplica(name), FakeReplica(f"{name}#2")]
        one = Member(name, Replicas(name, replicas), MergedCatalog(), lambda _: None)
        endpoint: Any = f"endpoint of {name}"
        registry.add(one, endpoint)
        members.append(one)
    return registry, members


async def test_members_are_looked_up_by_server_name() -> None:
    registry, (red, blue) = registered("red", "blue")
    owners = [registry.owner(name) for name in ("red", "red#2", "blue", "blue#2", "green")]
    assert owners == [red, red, blue, blue, None]
    assert registry.within(View(servers=("blue",))) == [blue]
    assert registry.within(View.everything()) == [red, blue]
    assert registry.remove("green") is None
    assert registry.remove("red") == (red, "endpoint of red")
    assert (registry.owner("red"), registry.owner("red#2")) == (None, None)
    assert (list(registry.members), list(registry.endpoints)) == (["blue"], ["blue"])
    registry.clear()
    assert (registry.members, registry.endpoints) == ({}, {})
    assert (registry.owner("blue"), registry.owner("blue#2")) == (None, None)


async def test_a_registry_is_ready_when_all_servers_have_listed_their_items() -> None:
    registry, (red, blue) = registered("red", "blue")
    assert not registry.is_ready
    red.listed.set()
    assert not registry.is_ready
    blue.listed.set()
    assert registry.is_ready
    assert BackendRegistry().is_ready


async def test_servers_that_are_not_in_the_configured_order_are_sorted_last() -> None:
    registry, _ = registered("a", "b", "c", "d")
    registry.arrange(["c", "x", "a"])
    assert list(registry.members) == ["c", "a", "b", "d"]
