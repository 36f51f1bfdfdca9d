"""One of the equal servers behind a name: what is counted of its calls, and how it does."""

import asyncio
from typing import Any, get_args

import pytest

from fairlead.client.server_entry import read_entry
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import (
    ChannelClosed,
    CircuitOpenError,
    ConnectFailed,
    HttpError,
    RequestTimeout,
    RpcError,
)
from fairlead.gateway.backends.replica import Replica
from fairlead.gateway.clients.client_sessions import ConnectedClient
from fairlead.interceptor.circuit_breaker import CircuitBreaker
from fairlead.protocol.identity.principal import ANONYMOUS
from fairlead.relay.client_session import ClientSession
from fairlead.relay.relay import Relay
from fairlead.upstream.connection_keeper import State
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.upstream import Upstream
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

HTTP = {"type": "http", "url": "http://127.0.0.1:1/mcp"}
PROCESS = {"command": "x"}


class FakeRelay(Relay):
    """A relay that takes two seconds for each request."""

    outcome: bytes | BaseException = b"{}"

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self.sessions: list[ClientSession | None] = []
        self.ended: list[Any] = []

    async def answer(self, exchange: Any, session: ClientSession | None) -> Any:
        self.sessions.append(session)
        await asyncio.sleep(2)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome

    def hang_up(self, edge: object | None = None) -> None:
        self.ended.append(edge)

    async def end_streams(self) -> None:
        self.ended.append("all")

    async def close(self) -> None:
        self.ended.append("relay")


class Place:
    """A replica whose upstream is never started."""

    def __init__(self, entry: dict[str, Any] | None = None) -> None:
        spec, settings = ServerSpec(entry=read_entry(entry or HTTP)), UpstreamSettings()
        self.upstream = Upstream("red", spec, settings, starts=StartLimiter())
        self.relay = FakeRelay(self.upstream)
        breaker = CircuitBreaker(failure_threshold=2, reset_timeout=30, name="red")
        self.replica = Replica(self.upstream, self.relay, breaker)

    async def ask(
        self, method: str = "tools/call", client: ConnectedClient | None = None
    ) -> object:
        return await self.replica.answer(exchange(method, {}), client)

    async def fail(self, error: BaseException) -> None:
        self.relay.outcome = error
        with pytest.raises(type(error)):
            await self.ask()


async def test_calls_are_counted_and_timed(virtual_time: VirtualTime) -> None:
    place = Place()
    one = place.replica
    assert (one.name, one.calls, one.errors, one.latency) == ("red", 0, 0, None)
    assert await place.ask() == b"{}"
    assert (one.calls, one.errors, one.latency) == (1, 0, 2.0)
    one.latency = 12.0
    await place.ask()
    assert one.latency == pytest.approx(11.0)
    assert (one.calls, one.errors) == (2, 0)


@pytest.mark.parametrize(
    ("outcome", "errors"),
    [(RpcError(5, "no"), 1), (ChannelClosed("x"), 1), (asyncio.CancelledError(), 0)],
    ids=["refused", "lost", "cancelled"],
)
@pytest.mark.parametrize("entry", [HTTP, PROCESS], ids=["http", "process"])
async def test_a_cancelled_call_is_not_an_error(
    virtual_time: VirtualTime, outcome: BaseException, errors: int, entry: dict[str, Any]
) -> None:
    place = Place(entry)
    await place.fail(outcome)
    assert (place.replica.calls, place.replica.errors) == (1, errors)
    assert place.replica.latency == 2.0


async def test_a_server_that_fails_too_often_gets_no_calls(virtual_time: VirtualTime) -> None:
    place = Place()
    place.upstream.state = "connected"
    for _ in range(2):
        await place.fail(ChannelClosed("x"))
    assert place.replica.rank == 3
    with pytest.raises(CircuitOpenError):
        await place.ask()
    assert (len(place.relay.sessions), place.replica.calls) == (2, 2)
    place.relay.outcome = b"{}"
    assert await place.ask("subscriptions/listen") == b"{}"  # takes as long as the client likes
    assert (place.replica.calls, place.replica.rank) == (2, 3)


async def test_a_failed_stream_is_not_counted(virtual_time: VirtualTime) -> None:
    place = Place()
    place.relay.outcome = ChannelClosed("x")
    for _ in range(3):
        with pytest.raises(ChannelClosed):
            await place.ask("subscriptions/listen")
    one = place.replica
    assert (one.calls, one.errors, one.latency, one.breaker.state) == (0, 0, None, "closed")


@pytest.mark.parametrize(
    ("entry", "error", "counted"),
    [
        (PROCESS, ChannelClosed("x"), False),
        (PROCESS, ConnectFailed("x"), False),
        (PROCESS, ZeroDivisionError("x"), True),
        (HTTP, ChannelClosed("x"), True),
        (HTTP, ConnectFailed("x"), True),
        (HTTP, HttpError(500), True),
        (HTTP, RequestTimeout(5.0, "tools/call"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_the_process_of_one_client_does_not_keep_others_from_a_server(
    virtual_time: VirtualTime, entry: dict[str, Any], error: Exception, counted: bool
) -> None:
    place = Place(entry)
    for _ in range(2):
        await place.fail(error)
    assert place.replica.breaker.state == ("open" if counted else "closed")


RANKS = {"connected": 0, "connecting": 1, "reconnecting": 1}


@pytest.mark.parametrize("state", get_args(State))
async def test_the_chances_of_a_call_depend_on_the_state_of_the_server(state: State) -> None:
    place = Place()
    place.upstream.state = state
    assert place.replica.rank == RANKS.get(state, 2)


async def test_a_call_has_the_session_of_its_client_with_this_server(
    virtual_time: VirtualTime,
) -> None:
    place, client = Place(), ConnectedClient(ANONYMOUS, 1.0)
    client.peer = client._outbox = None  # type: ignore[assignment]
    await place.ask(client=client)
    await place.ask("subscriptions/listen", client)
    await place.ask()
    session = client.sessions[place.relay]
    assert place.relay.sessions == [session, session, None]


async def test_streams_end_where_the_server_is_relayed() -> None:
    place = Place()
    place.replica.hang_up("edge")
    await place.replica.end_streams()
    await place.replica.close()
    assert place.relay.ended == ["edge", "all", "relay"]


async def test_the_owner_of_a_server_closes_its_connections() -> None:
    place = Place()
    replica = Replica(place.upstream, Relay(place.upstream), place.replica.breaker)
    await replica.close()
    assert (place.upstream.state, place.upstream.pool.opener.closed) == ("idle", False)
