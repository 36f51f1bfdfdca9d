"""Connections to a server that cannot be opened, or that nobody uses."""

import asyncio
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ConnectFailed, LocalResourceError, ServerBusy
from fairlead.gateway import Gateway
from fairlead.limits import CONNECTIONS_PER_CLIENT
from fairlead.protocol.caller import Caller
from fairlead.protocol.identity.principal import ANONYMOUS, Principal, principal_from
from fairlead.relay import upstream_pool
from fairlead.relay.relay_settings import RelaySettings
from fairlead.relay.server_target import Way
from fairlead.relay.turn_lock import Turns
from fairlead.relay.upstream_pool import Upstream
from fairlead.transport.channel import Channel
from fairlead.upstream.start_limiter import StartLimiter
from tests.support.gateway_servers import joining, until
from tests.support.raw_relay import HANDSHAKE, LIMIT, STATELESS, Scene, Server, scene
from tests.support.scripted_stdio_server import program
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime


class FakeLink(SimpleNamespace):
    """A connection of which only its use is known."""

    quiet = False

    __hash__ = object.__hash__


class AbsentServer:
    """A server that cannot be reached, with the times at which that was tried."""

    def __init__(self, clock: VirtualTime) -> None:
        self.tried: list[float] = []
        self._clock = clock
        way = Way(name="red", open=self._open, shared=True)
        self.upstream = Upstream(way, RelaySettings(), {"name": "x", "version": "1"})

    async def _open(self) -> Channel:
        self.tried.append(self._clock.now)
        raise ConnectFailed("no such program")

    async def ask(self, principal: Principal = ANONYMOUS) -> bool:
        """Ask for a connection; return True if that was tried."""
        before = len(self.tried)
        with pytest.raises(ConnectFailed, match="no such program"):
            await self.upstream.for_caller(exchange(principal=principal).caller)
        return len(self.tried) > before


async def test_a_server_that_is_not_there_is_tried_ever_later_up_to_half_a_minute(
    virtual_time: VirtualTime,
) -> None:
    server = AbsentServer(virtual_time)
    for _ in range(1300):
        await server.ask()
        virtual_time.now += 0.1
    gaps = [later - earlier for earlier, later in pairwise(server.tried)]
    assert gaps == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30], abs=0.11)


async def test_the_failures_of_1024_principals_are_remembered(virtual_time: VirtualTime) -> None:
    server = AbsentServer(virtual_time)
    everybody = [principal_from(f"user {number}") for number in range(1025)]
    for principal in everybody[:1024]:
        assert await server.ask(principal)
    assert not await server.ask(everybody[0])
    assert await server.ask(everybody[1024])
    assert not await server.ask(everybody[1])
    assert await server.ask(everybody[0])  # the oldest was forgotten


@pytest.mark.parametrize(("unused", "ends"), [(5.0, True), (4.9, False)])
async def test_room_is_made_by_ending_what_was_unused_for_five_seconds(
    virtual_time: VirtualTime, unused: float, ends: bool
) -> None:
    upstream = AbsentServer(virtual_time).upstream
    closed = asyncio.Event()

    async def close() -> None:
        closed.set()

    def link(age: float, idle: bool) -> Any:
        used = virtual_time.now - age
        return FakeLink(idle=idle, used=used, close=close, alive=True)

    links = [link(unused, True), link(0, True), link(60, False)]
    if ends:
        upstream._retire_one(links, 3)
        await closed.wait()
        await asyncio.sleep(0)
        assert upstream._retiring == set()
    else:
        with pytest.raises(ConnectFailed, match="3 connections to it are in use"):
            upstream._retire_one(links, 3)


# Servers that refuse `initialize`

BY_HAND = {"initialize", "server/discover"}
both_ways = pytest.mark.parametrize("shared", [True, False], ids=["process", "http"])


async def next_server(place: Scene) -> Server:
    """Return the next server that the relay connects to, before it was asked anything."""
    async with asyncio.timeout(LIMIT):
        return await place._new.get()


def discovered(*versions: str) -> dict[str, Any]:
    capabilities = {"tools": {}}
    return {
        "resultType": "complete",
        "supportedVersions": [*versions],
        "capabilities": capabilities,
    }


@both_ways
@pytest.mark.parametrize("code", [-32600, -32602])
async def test_a_server_of_both_eras_that_refuses_a_handshake_is_not_asked_statelessly(
    code: int, shared: bool
) -> None:
    async with scene(quiet=BY_HAND, shared=shared) as place:
        client = await place.client()
        answer = asyncio.ensure_future(client.initialize())
        server = await next_server(place)
        server.refuse(await server.method("initialize"), code, "this client is not welcome")
        if not shared:
            server = await next_server(place)
        server.reply(await server.method("server/discover"), discovered(HANDSHAKE, STATELESS))
        error = (await answer)["error"]
        assert error == {"code": code, "message": "this client is not welcome"}
        other = await place.client()
        opened = asyncio.ensure_future(other.initialize())
        server = await next_server(place)
        said = {"protocolVersion": HANDSHAKE, "capabilities": {}}
        info = {"name": "raw", "version": "1"}
        server.reply(await server.method("initialize"), {**said, "serverInfo": info})
        assert (await opened)["result"]["serverInfo"] == info


@both_ways
async def test_a_server_that_names_versions_with_a_handshake_has_refused_it(shared: bool) -> None:
    async with scene(quiet=BY_HAND, shared=shared) as place:
        client = await place.client()
        answer = asyncio.ensure_future(client.initialize())
        server = await next_server(place)
        data = {"supported": ["2024-11-05"], "requested": HANDSHAKE}
        request = await server.method("initialize")
        server.refuse(request, -32602, "Unsupported protocol version", data)
        assert (await answer)["error"]["data"] == data
        assert [message["method"] for one in place.servers for message in one.seen] == [
            "initialize"
        ]


@both_ways
@pytest.mark.parametrize("code", [-32600, -32601, -32602, -32020, -32022])
async def test_a_server_without_a_handshake_is_found_whatever_it_refuses_it_with(
    code: int, shared: bool
) -> None:
    async with scene(quiet=BY_HAND, shared=shared) as place:
        client = await place.client()
        answer = asyncio.ensure_future(client.initialize())
        server = await next_server(place)
        server.refuse(await server.method("initialize"), code, "no version in _meta")
        if not shared:
            server = await next_server(place)
        server.reply(await server.method("server/discover"), discovered(STATELESS))
        assert (await answer)["result"]["protocolVersion"] == HANDSHAKE
        assert place.relay.upstream.speaks_handshake is False


@both_ways
@pytest.mark.parametrize("end", ["silent", "closed"])
async def test_a_refusal_is_the_answer_also_if_the_server_does_not_say_more(
    shared: bool, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_pool, "PROBE_TIMEOUT", 0.05)
    async with scene(quiet=BY_HAND, shared=shared) as place:
        client = await place.client()
        answer = asyncio.ensure_future(client.initialize())
        server = await next_server(place)
        server.refuse(await server.method("initialize"), -32602, "no such tenant")
        if not shared:
            server = await next_server(place)
        await server.method("server/discover")
        if end == "closed":
            await server.close()
        assert (await answer)["error"] == {"code": -32602, "message": "no such tenant"}


async def test_starts_for_clients_wait_for_their_turn(virtual_time: VirtualTime) -> None:
    """Sixteen servers that one client calls do not start sixteen processes at once."""
    starts, running, most = StartLimiter(2), 0, 0

    async def start() -> Channel:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.5)
        running -= 1
        raise ConnectFailed("no such program")

    info = {"name": "x", "version": "1"}
    upstreams = [
        Upstream(Way(name=str(n), open=start, shared=True), RelaySettings(), info, starts)
        for n in range(16)
    ]
    caller = exchange("tools/call", {"name": "t"}).caller
    outcomes = await asyncio.gather(
        *(upstream.for_caller(caller) for upstream in upstreams), return_exceptions=True
    )
    assert {type(one) for one in outcomes} == {ConnectFailed}
    assert most == 2


async def test_a_shortage_of_this_machine_is_no_failed_attempt(virtual_time: VirtualTime) -> None:
    tried = list[float]()

    async def start() -> Channel:
        tried.append(virtual_time.now)
        raise LocalResourceError("no pipe", "file descriptors")

    starts, info = StartLimiter(), {"name": "x", "version": "1"}
    way = Way(name="red", open=start, shared=True)
    upstream = Upstream(way, RelaySettings(), info, starts)
    caller = exchange("tools/call", {"name": "t"}).caller
    for _ in range(3):
        with pytest.raises(LocalResourceError):
            await upstream.for_caller(caller)
    assert len(tried) == 3  # each waited for the pause, none was refused because of the others
    assert upstream.error is None
    assert starts.shortage.error is not None


async def test_a_quiet_session_gives_its_connection_up_when_all_are_open() -> None:
    """Sixty seconds without a call, a subscription or a listener; the longest quiet one goes."""
    upstream = Upstream(
        Way(name="red", open=AbsentServer, shared=True),  # type: ignore[arg-type]
        RelaySettings(),
        {"name": "x", "version": "1"},
    )
    now = asyncio.get_running_loop().time()
    retired: list[Any] = []
    upstream._retire = retired.append  # type: ignore[method-assign, assignment]

    def link(seconds: float, *, quiet: bool = True) -> Any:
        return FakeLink(idle=False, quiet=quiet, used=now - seconds, principal=ANONYMOUS)

    for links in ([link(59)], [link(500, quiet=False)]):
        with pytest.raises(ServerBusy):
            upstream._retire_one(links, 32)
    oldest = link(90)
    upstream._retire_one([link(61), oldest, link(500, quiet=False), link(10)], 32)
    assert retired == [oldest]


async def test_a_server_that_cannot_run_twice_serves_all_clients(tmp_path: Path) -> None:
    """The second process finds the lock of the first, and exits."""
    source = """
    try:
        lock = os.open(LOG + ".lock", os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        sys.exit("another one is running")
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
        assert gateway.manager.describe()["one"].state == "connected"


# Room for connections


def pool(clock: VirtualTime, **settings: Any) -> Upstream:
    way = Way(name="red", open=AbsentServer(clock)._open, shared=True)
    return Upstream(way, RelaySettings(**settings), {"name": "x", "version": "1"})


def used_by(principal: Principal, clock: VirtualTime, *, unused: float = 10.0) -> Any:
    async def close() -> None:
        link.closed = True

    link = FakeLink(
        principal=principal,
        stateless=False,
        borrowed=False,
        idle=True,
        alive=True,
        closed=False,
        used=clock.now - unused,
        now=clock,
        fronts={},
        close=close,
    )
    return link


ADA, BOB = principal_from("ada"), principal_from("bob")


@pytest.mark.parametrize(
    ("principal", "held", "reserved", "ended"),
    [
        (ADA, 2, 0, 0),
        (ADA, 3, 0, 1),  # half of six
        (ADA, 2, 1, 1),
        (BOB, 3, 0, 0),
        (ANONYMOUS, 5, 0, 0),
        (ANONYMOUS, 6, 0, 1),
        (ANONYMOUS, 5, 1, 1),
    ],
)
async def test_a_principal_has_half_of_the_connections_and_all_together_have_a_limit(
    virtual_time: VirtualTime, principal: Principal, held: int, reserved: int, ended: int
) -> None:
    upstream = pool(virtual_time, max_connections=6)
    owner = ADA if principal is BOB else principal
    links = [used_by(owner, virtual_time, unused=10 + n) for n in range(held)]
    upstream.own.update(links)
    upstream._reserved[principal] += reserved
    hits = CONNECTIONS_PER_CLIENT.hits
    with upstream._reserve(principal):
        assert upstream._reserved[principal] == reserved + 1
        await asyncio.sleep(0)
    assert upstream._reserved[principal] == reserved
    assert [one.closed for one in links] == [False] * (held - ended) + [True] * ended
    assert len(upstream.own) == held - ended
    assert CONNECTIONS_PER_CLIENT.hits - hits == (ended if principal is ADA else 0)
    if not reserved:
        assert principal not in dict(upstream._reserved)


async def test_room_is_made_at_the_cost_of_who_has_the_most(virtual_time: VirtualTime) -> None:
    upstream = pool(virtual_time, max_connections=4)
    few = used_by(BOB, virtual_time, unused=100)
    many = [used_by(ANONYMOUS, virtual_time, unused=n) for n in (20, 30, 10)]
    upstream.own.update([few, *many])
    upstream._make_room(principal_from("cy"))
    await asyncio.sleep(0)
    assert [one.closed for one in (few, *many)] == [False, False, True, False]


async def test_a_connection_that_nobody_uses_is_ended_after_its_time(
    virtual_time: VirtualTime,
) -> None:
    upstream = pool(virtual_time, linger=100.0)
    link = used_by(ANONYMOUS, virtual_time, unused=0)
    upstream._links["key"] = [link]
    upstream._look_after(link)
    began = virtual_time.now
    await asyncio.sleep(60)
    link.used = virtual_time.now
    await asyncio.sleep(99)
    assert not link.closed
    link.idle = link.abandoned = False
    await asyncio.sleep(30)  # it is looked at, and in use
    assert not link.closed
    link.idle = True
    await asyncio.sleep(100)
    assert link.closed
    assert virtual_time.now == began + 289
    assert (upstream.links, upstream._timers) == ([], {})


@pytest.mark.parametrize(("linger", "stateless"), [(0, False), (100, True)])
async def test_some_connections_stay_for_ever(
    virtual_time: VirtualTime, linger: float, stateless: bool
) -> None:
    upstream = pool(virtual_time, linger=linger)
    link = used_by(ANONYMOUS, virtual_time)
    link.stateless = stateless
    upstream._look_after(link)
    assert upstream._timers == {}


@pytest.mark.parametrize(
    ("place", "about", "closed"),
    [
        ("own", {}, True),
        ("first", {}, False),  # stays for the next one
        ("second", {}, True),
        ("second", {"idle": False}, False),
        ("second", {"stateless": True}, False),
        ("second", {"borrowed": True}, False),
    ],
)
async def test_a_connection_ends_with_its_session_unless_it_is_needed(
    virtual_time: VirtualTime, place: str, about: dict[str, Any], closed: bool
) -> None:
    upstream = pool(virtual_time)
    link, other = used_by(ANONYMOUS, virtual_time), used_by(ANONYMOUS, virtual_time)
    vars(link).update(about)
    if place == "own":
        upstream.own.add(link)
    else:
        upstream._links["key"] = [link, other] if place == "first" else [other, link]
    front: Any = SimpleNamespace(link=None)
    await upstream.leave(front)  # it has none
    front = FakeLink(link=link)
    link.fronts[front] = None
    await upstream.leave(front)
    assert (front.link, link.fronts, link.closed) == (None, {}, closed)
    assert (link in upstream.links) is not closed
    assert (link.used == virtual_time.now) is not closed


async def test_what_is_forgotten_leaves_no_timer_and_no_empty_list(
    virtual_time: VirtualTime,
) -> None:
    upstream = pool(virtual_time)
    one, other = used_by(ANONYMOUS, virtual_time), used_by(ANONYMOUS, virtual_time)
    upstream._links.update(a=[one, other], b=[one])
    upstream._look_after(one)
    timer = upstream._timers[one]
    upstream._forget(one)
    assert (upstream._links, upstream._timers, timer.cancelled()) == ({"a": [other]}, {}, True)
    other.alive = False
    assert upstream._shared("a") is None
    assert upstream._shared("b") is None


async def test_the_first_turn_on_any_connection_is_taken_and_no_other_is_kept(
    virtual_time: VirtualTime,
) -> None:
    links: list[Any] = [FakeLink(turns=Turns()) for _ in range(3)]
    busy = [link.turns.try_take("other") for link in links]
    waiting = asyncio.create_task(upstream_pool._first_turn(links, "me", 5.0))
    await asyncio.sleep(1)
    for turn in busy[1:]:
        turn.release()
    link, turn = await waiting
    assert link in links[1:]
    assert sum(one.turns.free for one in links) == 1  # the other one was given back
    turn.release()
    assert [one.turns.free for one in links] == [False, True, True]
    for one in links[1:]:
        one.turns.try_take("other")
    began = virtual_time.now
    with pytest.raises(TimeoutError):
        await upstream_pool._first_turn(links, "me", 5.0)
    assert virtual_time.now == began + 5.0


@pytest.mark.parametrize(
    ("info", "shown"),
    [
        (b'{"name":"a","version":"2"}', {"name": "a", "version": "2"}),
        (None, {"name": "fairlead", "version": "0"}),
        (b"5", {"name": "fairlead", "version": "0"}),
    ],
)
def test_we_introduce_ourselves_as_the_caller_or_as_us(info: bytes | None, shown: Any) -> None:
    found = upstream_pool._introduction(b'{"roots":{}}', exchange(info=info).caller)
    assert found == {"capabilities": {"roots": {}}, "clientInfo": shown}


async def test_a_pool_that_is_closed_opens_nothing(virtual_time: VirtualTime) -> None:
    server = AbsentServer(virtual_time)
    assert not server.upstream.wanted
    await server.upstream.close()
    with pytest.raises(ConnectFailed, match="the gateway ends") as refused:
        await server.upstream.for_caller(exchange().caller)
    assert refused.value.public == "is not served any more: the gateway ends"
    assert server.tried == []


async def test_the_last_error_is_kept_while_there_is_no_connection(
    virtual_time: VirtualTime,
) -> None:
    server = AbsentServer(virtual_time)
    await server.ask()
    assert server.upstream.wanted
    assert str(server.upstream.error) == "no such program"
    with pytest.raises(ConnectFailed, match="red is not there: no such program"):
        await server.upstream.for_caller(exchange().caller)


# Connections for requests that stand alone


def caller(principal: Principal = ANONYMOUS, capabilities: bytes = b"{}") -> Caller:
    return exchange(principal=principal, capabilities=capabilities).caller


@pytest.mark.parametrize(
    ("base", "stateless", "found"),
    [(False, False, True), (False, True, False), (False, None, False), (True, False, False)],
)
async def test_a_request_goes_to_a_server_that_is_known_to_want_a_handshake(
    virtual_time: VirtualTime, base: bool, stateless: bool | None, found: bool
) -> None:
    upstream, link = pool(virtual_time), used_by(ANONYMOUS, virtual_time)
    upstream._links[ANONYMOUS, b"{}"] = [link]
    upstream._links["stateless"] = [link]
    upstream.speaks_stateless = stateless
    if base:
        upstream.base = lambda: None  # type: ignore[assignment,return-value]
    assert (upstream.handshake_link(caller()) is link) is found
    assert upstream.handshake_link(caller(ADA)) is None
    assert (upstream.stateless_link is link) is not base
    link.alive = False
    assert upstream.stateless_link is None


@pytest.mark.parametrize(
    ("stateless", "principal", "capabilities", "shared"),
    [
        (True, ADA, b'{"roots":{}}', True),
        (False, ANONYMOUS, b"{}", True),
        (False, ANONYMOUS, b'{"roots":{}}', False),
        (False, ADA, b"{}", False),
    ],
)
async def test_a_connection_that_is_there_anyway_is_for_those_it_cannot_confuse(
    virtual_time: VirtualTime,
    stateless: bool,
    principal: Principal,
    capabilities: bytes,
    shared: bool,
) -> None:
    upstream, link = pool(virtual_time), used_by(ANONYMOUS, virtual_time)
    assert await upstream._base_for(caller()) is None
    link.stateless = stateless

    async def base() -> Any:
        return link

    upstream.base = base
    assert (await upstream._base_for(caller(principal, capabilities)) is link) is shared


class AskedBack:
    """A pool whose connections have turns, and that opens more of them."""

    def __init__(self, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.upstream = pool(clock, max_channels=3, turn_timeout=5.0)
        self.clock = clock
        self.opened = 0
        self.error: Exception | None = None
        self.caller = caller(ADA, b'{"roots":{}}')
        self.key = (ADA, b'{"roots":{}}')
        self.links = [self._link() for _ in range(count)]
        self.upstream._links[self.key] = list(self.links)
        monkeypatch.setattr(self.upstream, "for_caller", self._first)
        monkeypatch.setattr(self.upstream, "_one_more", self._more)

    def _link(self) -> Any:
        link = used_by(ADA, self.clock)
        link.turns, link.correlates_calls = Turns(), False
        return link

    async def _first(self, caller: Caller) -> Any:
        return self.links[0]

    async def _more(self, key: Any, number: int, *_: Any) -> None:
        self.opened += 1
        assert number == len([one for one in self.upstream._links[self.key] if one.alive])
        if self.error is not None:
            raise self.error
        self.upstream._links[self.key].append(self._link())

    async def take(self) -> tuple[Any, Any]:
        return await self.upstream.for_asking(self.caller)


@pytest.mark.parametrize("about", ["stateless", "correlates_calls"])
async def test_where_calls_are_told_apart_no_turn_is_needed(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, about: str
) -> None:
    place = AskedBack(virtual_time, monkeypatch, 1)
    setattr(place.links[0], about, True)
    assert await place.take() == (place.links[0], None)
    assert place.links[0].turns.free


async def test_each_call_has_a_connection_alone_and_more_are_opened_up_to_a_limit(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(virtual_time, monkeypatch, 1)
    taken = [await place.take() for _ in range(3)]
    assert len({link for link, _ in taken}) == 3
    assert place.opened == 2
    began = virtual_time.now
    with pytest.raises(TimeoutError):
        await place.take()
    assert virtual_time.now == began + 5.0
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(1)
    taken[1][1].release()
    link, turn = await waiting
    assert link is taken[1][0]
    assert (place.opened, link.turns.free) == (2, False)
    turn.release()


async def test_if_no_more_can_be_opened_those_that_there_are_have_to_do(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(virtual_time, monkeypatch, 1)
    place.error = ConnectFailed("busy")
    link, turn = await place.take()
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(1)
    assert (place.opened, waiting.done()) == (1, False)
    turn.release()
    assert (await waiting)[0] is link
    for one in place.links:
        one.alive = False
    with pytest.raises(ConnectFailed, match="busy"):
        await place.take()


async def test_a_turn_on_a_connection_that_was_lost_meanwhile_is_given_back(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = AskedBack(virtual_time, monkeypatch, 3)
    taken = [await place.take() for _ in range(3)]
    waiting = asyncio.create_task(place.take())
    await asyncio.sleep(1)
    lost, turn = taken[0]
    lost.alive = False
    turn.release()
    link, _ = await waiting
    assert link.alive
    assert lost.turns.free
    assert place.opened == 1
