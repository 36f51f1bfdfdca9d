"""Connections to one server: their assignment to clients, limits and closing."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import ChannelClosed, ConnectFailed, RpcError, ServerBusy
from fairlead.gateway import Gateway
from fairlead.limits import CONNECTIONS_PER_CLIENT
from fairlead.protocol.caller import (
    ANONYMOUS,
    UNNAMED,
    Caller,
    ParamsHead,
    Principal,
    principal_from,
)
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import Revision
from fairlead.relay.relay_settings import RelaySettings
from fairlead.transport.channel import Channel
from fairlead.upstream.connection.connection_key import STATELESS as CONNECTION_OF_ALL
from fairlead.upstream.connection.connection_key import (
    ConnectionKey,
    key_of_caller,
    key_of_session,
)
from fairlead.upstream.connection.connection_pool import UpstreamPool
from fairlead.upstream.connection.upstream_connection import TurnLock
from fairlead.upstream.memory.server_memory import ServerFacts
from fairlead.upstream.server_target import ServerTarget
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.startup_wait import StartupWait, StillStarting
from tests.support.gateway_servers import joining, until
from tests.support.raw_relay import HANDSHAKE, LIMIT, STATELESS
from tests.support.scripted_stdio_server import program
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

ADA, BOB = principal_from("ada"), principal_from("bob")
KEY, OTHER_KEY = ConnectionKey(False, "1"), ConnectionKey(False, "2")
OWN_KEY = ConnectionKey(False, "1", session=7)
ROOTS, SAMPLING = b'{"roots":{}}', b'{"sampling":{}}'


class FakeConnection(SimpleNamespace):
    """A stub of a connection with only the attributes that describe its use."""

    quiet = False
    number = 7  # the number of the session in `OWN_KEY`, for stubs that stand for sessions
    on_idle: Any = None

    __hash__ = object.__hash__


async def absent() -> Channel:
    raise ConnectFailed("no such program")


def new_pool(*, is_process: bool = True, **settings: Any) -> UpstreamPool:
    target = ServerTarget(name="red", open=absent, is_process=is_process)
    return UpstreamPool(target, RelaySettings(**settings))


def used_by(principal: Principal = ANONYMOUS, *, unused: float = 10.0, **about: Any) -> Any:
    clock = asyncio.get_running_loop().time

    async def close() -> None:
        connection.closed = True

    def activate() -> None:
        connection.activated += 1

    def report_idle() -> None:
        if connection.on_idle is not None and connection.turns.free:
            connection.on_idle()

    connection = FakeConnection(
        principal=principal,
        stateless=False,
        correlates_calls=False,
        idle=True,
        abandoned=False,
        called=False,
        alive=True,
        closed=False,
        ending=False,
        used=clock() - unused,
        now=clock,
        sessions={},
        uris={},
        turns=TurnLock(),
        close=close,
        activate=activate,
        report_idle=report_idle,
        activated=0,
        on_roots=None,
        on_unanswered=None,
        agreement=None,
    )
    vars(connection).update(about)
    return connection


class Default:
    """A stub of the owner of a default connection."""

    def __init__(self, connection: Any, *, keeps_one: bool = True) -> None:
        self.current = connection
        self.keeps_one = keeps_one
        self.error: Exception | None = None
        self.changes = 0  # number of reported changes to other connections

    def rest(self) -> None:
        self.current = None

    def connections_changed(self) -> None:
        self.changes += 1

    async def default_connection(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.current


def caller(principal: Principal = ANONYMOUS, capabilities: bytes = b"{}") -> Caller:
    return exchange(principal=principal, capabilities=capabilities).caller


# Limits


@pytest.mark.parametrize(("unused", "ends"), [(5.0, True), (4.9, False)])
async def test_the_pool_closes_a_connection_unused_for_five_seconds_at_its_limit(
    virtual_time: VirtualTime, unused: float, ends: bool
) -> None:
    pool = new_pool()
    connections = [used_by(unused=unused), used_by(unused=0), used_by(unused=60, idle=False)]
    if ends:
        pool._retire_one(connections, 3)
        await asyncio.gather(*pool._retiring)
        await asyncio.sleep(0)
        assert pool._retiring == set()
        assert [one.closed for one in connections] == [True, False, False]
    else:
        with pytest.raises(ConnectFailed, match="3 connections to it are in use"):
            pool._retire_one(connections, 3)


async def test_the_pool_closes_the_connection_of_a_quiet_session_at_its_limit() -> None:
    """A session is quiet after 60 seconds without a call, a subscription or a listener."""
    pool = new_pool()
    retired: list[Any] = []
    pool._retire = retired.append  # type: ignore[method-assign, assignment]

    def connection(seconds: float, *, quiet: bool = True) -> Any:
        return used_by(unused=seconds, idle=False, quiet=quiet)

    for connections, retry_after in (
        ([connection(59)], 1.0),
        ([connection(59), connection(20)], 1.0),
        ([connection(500, quiet=False)], 60.0),
    ):
        with pytest.raises(ServerBusy) as refused:
            pool._retire_one(connections, 32)
        assert refused.value.retry_after == pytest.approx(retry_after, abs=0.11)
    oldest = connection(90)
    others = [connection(61), connection(500, quiet=False), connection(10)]
    pool._retire_one([*others, oldest], 32)
    assert retired == [oldest]


@pytest.mark.parametrize(
    ("principal", "held", "reserved", "ended"),
    [
        (ADA, 2, 0, 0),
        (ADA, 3, 0, 1),  # three connections are half of the limit of six
        (ADA, 2, 1, 1),
        (BOB, 3, 0, 0),
        (ANONYMOUS, 5, 0, 0),
        (ANONYMOUS, 6, 0, 1),
        (ANONYMOUS, 5, 1, 1),
    ],
)
async def test_unused_connections_are_closed_to_keep_the_limit_of_a_principal_and_of_the_pool(
    virtual_time: VirtualTime, principal: Principal, held: int, reserved: int, ended: int
) -> None:
    pool = new_pool(max_connections=6)
    owner = ADA if principal is BOB else principal
    connections = [used_by(owner, unused=10 + n) for n in range(held)]
    pool.own.update(dict.fromkeys(connections, KEY))
    pool._reserved[principal] += reserved
    hits, began = CONNECTIONS_PER_CLIENT.hits, virtual_time.now
    with pool._reserve(principal):
        assert pool._reserved[principal] == reserved + 1
        await asyncio.sleep(0)
    assert virtual_time.now == began
    assert pool._reserved[principal] == reserved
    assert [one.closed for one in connections] == [False] * (held - ended) + [True] * ended
    assert len(pool.own) == held - ended
    assert CONNECTIONS_PER_CLIENT.hits - hits == (ended if principal is ADA else 0)
    if not reserved:
        assert principal not in dict(pool._reserved)


async def test_the_pool_closes_a_connection_of_the_principal_that_has_the_most(
    virtual_time: VirtualTime,
) -> None:
    pool = new_pool(max_connections=4)
    few = used_by(BOB, unused=100)
    many = [used_by(ANONYMOUS, unused=n) for n in (20, 30, 10)]
    pool.own.update(dict.fromkeys([few, *many], KEY))
    pool._make_room(principal_from("cy"))
    await asyncio.sleep(0)
    assert [one.closed for one in (few, *many)] == [False, False, True, False]


@pytest.mark.parametrize(
    ("about", "retry_after"),
    [
        ({"unused": 2.0}, 3.0),
        ({"unused": 2.0, "idle": False, "quiet": True}, 58.0),
        ({"unused": 2.0, "idle": False}, 60.0),
    ],
    ids=["idle", "quiet", "in use"],
)
async def test_the_error_for_a_busy_server_contains_the_time_to_retry_after(
    virtual_time: VirtualTime, about: dict[str, Any], retry_after: float
) -> None:
    pool = new_pool(max_connections=1)
    pool._connections[KEY] = [connection := used_by(**about)]
    began = virtual_time.now
    with pytest.raises(ServerBusy, match="red is busy: 1 connections to it are in use") as refused:
        with pool._reserve(ANONYMOUS):
            raise AssertionError("no connection is available")
    assert refused.value.public == "is busy: 1 connections to it are in use. Try again later"
    assert refused.value.retry_after == retry_after
    assert virtual_time.now == began
    assert (connection.closed, pool._reserved.total()) == (False, 0)


@pytest.mark.parametrize(("called", "seconds"), [(False, 5.0), (True, 60.0)])
async def test_the_connection_of_a_session_without_calls_or_a_stream_is_closed_early(
    virtual_time: VirtualTime, called: bool, seconds: float
) -> None:
    pool = new_pool()
    about = {"idle": False, "quiet": True, "abandoned": True, "called": called}
    connection = used_by(unused=seconds - 1, **about)
    with pytest.raises(ServerBusy) as refused:
        pool._retire_one([connection], 1)
    assert refused.value.retry_after == 1.0
    virtual_time.now += 1
    pool._retire_one([connection], 1)
    await asyncio.gather(*pool._retiring)
    assert connection.closed


@pytest.mark.parametrize("about", [{}, {"idle": False, "quiet": True}], ids=["idle", "quiet"])
async def test_a_connection_can_be_opened_after_the_time_given_in_the_error(
    virtual_time: VirtualTime, about: dict[str, Any]
) -> None:
    pool = new_pool(max_connections=1)
    pool._connections[KEY] = [connection := used_by(unused=0, **about)]
    with pytest.raises(ServerBusy) as refused:
        with pool._reserve(ANONYMOUS):
            raise AssertionError("no connection is available")
    await asyncio.sleep(refused.value.retry_after)
    with pool._reserve(ANONYMOUS):
        await asyncio.sleep(0)
        assert connection.closed


@pytest.mark.parametrize(
    ("unused", "rests"), [(10.0, True), (0.0, False)], ids=["idle", "just used"]
)
async def test_the_default_connection_counts_towards_the_limit_and_may_be_closed(
    virtual_time: VirtualTime, unused: float, rests: bool
) -> None:
    pool = new_pool(max_connections=1)
    pool.default = default = Default(connection := used_by(unused=unused))
    if rests:
        with pool._reserve(ADA):
            assert default.current is None
    else:
        with pytest.raises(ServerBusy, match="1 connections") as refused:
            with pool._reserve(ADA):
                raise AssertionError("no connection is available")
        assert refused.value.retry_after == 5.0
        assert default.current is connection
    assert not connection.closed  # the pool asks the owner to close the default connection


async def test_the_least_recently_used_connection_is_closed_to_make_room(
    virtual_time: VirtualTime,
) -> None:
    pool = new_pool(max_connections=2)
    pool.default = default = Default(used_by(unused=20))
    pool._connections[KEY] = [other := used_by(unused=30)]
    with pool._reserve(ANONYMOUS):
        await asyncio.sleep(0)
    assert (other.closed, default.current is None, default.changes) == (True, False, 1)
    pool._connections[KEY] = [other := used_by(unused=10)]
    with pool._reserve(ANONYMOUS):
        await asyncio.sleep(0)
    assert (other.closed, default.current) == (False, None)


@pytest.mark.parametrize(
    ("most", "idle", "closed"), [(1, True, True), (2, True, False), (1, False, False)]
)
async def test_a_default_connection_over_the_limit_closes_an_unused_connection(
    virtual_time: VirtualTime, most: int, idle: bool, closed: bool
) -> None:
    pool = new_pool(max_connections=most)
    pool.default = default = Default(opened := used_by(unused=0))
    pool._connections[KEY] = [other := used_by(unused=10, idle=idle)]
    pool.trim()
    await asyncio.sleep(0)
    assert (other.closed, default.current) == (closed, opened)


async def test_the_default_connection_over_http_does_not_count_towards_the_limit(
    virtual_time: VirtualTime,
) -> None:
    pool = new_pool(max_connections=1, is_process=False)
    pool.default = default = Default(connection := used_by(idle=False))
    with pool._reserve(ANONYMOUS):
        assert default.current is connection


async def test_sessions_over_http_do_not_count_towards_the_limit(virtual_time: VirtualTime) -> None:
    pool = new_pool(max_connections=1, is_process=False)
    pool.own.update({used_by(idle=False): KEY for _ in range(5)})
    with pool._reserve(ANONYMOUS):
        assert len(pool.own) == 5


async def test_a_process_for_a_comparison_of_lists_starts_after_all_others(
    virtual_time: VirtualTime,
) -> None:
    opened: list[str] = []

    def opening(name: str) -> Callable[[], Awaitable[Channel]]:
        async def open_channel() -> Channel:
            opened.append(name)
            await asyncio.sleep(1)
            return await absent()

        return open_channel

    starts = StartLimiter(1)
    pools = [
        UpstreamPool(
            ServerTarget(name=name, open=opening(name), is_process=True), RelaySettings(), starts
        )
        for name in "abc"
    ]
    sampling = caller(capabilities=SAMPLING)
    running = [asyncio.create_task(pools[0].for_caller(sampling))]
    await asyncio.sleep(0.5)
    running.append(asyncio.create_task(pools[1].for_comparison(sampling, None, 5.0)))
    running.append(asyncio.create_task(pools[2].for_caller(sampling)))
    await asyncio.wait(running)
    assert opened == ["a", "c", "b"]
    assert all(isinstance(one.exception(), ConnectFailed) for one in running)


# Idle connections


@pytest.mark.parametrize("called", [False, True])
async def test_an_idle_connection_is_closed_after_the_idle_limit(
    virtual_time: VirtualTime, called: bool
) -> None:
    times = {"idle_close": 100.0, "idle_close_used": 100.0}
    times["idle_close" if called else "idle_close_used"] = 5000.0
    pool = new_pool(**times)
    connection = used_by(unused=0, called=called)
    pool._connections[KEY] = [connection]
    pool._look_after(connection)
    began = virtual_time.now
    await asyncio.sleep(60)
    connection.used = virtual_time.now
    await asyncio.sleep(99)
    assert not connection.closed
    connection.idle = False
    await asyncio.sleep(30)  # the connection is in use when the timer fires
    assert not connection.closed
    connection.idle = True
    await asyncio.sleep(100)
    assert connection.closed
    assert virtual_time.now == began + 289
    assert (pool.connections, pool._timers) == ([], {})


async def test_a_connection_that_was_called_stays_open_longer_when_idle(
    virtual_time: VirtualTime,
) -> None:
    pool = new_pool(idle_close=100.0, idle_close_used=300.0)
    connection = used_by(unused=0)
    pool._connections[KEY] = [connection]
    pool._look_after(connection)
    await asyncio.sleep(50)
    connection.called, connection.used = True, virtual_time.now
    await asyncio.sleep(299)
    assert not connection.closed
    await asyncio.sleep(2)
    assert connection.closed


async def test_the_connection_of_an_abandoned_session_is_closed(virtual_time: VirtualTime) -> None:
    pool = new_pool(idle_close=100.0)
    connection = used_by(unused=0, idle=False, abandoned=True)
    pool._connections[KEY] = [connection]
    pool._look_after(connection)
    await asyncio.sleep(101)
    assert connection.closed


@pytest.mark.parametrize(
    ("keeps_one", "others", "stays"),
    [(True, "none", True), (True, "default", False), (True, "pool", False), (False, "none", False)],
)
async def test_the_last_connection_of_a_server_stays_open_unless_it_is_lazy(
    virtual_time: VirtualTime, keeps_one: bool, others: str, stays: bool
) -> None:
    pool = new_pool(idle_close=100.0)
    default = Default(used_by(unused=0) if others == "default" else None, keeps_one=keeps_one)
    pool.default = default
    pool._connections[KEY] = [connection := used_by(unused=0)]
    if others == "pool":
        pool._connections[OTHER_KEY] = [used_by(unused=0)]
    pool._look_after(connection)
    await asyncio.sleep(101)
    assert (connection.closed, default.changes) == (not stays, 0 if stays else 1)
    if stays:
        default.current = used_by(unused=0)
        await asyncio.sleep(100)
        assert (connection.closed, default.changes) == (True, 1)


@pytest.mark.parametrize(
    ("unused", "used", "closed_after"), [(100.0, 0.0, None), (0.0, 100.0, 130.0)]
)
async def test_an_idle_limit_of_zero_disables_only_this_limit(
    virtual_time: VirtualTime, unused: float, used: float, closed_after: float | None
) -> None:
    pool = new_pool(idle_close=unused, idle_close_used=used)
    pool._connections[KEY] = [connection := used_by(unused=0)]
    began = virtual_time.now
    pool._look_after(connection)
    await asyncio.sleep(30)
    connection.called, connection.used = True, virtual_time.now
    while not connection.closed and virtual_time.now < began + 1000:
        await asyncio.sleep(1)
    assert connection.closed == (closed_after is not None)
    if closed_after is not None:
        assert virtual_time.now - began == pytest.approx(closed_after, abs=2)


@pytest.mark.parametrize("before", [0.0, 1000.0])
async def test_changed_idle_times_apply_to_open_connections(
    virtual_time: VirtualTime, before: float
) -> None:
    pool = new_pool(idle_close=before)
    connection, used = used_by(unused=0), used_by(unused=0, idle=False)
    pool._connections[KEY] = [connection, used]
    for one in pool.connections:
        pool._look_after(one)
    await asyncio.sleep(50)
    pool.update_settings(RelaySettings(idle_close=100.0))
    await asyncio.sleep(49)
    assert not connection.closed
    await asyncio.sleep(2)
    assert (connection.closed, used.closed) == (True, False)
    used.idle = True
    pool.update_settings(RelaySettings(idle_close=10.0))
    await asyncio.sleep(0.1)
    assert used.closed


@pytest.mark.parametrize("before", [0.0, 1000.0])
async def test_a_changed_idle_release_applies_to_open_sessions(
    virtual_time: VirtualTime, before: float
) -> None:
    pool = new_pool(idle_release=before)
    released: list[Any] = []
    pool.on_release = lambda session, _: released.append(session)
    channel = SimpleNamespace(idle_since=virtual_time.now)
    session: Any = FakeConnection(peer=SimpleNamespace(channel=channel))
    pool._connections[KEY] = [connection := used_by(unused=0)]
    pool._join(connection, session)
    await asyncio.sleep(50)
    pool.update_settings(RelaySettings(idle_release=100.0))
    await asyncio.sleep(49)
    assert released == []
    await asyncio.sleep(10)
    assert released == [session]


@pytest.mark.parametrize(("seconds", "stateless"), [(0, False), (100, True)])
async def test_stateless_connections_and_a_limit_of_zero_have_no_idle_timer(
    virtual_time: VirtualTime, seconds: float, stateless: bool
) -> None:
    pool = new_pool(idle_close=seconds, idle_close_used=seconds)
    connection = used_by(stateless=stateless)
    pool._look_after(connection)
    assert pool._timers == {}


@pytest.mark.parametrize(
    ("place", "about", "closed"),
    [
        ("own", {}, True),
        ("first", {}, False),  # the connection stays open for the next session
        ("second", {}, True),
        ("second", {"idle": False}, False),
        ("second", {"stateless": True}, False),
        ("default", {}, False),
    ],
)
async def test_a_connection_is_closed_with_its_session_unless_it_is_needed(
    virtual_time: VirtualTime, place: str, about: dict[str, Any], closed: bool
) -> None:
    pool = new_pool()
    connection, other = used_by(**about), used_by()
    match place:
        case "own":
            pool.own[connection] = KEY
        case "first":
            pool._connections[KEY] = [connection, other]
        case "second":
            pool._connections[KEY] = [other, connection]
        case "default":
            pool.default = Default(connection)
    session: Any = FakeConnection()
    connection.sessions[session] = None
    await pool.leave(session, connection)
    assert (connection.sessions, connection.closed) == ({}, closed)
    if place != "default":
        assert (connection in pool.connections) is not closed
    assert (connection.used == virtual_time.now) is not closed


async def test_removing_a_connection_leaves_no_timer_and_no_empty_list(
    virtual_time: VirtualTime,
) -> None:
    pool = new_pool()
    one, other, third = used_by(), used_by(), used_by()
    pool._connections.update({KEY: [one, other], OTHER_KEY: [third]})
    pool._look_after(one)
    timer = pool._timers[one]
    assert pool._forget(one) == KEY
    assert (pool._connections[KEY], pool._timers, timer.cancelled()) == ([other], {}, True)
    assert pool._forget(third) == OTHER_KEY
    assert pool._connections == {KEY: [other]}
    assert pool._forget(third) is None
    other.alive = False
    assert pool._shared(KEY) is None
    assert pool._shared(OTHER_KEY) is None


# Losses


@pytest.mark.parametrize("key", [KEY, OWN_KEY], ids=["shared", "own"])
async def test_a_connection_key_is_suspended_if_its_processes_exit_too_often(
    virtual_time: VirtualTime, key: ConnectionKey
) -> None:
    pool = new_pool()
    lost: list[Any] = []
    pool.on_lost = lambda *of: lost.append(of)
    for number in range(6):
        pool._check_suspended(key)
        connection = used_by()
        session = FakeConnection(detached=0)
        session.detach = lambda session=session: setattr(session, "detached", 1)
        connection.sessions[session] = None
        if key is OWN_KEY:
            pool.own[connection] = key
        else:
            pool._connections[key] = [connection]
        end = ChannelClosed("gone", exit_code=1)
        pool._lost(connection, end)
        assert (session.detached, connection.sessions) == (1, {})
        assert lost[number] == (connection, end, [session])
        virtual_time.now += 1
    with pytest.raises(ConnectFailed, match="red failed more than 5 times within 30 s") as refused:
        pool._check_suspended(key)
    assert refused.value.public == "failed more than 5 times within 30 s; try again in 24 s"
    assert refused.value.retry_after == 24
    pool._check_suspended(OTHER_KEY)  # keys of other clients are not suspended
    virtual_time.now += 25
    pool._check_suspended(key)
    assert pool.losses.describe_suspended() == []


@pytest.mark.parametrize("about", ["no process", "ended by us", "not filed"])
async def test_only_the_unexpected_exit_of_a_process_counts_as_a_loss(
    virtual_time: VirtualTime, about: str
) -> None:
    pool, connection = new_pool(), used_by(ending=about == "ended by us")
    if about != "not filed":
        pool._connections[KEY] = [connection]
    code = None if about == "no process" else 1
    pool._lost(connection, ChannelClosed("gone", exit_code=code))
    assert (pool.losses._losses, pool.connections) == ({}, [])


async def test_a_dead_connection_of_a_session_counts_as_a_loss_before_it_is_reported(
    virtual_time: VirtualTime,
) -> None:
    pool = new_pool()
    for _ in range(5):
        pool.losses.count(OWN_KEY)
    pool._check_suspended(OWN_KEY)
    pool.own[used_by(alive=False)] = OWN_KEY
    with pytest.raises(ConnectFailed, match="failed more than 5 times"):
        pool._check_suspended(OWN_KEY)


async def test_no_connection_is_opened_for_a_suspended_connection_key(
    virtual_time: VirtualTime,
) -> None:
    pool = new_pool()
    key = key_of_caller(caller().capabilities, ANONYMOUS)
    pool.opener.speaks_stateless = False
    for _ in range(6):
        pool.losses.count(key)
    with pytest.raises(ConnectFailed, match="failed more than 5 times"):
        await pool.for_caller(caller())
    assert not pool.opener.wanted
    with pytest.raises(ConnectFailed, match="no such program"):
        await pool.for_caller(caller(ADA))


async def test_a_closed_pool_opens_no_connection() -> None:
    pool = new_pool()
    pool._connections[KEY] = [connection := used_by()]
    pool._look_after(connection)
    (timer,) = pool._timers.values()
    await pool.close()
    assert (connection.closed, timer.cancelled()) == (True, True)
    with pytest.raises(ConnectFailed, match="the gateway is shutting down") as refused:
        await pool.for_caller(caller())
    assert refused.value.public == "is no longer served: the gateway is shutting down"
    lost: list[Any] = []
    pool.on_lost = lambda *of: lost.append(of)
    pool._lost(connection, ChannelClosed("gone"))
    assert lost == []


# Requests outside of any session


@pytest.mark.parametrize(
    ("stateless", "found"),
    [(False, True), (True, False), (None, False)],
    ids=["wants a handshake", "stateless", "not known"],
)
async def test_a_stateless_request_uses_a_handshake_connection_only_of_a_handshake_server(
    stateless: bool | None, found: bool
) -> None:
    pool, connection, of_all = new_pool(), used_by(), used_by(stateless=True)
    pool._connections[key_of_caller(caller().capabilities, ANONYMOUS)] = [connection]
    pool._connections[CONNECTION_OF_ALL] = [of_all]
    pool.opener.speaks_stateless = stateless
    assert (pool.handshake_connection(caller()) is connection) is found
    assert pool.handshake_connection(caller(ADA)) is None
    assert pool.stateless_connection is of_all
    connection.alive = of_all.alive = False
    assert pool.handshake_connection(caller()) is None
    assert pool.stateless_connection is None


async def test_requests_that_cannot_wait_use_an_open_default_connection() -> None:
    pool, connection = new_pool(), used_by()
    pool.default = Default(connection)
    pool._connections[CONNECTION_OF_ALL] = [used_by(stateless=True)]
    pool.opener.speaks_stateless = False
    assert pool.handshake_connection(caller()) is connection
    assert pool.handshake_connection(caller(ADA)) is None
    assert pool.stateless_connection is None
    connection.stateless, pool.opener.speaks_stateless = True, True
    assert pool.stateless_connection is connection
    pool.default.rest()
    assert pool.stateless_connection is None


@pytest.mark.parametrize(
    ("stateless", "principal", "capabilities", "in_session", "used"),
    [
        (True, ADA, ROOTS, False, True),
        (True, ANONYMOUS, b"{}", True, False),  # a session needs a connection of the handshake era
        (False, ANONYMOUS, b"{}", False, True),
        (False, ANONYMOUS, b"{}", True, True),
        (False, ANONYMOUS, ROOTS, False, False),
        (False, ANONYMOUS, ROOTS, True, False),
        (False, ADA, b"{}", False, False),
        (False, ADA, b"{}", True, False),
    ],
)
async def test_only_anonymous_clients_without_capabilities_use_a_handshake_default_connection(
    stateless: bool, principal: Principal, capabilities: bytes, in_session: bool, used: bool
) -> None:
    pool, connection = new_pool(), used_by(stateless=stateless)
    who = caller(principal, capabilities)
    assert await pool._default_for(who, in_session=in_session) is None
    pool.default = Default(connection)
    found = await pool._default_for(who, in_session=in_session)
    assert (found is connection) is used


@pytest.mark.parametrize(
    ("share", "speaks_handshake", "stateless", "used"),
    [
        ("all", None, False, True),
        ("all", True, True, True),
        ("session", None, False, False),
        # The setting has no effect, because a stateless server has no sessions.
        ("session", False, True, True),
        ("alike", False, True, True),
    ],
)
async def test_share_setting_and_era_decide_whether_a_session_uses_the_default_connection(
    share: Any, speaks_handshake: bool | None, stateless: bool, used: bool
) -> None:
    pool, connection = new_pool(share=share), used_by(stateless=stateless)
    pool.default = Default(connection)
    pool.opener.speaks_handshake = speaks_handshake
    who = caller(ANONYMOUS if share == "session" else ADA)
    assert (await pool._default_for(who, in_session=True) is connection) is used


async def test_a_session_that_needs_another_connection_does_not_wait_for_the_default() -> None:
    pool = new_pool()
    pool.default = default = Default(None)
    default.error = ConnectFailed("still starting")
    assert await pool._default_for(caller(ADA), in_session=True) is None
    with pytest.raises(ConnectFailed, match="still starting"):
        await pool._default_for(caller(), in_session=True)


@pytest.mark.parametrize("principal", [ANONYMOUS, ADA], ids=["anonymous", "authenticated"])
async def test_a_failed_default_connection_does_not_affect_callers_that_need_their_own(
    principal: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, opened, who = new_pool(), used_by(), caller(principal, SAMPLING)
    pool.default = default = Default(None)
    default.error = ConnectFailed("suspended")
    pool.opener.speaks_stateless = False

    async def open_connection(*_: Any, **options: Any) -> Any:
        return opened

    monkeypatch.setattr(pool.opener, "open", open_connection)
    assert await pool.for_caller(who) is opened
    default.error = AssertionError("an open connection is used at once")
    assert await pool.for_caller(who) is opened
    assert (await pool.for_asking(who))[0] is opened
    default.error = ConnectFailed("suspended")
    with pytest.raises(ConnectFailed, match="suspended"):
        await pool.for_caller(caller())


async def test_a_caller_waits_only_once_for_a_server_that_starts_slowly() -> None:
    pool = new_pool()
    pool.default = default = Default(None)
    default.error = StillStarting(StartupWait(30.0, 60.0))
    pool.opener.speaks_stateless = False
    with pytest.raises(StillStarting):
        await pool.for_caller(caller(ADA))


async def test_the_failure_of_the_default_connection_is_reported_until_the_era_is_known() -> None:
    pool = new_pool()
    pool.default = default = Default(None)
    default.error = ConnectFailed("not connected")
    with pytest.raises(ConnectFailed, match="not connected"):
        await pool.for_caller(caller(ADA))


async def test_two_stateless_connections_opened_concurrently_are_reduced_to_one() -> None:
    pool = new_pool()
    opened: list[Any] = []
    pool.on_connection = opened.append
    first, second = used_by(stateless=True), used_by(stateless=True)
    assert pool._filed(first, CONNECTION_OF_ALL) is first
    assert pool._filed(second, CONNECTION_OF_ALL) is first
    await asyncio.gather(*pool._retiring)
    assert (second.closed, pool.connections, opened) == (True, [first], [first])


async def test_one_connection_is_opened_for_all_concurrent_waiters() -> None:
    pool, going = new_pool(), asyncio.Event()
    opened: list[Any] = []

    async def make() -> Any:
        await going.wait()
        opened.append(used_by())
        return opened[0]

    waiting = [asyncio.create_task(pool._once(KEY, caller(ADA), make, KEY)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # cancelling one waiter does not cancel other waiters
    await asyncio.sleep(0)
    going.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [*opened, *opened]
    assert (pool.connections, pool._opening) == (opened, {})


# Calls during which the server may send requests to the client


class AskedBack:
    """A pool whose connections process one call at a time, and which can open more of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, most: int = 3) -> None:
        self.pool = new_pool(turn_wait=0.25, turn_timeout=5.0)
        self.opened = 0
        self.most = most
        self.caller = caller(ADA, ROOTS)
        self.key = key_of_caller(self.caller.capabilities, self.caller.principal)
        self.connections = [used_by(ADA) for _ in range(count)]
        self.pool._connections[self.key] = self.connections
        monkeypatch.setattr(self.pool, "for_caller", self._first)
        monkeypatch.setattr(self.pool, "_once", self._more)

    async def _first(self, caller: Caller) -> Any:
        return self.connections[0]

    async def _more(self, place: Any, caller: Caller, make: Any, key: Any) -> None:
        alive = [one for one in self.connections if one.alive]
        assert (place, caller, key) == ((self.key, len(alive)), self.caller, self.key)
        self.opened += 1
        if len(alive) >= self.most:
            raise ServerBusy("busy", public="is busy")
        self.connections.append(used_by(ADA))
        self.pool._connections[self.key] = self.connections

    async def take(self) -> tuple[Any, Any]:
        return await self.pool.for_asking(self.caller)


@pytest.mark.parametrize("about", ["stateless", "correlates_calls"])
async def test_calls_with_their_own_streams_need_no_turn_on_a_connection(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, about: str
) -> None:
    place = AskedBack(monkeypatch, 1)
    setattr(place.connections[0], about, True)
    assert await place.take() == (place.connections[0], None)
    assert place.connections[0].turns.free


async def test_a_call_that_waits_too_long_for_its_turn_opens_another_connection_up_to_a_limit(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, began = AskedBack(monkeypatch, 1), virtual_time.now
    taken = [await place.take() for _ in range(3)]
    assert len({connection for connection, _ in taken}) == 3
    assert (place.opened, virtual_time.now - began) == (2, pytest.approx(0.5))
    began = virtual_time.now
    with pytest.raises(TimeoutError):
        await place.take()
    assert virtual_time.now == began + 5.25
    assert place.opened == 3  # the limit does not allow a fourth connection
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(1)
    taken[1][1].release()
    connection, turn = await waiting
    assert connection is taken[1][0]
    assert (place.opened, connection.turns.free) == (4, False)
    turn.release()


async def test_no_connection_is_opened_if_a_turn_becomes_free_within_the_wait_time(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(monkeypatch, 1)
    connection, turn = await place.take()
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(0.2)
    turn.release()
    assert (await waiting)[0] is connection
    assert place.opened == 0


async def test_a_call_waits_for_an_open_connection_if_no_more_can_be_opened(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(monkeypatch, 1, most=0)
    connection, turn = await place.take()
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(1)
    assert (place.opened, waiting.done()) == (1, False)
    turn.release()
    assert (await waiting)[0] is connection
    for one in place.connections:
        one.alive = False
    with pytest.raises(ServerBusy, match="busy"):
        await place.take()


async def test_a_turn_on_a_lost_connection_is_released(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(monkeypatch, 3)
    taken = [await place.take() for _ in range(3)]
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(0.1)
    lost, turn = taken[0]
    lost.alive = False
    turn.release()
    connection, _ = await waiting
    assert connection.alive
    assert lost.turns.free
    assert place.opened == 1


async def test_calls_with_roots_take_turns_at_a_server_that_requests_roots(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(monkeypatch, 2)
    for one in place.connections:
        one.correlates_calls = True
    place.pool.facts = ServerFacts(asks_roots=True)
    taken = [await place.take() for _ in range(2)]
    assert [connection for connection, _ in taken] == place.connections
    assert all(turn is not None for _, turn in taken)


async def test_no_other_call_uses_a_connection_whose_server_has_requested_roots(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(monkeypatch, 1)
    connection, turn = await place.take()
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(0.1)
    place.pool._belongs_to(connection, None, True)
    assert place.pool.facts == ServerFacts(asks_roots=True)
    assert place.pool.own == {connection: place.key}
    turn.release()
    other, _ = await waiting
    assert other is not connection
    # The connection ends with the call, although another call had waited for a turn on it.
    await asyncio.gather(*place.pool._retiring)
    assert (connection.closed, place.pool.own) == (True, {})


async def test_a_parked_call_continues_on_its_reserved_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = AskedBack(monkeypatch, 1)
    [connection] = place.connections
    place.pool._belongs_to(connection, None, True)
    first = exchange(principal=ADA, capabilities=ROOTS)
    assert place.pool.reserved_connection(first) is None
    for principal, found in ((ADA, connection), (BOB, None)):
        again = exchange(principal=principal, capabilities=ROOTS)
        again.head = ParamsHead(request_state="x")
        assert place.pool.reserved_connection(again) is found


async def test_a_call_on_the_default_connection_waits_for_its_turn(
    virtual_time: VirtualTime,
) -> None:
    pool, connection = new_pool(share="all", turn_timeout=5.0), used_by()
    pool.default = Default(connection)
    _, turn = await pool.for_asking(caller(ADA, ROOTS))
    began = virtual_time.now
    with pytest.raises(TimeoutError):
        await pool.for_asking(caller(BOB, ROOTS))
    assert virtual_time.now == began + 5.0
    assert turn is not None
    turn.release()
    assert connection.turns.free


# Sessions


class Sessions:
    """A pool that opens a connection for each accepted `initialize`."""

    def __init__(self, *, is_process: bool = True, **settings: Any) -> None:
        self.pool = new_pool(is_process=is_process, **settings)
        self.introductions: list[bytes] = []
        self.error: Exception | None = None
        self.agreement: Agreement | None = None
        opener: Any = self.pool.opener
        opener.open_for_session = self._open

    async def _open(self, introduction: Raw, principal: Principal, *, others: bool) -> Any:
        self.introductions.append(bytes(introduction))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return used_by(principal, agreement=self.agreement)

    async def open(
        self,
        principal: Principal = ANONYMOUS,
        capabilities: bytes = b"{}",
        version: str = HANDSHAKE,
        session: Any = None,
    ) -> Any:
        said = Raw(b'{"protocolVersion":"%b"}' % version.encode())
        who = FakeConnection() if session is None else session
        connection = await self.pool.for_session(who, said, caller(principal, capabilities))
        assert who in connection.sessions
        return connection


async def test_sessions_with_the_same_key_share_a_connection() -> None:
    place = Sessions()
    alike = await asyncio.gather(*(place.open(ADA, SAMPLING) for _ in range(3)))
    assert len({*alike}) == 1
    assert len(alike[0].sessions) == 3
    others = [
        await place.open(BOB, SAMPLING),
        await place.open(ADA, b'{"sampling":{"tools":{}}}'),
        await place.open(ADA, SAMPLING, "2025-06-18"),
    ]
    assert len({*alike, *others}) == len(place.introductions) == 4
    assert await place.open(ADA, b'{"sampling":{"context":{}},"experimental":{}}') is alike[0]


@pytest.mark.parametrize(
    ("about", "shared"),
    [({"called": True}, True), ({"idle": True}, True), ({}, False)],
    ids=["called", "idle", "not called"],
)
async def test_sessions_with_roots_share_a_connection_that_was_called(
    about: dict[str, Any], shared: bool
) -> None:
    """Before its first call, the server may still request the roots of the first session."""
    place = Sessions()
    first = await place.open(ADA, ROOTS)
    vars(first).update({"idle": False, **about})
    assert (await place.open(ADA, ROOTS) is first) is shared


async def test_concurrent_sessions_with_roots_get_separate_connections() -> None:
    place = Sessions()
    opened = await asyncio.gather(*(place.open(ADA, ROOTS) for _ in range(3)))
    assert len({*opened}) == 3


async def test_sessions_with_the_same_agreed_revision_share_a_connection() -> None:
    place = Sessions()
    place.agreement = Agreement(revision=Revision.V2025_06_18)
    first = await place.open(ADA, SAMPLING, "2025-06-18")
    # As if another client had proposed this version before.
    place.pool._agreed[HANDSHAKE] = "2025-06-18"
    assert await place.open(ADA, SAMPLING, HANDSHAKE) is first
    assert await place.open(ADA, SAMPLING, "2025-03-26") is not first
    assert place.pool._agreed["2025-03-26"] == "2025-06-18"
    assert len(place.introductions) == 2


async def test_a_session_joins_the_free_connection_with_the_fewest_sessions() -> None:
    place = Sessions()
    said = Raw(b'{"protocolVersion":"%b"}' % HANDSHAKE.encode())
    key = key_of_session(caller(), said)
    full, busy, fits, dead = used_by(), used_by(), used_by(), used_by(alive=False)
    full.sessions = dict.fromkeys(range(3))
    fits.sessions = dict.fromkeys(range(2))
    turn = busy.turns.try_take("other")
    place.pool._connections[key] = [dead, full, busy, fits]
    assert await place.open() is fits
    assert await place.open() in (full, fits)
    assert turn is not None
    turn.release()
    assert await place.open() is busy
    assert place.introductions == []


@pytest.mark.parametrize(
    ("settings", "about"),
    [
        ({"share": "session"}, {}),
        ({"is_process": False}, {}),
        ({}, {"facts": ServerFacts(asks_roots=True)}),
    ],
    ids=["setting", "http", "asks for roots"],
)
async def test_a_session_gets_its_own_connection_if_required(
    settings: dict[str, Any], about: dict[str, Any]
) -> None:
    place = Sessions(**settings)
    vars(place.pool).update(about)
    one, other = await place.open(ADA, ROOTS), await place.open(ADA, ROOTS)
    assert one is not other
    assert place.pool.own.keys() == {one, other}


async def test_a_server_that_requests_roots_is_shared_by_sessions_without_roots() -> None:
    place = Sessions()
    place.pool.facts = ServerFacts(asks_roots=True)
    assert await place.open(ADA, SAMPLING) is await place.open(ADA, SAMPLING)


async def test_a_session_that_moves_gets_a_free_connection_or_a_new_connection() -> None:
    place = Sessions()
    first = await place.open(ADA, ROOTS)
    turn = first.turns.try_take("other")
    said = Raw(place.introductions[0])
    session: Any = FakeConnection()
    second = await place.pool.another_for_session(session, said, caller(ADA, ROOTS))
    assert second is not first
    assert session in second.sessions
    assert place.pool.connections == [first, second]
    assert place.introductions == [bytes(said)] * 2
    assert turn is not None
    turn.release()
    assert await place.pool.another_for_session(session, said, caller(ADA, ROOTS)) is first
    assert len(place.introductions) == 2


def client(capabilities: bytes) -> Any:
    peer = SimpleNamespace(conversation=SimpleNamespace(peer=caller(ADA, capabilities)))
    session = FakeConnection(peer=peer, detached=False)
    session.detach = lambda: setattr(session, "detached", True)
    return session


@pytest.mark.parametrize("in_call", [True, False])
async def test_a_connection_whose_server_requests_roots_belongs_to_one_session(
    in_call: bool,
) -> None:
    place = Sessions()
    one, other = client(ROOTS), client(ROOTS)
    connection = await place.open(ADA, ROOTS, session=one)
    await place.open(ADA, ROOTS, session=other)
    connection.uris = {"a:1": {one, other}, "a:2": {other}}
    learnt: list[ServerFacts] = []
    place.pool.on_facts = learnt.append
    connection.on_roots(one, in_call)
    facts = ServerFacts(asks_roots=True, asks_roots_early=not in_call)
    assert (place.pool.facts, learnt) == (facts, [facts])
    assert place.pool.own.keys() == {connection}
    assert (list(connection.sessions), connection.uris) == ([one], {"a:1": {one}})
    assert (one.detached, other.detached) == (False, True)
    assert await place.open(ADA, ROOTS) is not connection


async def test_a_connection_stays_shared_if_the_session_has_no_roots() -> None:
    place = Sessions()
    session = client(SAMPLING)
    connection = await place.open(ADA, SAMPLING, session=session)
    connection.on_roots(session, True)
    assert (place.pool.facts, place.pool.own) == (ServerFacts(), {})


# Servers that can run only as one process


@pytest.mark.parametrize(
    ("principal", "exit_code", "is_process", "is_open", "served"),
    [
        (ANONYMOUS, 1, True, True, True),
        (UNNAMED, 1, True, True, True),
        (ADA, 1, True, True, False),
        (ANONYMOUS, None, True, True, False),
        (ANONYMOUS, 1, False, True, False),
        (ANONYMOUS, 1, True, False, False),
    ],
    ids=["anonymous", "unnamed", "named", "no exit", "http", "first is lost"],
)
async def test_clients_use_the_first_process_if_a_second_process_exits(
    principal: Principal, exit_code: int | None, is_process: bool, is_open: bool, served: bool
) -> None:
    place = Sessions(is_process=is_process)
    default = used_by()
    place.pool.default = Default(default if is_open else None)
    place.error = ConnectFailed("exited", exit_code=exit_code, public="exited")
    if served:
        for _ in range(2):
            assert await place.open(principal, ROOTS) is default
        assert (len(place.introductions), place.pool.facts) == (1, ServerFacts())
        # A process for other capabilities exits too, so the capabilities are not the cause.
        assert await place.open(principal, SAMPLING) is default
        assert place.pool.facts == ServerFacts(is_single=True)
        assert await place.open(principal, b'{"elicitation":{}}') is default
        assert len(place.introductions) == 2
    else:
        with pytest.raises(ConnectFailed, match="exited") as refused:
            await place.open(principal, ROOTS)
        assert place.pool.facts == ServerFacts()
        assert ('set share = "all"' in refused.value.public) is (principal is ADA)


async def test_a_server_may_run_twice_although_it_exits_for_some_capabilities() -> None:
    place = Sessions()
    place.pool.default = Default(default := used_by())
    place.error = ConnectFailed("exited", exit_code=1)
    assert await place.open(ANONYMOUS, ROOTS) is default
    place.error = None
    other = await place.open(ANONYMOUS, SAMPLING)
    assert other is not default
    place.error = ConnectFailed("exited", exit_code=1)
    with pytest.raises(ConnectFailed, match="exited"):
        await place.open(ANONYMOUS, ROOTS)
    assert await place.open(ANONYMOUS, SAMPLING) is other
    assert place.pool.facts == ServerFacts()


async def test_a_server_whose_second_process_exits_without_capabilities_cannot_run_twice() -> None:
    place = Sessions(share="alike")
    place.pool.default = Default(default := used_by(stateless=True))
    place.pool.opener.speaks_stateless = True
    place.error = ConnectFailed("exited", exit_code=1)
    assert await place.open(ANONYMOUS) is default
    assert place.pool.facts == ServerFacts(is_single=True)


async def test_a_server_that_has_run_in_two_processes_may_run_twice() -> None:
    place = Sessions()
    place.pool.default = Default(used_by())
    await place.open(ANONYMOUS, ROOTS)
    place.error = ConnectFailed("exited", exit_code=1)
    with pytest.raises(ConnectFailed, match="exited"):
        await place.open(ANONYMOUS, SAMPLING)
    assert place.pool.facts == ServerFacts()


async def test_a_refusal_by_a_server_with_a_handshake_is_returned() -> None:
    place = Sessions()
    place.error = RpcError(-32602, "no such tenant")
    place.pool.opener.speaks_handshake = True
    with pytest.raises(RpcError, match="no such tenant"):
        await place.open()
    assert place.pool.connections == []


async def test_a_server_that_cannot_run_twice_serves_all_clients(tmp_path: Path) -> None:
    """The second process finds the lock file of the first and exits."""
    source = """
    try:
        lock = os.open(LOG + ".lock", os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        sys.exit("another process is running")
    for message in requests():
        if message["method"] == "tools/list":
            answer(message, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        elif message["method"] == "tools/call":
            answer(message, {"content": text(str(os.getpid()))})
        elif "id" in message:
            refuse(message)
    """
    command = program(tmp_path, source, stateless=False)

    def on_elicit(question: Any) -> Any:
        raise AssertionError(question)

    async with asyncio.timeout(LIMIT * 4), Gateway() as gateway:
        await gateway.connect({"one": {"command": command[0], "args": command[1:]}})
        await until(lambda: gateway.is_ready)
        answers = []
        for version in (HANDSHAKE, STATELESS):
            for callbacks in ({}, {"on_elicit": on_elicit}, {"on_elicit": on_elicit}):
                async with joining(gateway, version, **callbacks) as client:
                    answers.append((await client.call("one_t")).text)
        assert len(set(answers)) == 1
        assert gateway.upstreams["one"].state == "connected"
