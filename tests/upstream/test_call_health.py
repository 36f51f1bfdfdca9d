"""Counts, latency and the circuit breaker of calls to one server."""

import asyncio
import json
from typing import Any, get_args

import pytest

from fairlead.client.server_entry import read_entry
from fairlead.config.server_spec import ServerSpec
from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import (
    ChannelClosed,
    ConnectFailed,
    HttpError,
    LocalResourceError,
    RequestTimeout,
    RpcError,
    ServerBusy,
)
from fairlead.relay.client_session import ClientSession
from fairlead.relay.relay import Relay
from fairlead.relay.replicas import Replicas
from fairlead.upstream.call_health import CallHealth, _is_failure
from fairlead.upstream.connection_keeper import State
from fairlead.upstream.starts.start_limiter import StartLimiter
from fairlead.upstream.startup_wait import StartupWait, StillStarting
from fairlead.upstream.upstream import Upstream
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime

HTTP = {"type": "http", "url": "http://127.0.0.1:1/mcp"}
PROCESS = {"command": "x"}


class FakeRelay(Relay):
    """A fake relay that needs two seconds for each request."""

    outcome: bytes | BaseException = b"{}"

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self.forwarded = 0

    async def answer(self, exchange: Any, session: ClientSession | None) -> Any:
        self.forwarded += 1
        await asyncio.sleep(2)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Place:
    """A relay for an upstream that is not started."""

    def __init__(self, entry: dict[str, Any] | None = None) -> None:
        spec, settings = ServerSpec(entry=read_entry(entry or HTTP)), UpstreamSettings()
        self.upstream = Upstream("red", spec, settings, starts=StartLimiter())
        self.health = self.upstream.health = CallHealth(
            "red", is_process=self.upstream.is_process, failure_threshold=2, reset_timeout=30
        )
        self.relay = FakeRelay(self.upstream)

    async def ask(self, method: str = "tools/call") -> Any:
        return await Replicas("red", [self.relay]).answer(exchange(method, {}), None)

    async def fail(self, error: BaseException) -> None:
        self.relay.outcome = error
        with pytest.raises(BaseException) as caught:
            await self.ask()
        assert isinstance(caught.value, RpcError | type(error))


async def test_calls_to_a_server_are_counted_and_timed(virtual_time: VirtualTime) -> None:
    place = Place()
    one = place.health
    assert (one.breaker.name, one.calls, one.errors, one.latency) == ("red", 0, 0, None)
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
async def test_a_cancelled_call_does_not_count_as_an_error(
    virtual_time: VirtualTime, outcome: BaseException, errors: int, entry: dict[str, Any]
) -> None:
    place = Place(entry)
    await place.fail(outcome)
    assert (place.health.calls, place.health.errors) == (1, errors)
    assert place.health.latency == 2.0


async def test_calls_to_a_server_that_fails_too_often_are_rejected(
    virtual_time: VirtualTime,
) -> None:
    place = Place()
    place.upstream.state = "connected"
    for _ in range(2):
        await place.fail(ChannelClosed("x"))
    assert place.relay.rank == 3
    with pytest.raises(RpcError, match="failed too often"):
        await place.ask()
    assert (place.relay.forwarded, place.health.calls) == (2, 2)
    place.relay.outcome = b"{}"
    # listen streams are neither rejected nor counted as calls
    assert await place.ask("subscriptions/listen") == b"{}"
    assert (place.health.calls, place.relay.rank) == (2, 3)


async def test_a_failed_listen_stream_does_not_count_as_a_failed_call(
    virtual_time: VirtualTime,
) -> None:
    place = Place()
    place.relay.outcome = ChannelClosed("x", delivered=True)
    for _ in range(3):
        assert (
            json.loads(bytes(await place.ask("subscriptions/listen")))["resultType"] == "complete"
        )
    one = place.health
    assert (one.calls, one.errors, one.latency, one.breaker.state) == (0, 0, None, "closed")


@pytest.mark.parametrize(
    ("entry", "error", "counted"),
    [
        (PROCESS, ChannelClosed("x"), False),
        (PROCESS, ConnectFailed("x"), False),
        (PROCESS, RequestTimeout(5.0, "tools/call"), False),
        (HTTP, ChannelClosed("x"), True),
        (HTTP, ConnectFailed("x"), True),
        (HTTP, HttpError(500), True),
        (HTTP, RequestTimeout(5.0, "tools/call"), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_crashes_of_one_clients_process_do_not_block_other_clients(
    virtual_time: VirtualTime, entry: dict[str, Any], error: Exception, counted: bool
) -> None:
    place = Place(entry)
    for _ in range(2):
        await place.fail(error)
    assert place.health.breaker.state == ("open" if counted else "closed")


RANKS = {"connected": 0, "connecting": 1, "reconnecting": 1}


@pytest.mark.parametrize("state", get_args(State))
async def test_the_rank_of_a_relay_depends_on_the_state_of_its_upstream(state: State) -> None:
    place = Place()
    place.upstream.state = state
    assert place.relay.rank == RANKS.get(state, 2)


async def test_closing_a_relay_does_not_close_the_connections_of_its_upstream() -> None:
    place = Place()
    await Relay(place.upstream).close()
    assert (place.upstream.state, place.upstream.pool.opener.closed) == ("idle", False)


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ChannelClosed("x"), True),
        (ConnectFailed("x"), True),
        (HttpError(500), True),
        (HttpError(404), True),
        *((HttpError(status), False) for status in (400, 405, 406, 411, 413, 414, 415)),
        *((HttpError(status), False) for status in (417, 422, 431)),
        (StillStarting(StartupWait(1.0, 0.0)), False),
        (ServerBusy("x", public="x"), False),
        (LocalResourceError("x", "memory"), False),
        (RpcError(5, "no"), False),
        (ZeroDivisionError(), False),
    ],
)
def test_only_failures_of_the_server_itself_are_counted(error: Exception, counts: bool) -> None:
    assert _is_failure(error) is counts
