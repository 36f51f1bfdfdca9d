"""Connections to a server that cannot be opened, or that nobody uses."""

import asyncio
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.errors import ConnectFailed, LocalResourceError, ServerBusy
from fairlead.gateway import Gateway
from fairlead.protocol.identity.principal import ANONYMOUS, Principal, principal_from
from fairlead.relay import upstream_pool
from fairlead.relay.server_target import Way
from fairlead.relay.settings import RelaySettings
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
