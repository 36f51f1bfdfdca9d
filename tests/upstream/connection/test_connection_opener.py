"""Opening of upstream connections: eras, failed attempts and refused handshakes."""

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead import MCPServer
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    LocalResourceError,
    RpcError,
)
from fairlead.protocol.caller import ANONYMOUS, Principal, principal_from
from fairlead.transport.channel import Channel
from fairlead.transport.memory import memory_pair
from fairlead.upstream.connection import connection_opener
from fairlead.upstream.connection.connection_key import ConnectionKey
from fairlead.upstream.connection.connection_opener import ConnectionOpener, introduction_of
from fairlead.upstream.connection.upstream_connection import UpstreamConnection
from fairlead.upstream.server_target import ServerTarget, target_for
from fairlead.upstream.starts.start_limiter import StartLimiter
from tests.support.raw_relay import HANDSHAKE, LIMIT, STATELESS, Scene, Server, scene
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

KEY = ConnectionKey(False)
INTRODUCTION = introduction_of(b"{}", exchange().caller)


class Opened:
    """An opener, and a list of its connections that were lost."""

    def __init__(
        self,
        target: ServerTarget | None = None,
        *,
        starts: StartLimiter | None = None,
        **fields: Any,
    ) -> None:
        self.lost: list[tuple[UpstreamConnection, ChannelClosed]] = []
        self.opener = ConnectionOpener(
            target or target_for(MCPServer("red"), "red"),
            lambda: UpstreamSettings(**fields),
            starts or StartLimiter(),
            lambda *of: self.lost.append(of),
        )

    async def find_out(
        self, principal: Principal = ANONYMOUS, capabilities: bytes = b"{}"
    ) -> UpstreamConnection:
        key = ConnectionKey(False, "1", capabilities, principal)
        return await self.opener.find_out(INTRODUCTION, key, others=False)


class AbsentServer(Opened):
    """An opener for a server that cannot be reached, with the times of its attempts."""

    def __init__(self, clock: VirtualTime, error: Exception | None = None, **fields: Any) -> None:
        self.tried: list[float] = []
        self.error = error or ConnectFailed("no such program")
        self._clock = clock
        super().__init__(ServerTarget(name="red", open=self._open, is_process=True), **fields)

    async def _open(self) -> Channel:
        self.tried.append(self._clock.now)
        raise self.error

    async def ask(self, principal: Principal = ANONYMOUS, capabilities: bytes = b"{}") -> bool:
        """Request a connection; return True if an attempt was made."""
        before = len(self.tried)
        with pytest.raises(ConnectFailed, match="no such program"):
            await self.find_out(principal, capabilities)
        return len(self.tried) > before


async def test_attempts_to_reach_an_absent_server_have_growing_delays_up_to_30_seconds(
    virtual_time: VirtualTime,
) -> None:
    server = AbsentServer(virtual_time)
    for _ in range(1300):
        await server.ask()
        virtual_time.now += 0.1
    gaps = [later - earlier for earlier, later in pairwise(server.tried)]
    assert gaps == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30], abs=0.11)


async def test_failures_for_some_capabilities_do_not_delay_other_clients(
    virtual_time: VirtualTime,
) -> None:
    server = AbsentServer(virtual_time)
    assert await server.ask()
    assert await server.ask(capabilities=b"1")
    assert [await server.ask(), await server.ask(capabilities=b"1")] == [False, False]


async def test_a_principal_cannot_make_an_attempt_with_each_set_of_capabilities(
    virtual_time: VirtualTime,
) -> None:
    server, ada = AbsentServer(virtual_time), principal_from("ada")
    made = [await server.ask(ada, b"%d" % number) for number in range(20)]
    assert made == [True] * 8 + [False] * 12
    assert await server.ask(principal_from("bob"))
    virtual_time.now += 0.5
    assert await server.ask(ada, b"20")


async def test_failures_of_at_most_1024_principals_are_stored(virtual_time: VirtualTime) -> None:
    server = AbsentServer(virtual_time)
    everybody = [principal_from(f"user {number}") for number in range(1025)]
    for principal in everybody[:1024]:
        assert await server.ask(principal)
    assert not await server.ask(everybody[0])
    assert await server.ask(everybody[1024])
    assert not await server.ask(everybody[1])
    assert await server.ask(everybody[0])  # the failure of the oldest principal is no longer stored


async def test_the_last_error_is_kept_until_a_connection_is_opened(
    virtual_time: VirtualTime,
) -> None:
    server = AbsentServer(virtual_time)
    opener = server.opener
    assert (opener.wanted, opener.error) == (False, None)
    await server.ask()
    assert opener.wanted
    assert opener.error is server.error
    with pytest.raises(ConnectFailed, match="red cannot be reached: no such program"):
        await server.find_out()
    opener.target = target_for(MCPServer("red"), "red")
    virtual_time.now += 0.5
    connection = await server.find_out()
    assert (opener.error, opener._backoffs) == (None, {})
    await connection.close()


@pytest.mark.parametrize(
    "error", [RpcError(-32602, "no such tenant"), HttpError(403)], ids=["error", "status"]
)
async def test_a_rejection_by_the_server_does_not_count_as_a_failed_attempt(
    virtual_time: VirtualTime, error: Exception
) -> None:
    server = AbsentServer(virtual_time, error)
    for _ in range(3):
        with pytest.raises(type(error)):
            await server.find_out()
    assert (len(server.tried), server.opener.error) == (3, None)


async def test_a_local_resource_shortage_does_not_count_as_a_failed_attempt(
    virtual_time: VirtualTime,
) -> None:
    starts = StartLimiter()
    server = AbsentServer(
        virtual_time, LocalResourceError("no pipe", "file descriptors"), starts=starts
    )
    for _ in range(3):
        with pytest.raises(LocalResourceError):
            await server.find_out()
    # Each attempt waited for the shortage to end, and none was rejected.
    assert len(server.tried) == 3
    assert server.opener.error is None
    assert starts.shortage.error is not None


async def test_processes_started_for_clients_wait_for_a_start_slot(
    virtual_time: VirtualTime,
) -> None:
    """Sixteen new connections of one client must not start sixteen processes at once."""
    starts, running, most = StartLimiter(2), 0, 0

    async def start() -> Channel:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.5)
        running -= 1
        raise ConnectFailed("no such program")

    servers = [
        Opened(ServerTarget(name=str(n), open=start, is_process=True), starts=starts)
        for n in range(16)
    ]
    outcomes = await asyncio.gather(*(one.find_out() for one in servers), return_exceptions=True)
    assert {type(one) for one in outcomes} == {ConnectFailed}
    assert most == 2


async def test_a_closed_opener_opens_no_connection(virtual_time: VirtualTime) -> None:
    server = AbsentServer(virtual_time)
    server.opener.closed = True
    with pytest.raises(ConnectFailed, match="red: the gateway is shutting down") as refused:
        await server.find_out()
    assert refused.value.public == "is no longer served: the gateway is shutting down"
    assert (server.tried, server.opener.wanted) == ([], False)


async def test_a_connection_that_opens_after_the_opener_was_closed_is_closed() -> None:
    target = target_for(MCPServer("red"), "red")
    channels: list[Channel] = []

    async def open_late() -> Channel:
        channels.append(await target.open())
        server.opener.closed = True
        return channels[0]

    server = Opened(ServerTarget(name="red", open=open_late, is_process=False))
    with pytest.raises(ConnectFailed, match="the gateway is shutting down"):
        await server.find_out()
    with pytest.raises(ChannelClosed):
        await channels[0].drain()


async def test_a_server_that_does_not_respond_times_out(virtual_time: VirtualTime) -> None:
    async def open_silent() -> Channel:
        return memory_pair()[0]

    target = ServerTarget(name="red", open=open_silent, is_process=False)
    server, began = Opened(target, connect_timeout=7.0, era="handshake"), virtual_time.now
    with pytest.raises(ConnectFailed, match=r"red did not answer within 7 s") as refused:
        await server.opener.open(INTRODUCTION, KEY, stateless=False, others=False)
    assert refused.value.public == "did not answer within 7 s"
    assert virtual_time.now == began + 7.0
    assert server.opener.error is refused.value


async def test_the_public_reason_for_an_exit_during_start_up_mentions_the_start(
    virtual_time: VirtualTime,
) -> None:
    error = ChannelClosed("red exited", exit_code=7, delivered=False)
    server = AbsentServer(virtual_time, error)
    with pytest.raises(ChannelClosed) as refused:
        await server.find_out()
    assert refused.value.public.endswith(" during start-up")
    # No second attempt, because the server exited before it read the request.
    assert len(server.tried) == 1


# Detection of the era of a server


@pytest.mark.parametrize(
    ("era", "spoken"),
    [("auto", (None, None)), ("handshake", (False, None)), ("stateless", (None, False))],
)
def test_an_era_excluded_by_the_settings_counts_as_not_supported(era: Any, spoken: Any) -> None:
    opener = Opened(era=era).opener
    assert (opener.speaks_stateless, opener.speaks_handshake) == spoken


async def test_a_connection_is_opened_in_the_preferred_era() -> None:
    server, ada = Opened(), principal_from("ada")
    connection = await server.find_out(ada)
    opener = server.opener
    assert (connection.stateless, connection.principal, connection.name) == (True, ada, "red")
    assert (opener.speaks_stateless, opener.speaks_handshake) == (True, None)
    assert connection.param_headers is opener.param_headers
    assert server.lost == []
    await connection.peer.close()
    ((lost, _),) = server.lost
    assert lost is connection


async def test_a_handshake_connection_leaves_support_for_the_stateless_era_unknown() -> None:
    server = Opened()
    connection = await server.opener.open(INTRODUCTION, KEY, stateless=False, others=False)
    assert (connection.stateless, connection.introduction) == (False, None)
    assert (server.opener.speaks_stateless, server.opener.speaks_handshake) == (None, True)
    await connection.close()


async def test_a_session_is_opened_with_the_original_initialize_params_of_its_client() -> None:
    async with scene(offers={"instructions": "x"}) as place:
        opener = place.relay.pool.opener
        said = Raw(b'{"protocolVersion":"2025-11-25", "capabilities":{} ,"vendor":1e400}')
        connection = await opener.open_for_session(said, KEY, others=False)
        server = await place.server()
        (request,) = server.seen
        assert request["params"]["vendor"] == float("inf")
        assert connection.introduction is not None
        assert msgspec.json.decode(connection.introduction)["instructions"] == "x"
        assert connection.agreement is not None
        assert connection.agreement.revision.value == HANDSHAKE
        assert (opener.speaks_stateless, opener.speaks_handshake) == (None, True)
        await connection.close()


REFUSED = RpcError(-32601, "Method not found")


@pytest.mark.parametrize(
    ("era", "others", "spoken", "refusal", "doubted", "known"),
    [
        ("auto", False, True, REFUSED, True, (None, None)),
        ("auto", False, None, REFUSED, False, (None, None)),
        ("auto", True, True, REFUSED, False, (False, True)),
        ("auto", False, True, HttpError(403), False, (False, True)),
        ("handshake", False, True, REFUSED, False, (False, True)),
    ],
    ids=["changed", "not known", "other connections", "for this client", "set"],
)
def test_eras_are_forgotten_if_the_handshake_is_refused(
    era: Any, others: bool, spoken: Any, refusal: Any, doubted: bool, known: Any
) -> None:
    opener = Opened(era=era).opener
    opener.speaks_stateless, opener.speaks_handshake = False, spoken
    assert opener.doubts_era(refusal, others=others) is doubted
    assert (opener.speaks_stateless, opener.speaks_handshake) == known


@pytest.mark.parametrize(
    ("era", "stateless", "known"),
    [
        ("auto", True, (True, None)),  # the server may also support the handshake
        ("auto", False, (False, True)),
        ("handshake", True, (False, None)),
        ("stateless", False, (None, False)),
    ],
)
def test_the_era_of_a_connection_that_another_component_opened_is_recorded(
    era: Any, stateless: bool, known: Any
) -> None:
    opener = Opened(era=era).opener
    opener.learn_era(stateless)
    assert (opener.speaks_stateless, opener.speaks_handshake) == known


def test_a_stateless_connection_does_not_reset_the_record_of_a_refused_handshake() -> None:
    opener = Opened().opener
    opener.speaks_handshake = False
    opener.learn_era(True)
    assert (opener.speaks_stateless, opener.speaks_handshake) == (True, False)


@pytest.mark.parametrize(
    ("info", "shown"),
    [
        (b'{"name":"a","version":"2"}', {"name": "a", "version": "2"}),
        (None, {"name": "fairlead", "version": "0"}),
        (b"5", {"name": "fairlead", "version": "0"}),
    ],
)
def test_initialize_has_the_client_info_of_the_caller_or_of_fairlead(
    info: bytes | None, shown: Any
) -> None:
    found = introduction_of(b'{"roots":{}}', exchange(info=info).caller)
    assert found == {"capabilities": {"roots": {}}, "clientInfo": shown}


# Servers that refuse `initialize`

BY_HAND = {"initialize", "server/discover"}
both_ways = pytest.mark.parametrize("shared", [True, False], ids=["process", "http"])


async def next_server(place: Scene) -> Server:
    """Return the server's side of the next connection, before its first request."""
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
async def test_a_server_of_both_eras_that_refuses_a_handshake_is_not_used_as_stateless(
    code: int, shared: bool
) -> None:
    async with scene(quiet=BY_HAND, shared=shared) as place:
        client = await place.client()
        answer = asyncio.ensure_future(client.initialize())
        server = await next_server(place)
        server.refuse(await server.method("initialize"), code, "this client is not allowed")
        if not shared:
            server = await next_server(place)
        server.reply(await server.method("server/discover"), discovered(HANDSHAKE, STATELESS))
        error = (await answer)["error"]
        assert error == {"code": code, "message": "this client is not allowed"}
        other = await place.client()
        opened = asyncio.ensure_future(other.initialize())
        server = await next_server(place)
        said = {"protocolVersion": HANDSHAKE, "capabilities": {}}
        info = {"name": "raw", "version": "1"}
        server.reply(await server.method("initialize"), {**said, "serverInfo": info})
        assert (await opened)["result"]["serverInfo"] == info


@both_ways
async def test_a_server_that_lists_handshake_versions_is_not_probed(shared: bool) -> None:
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
async def test_a_server_without_a_handshake_is_recognized_by_every_error_code(
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
        assert place.relay.pool.opener.speaks_handshake is False


@both_ways
@pytest.mark.parametrize("end", ["silent", "closed"])
async def test_the_refusal_is_returned_if_the_probe_gets_no_response(
    shared: bool, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_opener, "PROBE_TIMEOUT", 0.05)
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
