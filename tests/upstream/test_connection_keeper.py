"""The task that opens, replaces, suspends and stops a connection."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    LocalResourceError,
    LoginRequired,
    RetriesExhausted,
)
from fairlead.transport.backoff import Backoff
from fairlead.upstream import connection_keeper as module
from fairlead.upstream.connection_keeper import ConnectionKeeper
from fairlead.upstream.starts.start_limiter import StartLimiter, StartPriority
from tests.support.scripted_upstream import ScriptedClient
from tests.support.virtual_time import VirtualTime


class ScriptedKeeper(ConnectionKeeper):
    """A connection keeper whose attempts end as the test specifies."""

    def __init__(
        self,
        *,
        is_process: bool = True,
        lazy: bool = False,
        idle_close: float = 300.0,
        retries_start: bool = False,
    ) -> None:
        self._idle_close = idle_close
        super().__init__(
            *("red", StartLimiter(1)),
            is_process=is_process,
            lazy=lazy,
            retries_start=retries_start,
        )
        self.errors: list[Exception] = []  # errors that the next attempts raise
        self.always: Exception | None = None  # error that all attempts raise
        self.opening: Callable[[], Awaitable[object]] | None = None
        self.attempts: list[float] = []
        self.priorities: list[StartPriority] = []
        self.clients: list[ScriptedClient] = []
        self.states: list[str] = []
        self.closed_for_good = 0

    @property
    def settings(self) -> UpstreamSettings:
        return UpstreamSettings(idle_close=self._idle_close)

    async def _connect(self) -> Any:
        self._lost = False
        self.attempts.append(time.monotonic())
        self.priorities.append(self._start_priority())
        if self.opening is not None:
            await self.opening()
        if self.errors:
            raise self.errors.pop(0)
        if self.always is not None:
            raise self.always
        client: Any = ScriptedClient()
        self.clients.append(client)
        self.client = client
        return client

    async def _disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await self._end(client.close())
        await self._wait_for_ends()

    async def _closed_for_good(self) -> None:
        self.closed_for_good += 1

    def _state_changed(self) -> None:
        self.states.append(self.state)


async def connected(keeper: ScriptedKeeper) -> ScriptedKeeper:
    keeper.start()
    await keeper.ready()
    return keeper


# Attempts


async def test_a_remote_server_is_retried_with_growing_delays_of_up_to_half_a_minute(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Backoff", partial(Backoff, jitter=0.0))
    keeper = ScriptedKeeper(is_process=False)
    keeper.generation, keeper.always = 1, ConnectFailed("no such host")
    keeper.start()
    await asyncio.sleep(160)
    assert keeper.state == "reconnecting"
    await keeper.stop()
    gaps = [later - earlier for earlier, later in pairwise(keeper.attempts)]
    assert gaps == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30])


async def test_an_attempt_on_request_ends_the_delay_without_increasing_the_next(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Backoff", partial(Backoff, jitter=0.0))
    keeper = ScriptedKeeper(is_process=False)
    keeper.generation, keeper.always = 1, ConnectFailed("no such host")
    keeper.start()
    await asyncio.sleep(2)  # after the attempts at 0, 0.5 and 1.5 seconds
    for _ in range(5):
        with pytest.raises(ConnectFailed, match="no such host"):
            await keeper.ready()
    assert set(keeper.attempts[3:]) == {virtual_time.now}
    assert len(keeper.attempts) == 8
    await asyncio.sleep(3.9)
    assert [at - keeper.attempts[7] for at in keeper.attempts[8:]] == pytest.approx([2.0])
    await keeper.stop()


@pytest.mark.parametrize(
    ("error", "generation", "comes_back"),
    [
        (ConnectFailed("no"), 1, True),
        (ConnectFailed("no"), 0, False),
        (OSError("no"), 1, True),
        (HttpError(503), 1, True),
        (HttpError(401), 1, False),
        (HttpError(403), 1, False),
        (HttpError(402), 1, True),
        (ConfigError("no"), 1, False),
        (ZeroDivisionError(), 1, False),
    ],
    ids=["lost", "never", "os", "503", "401", "403", "402", "config", "bug"],
)
async def test_only_a_server_that_was_connected_before_is_retried(
    virtual_time: VirtualTime, error: Exception, generation: int, comes_back: bool
) -> None:
    keeper = ScriptedKeeper()
    assert keeper._comes_back(error) is False
    keeper.generation, keeper.errors = generation, [error]
    assert keeper._comes_back(error) is comes_back
    keeper.start()
    await asyncio.sleep(100)
    assert keeper.state == ("connected" if comes_back else "failed")
    assert len(keeper.attempts) == (2 if comes_back else 1)
    await keeper.stop()


async def test_a_server_of_a_gateway_that_failed_to_start_is_tried_again(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "Backoff", partial(Backoff, jitter=0.0))
    keeper = ScriptedKeeper(retries_start=True)
    keeper.errors = [ConnectFailed("no such file") for _ in range(8)]
    keeper.start()
    await asyncio.sleep(200)
    began = keeper.attempts[0]
    attempts = [at - began for at in keeper.attempts]
    assert attempts == pytest.approx([0, 2, 6, 14, 30, 62, 122, 182])
    assert keeper.states == ["connecting", *["failed"] * 8]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(ConnectFailed, match='server "red" is not connected: no such file'):
        await keeper.ready()
    await asyncio.sleep(100)
    assert (keeper.state, len(keeper.attempts)) == ("connected", 9)
    keeper.lose(await keeper.ready(), ConnectFailed("exited"))
    await asyncio.sleep(1)
    assert (keeper.state, len(keeper.attempts)) == ("connected", 10)
    await keeper.stop()


@pytest.mark.parametrize(
    "error", [ConfigError("wrong"), HttpError(401), HttpError(403), LoginRequired("log in")]
)
async def test_a_server_of_a_gateway_is_not_tried_again_if_it_needs_a_change(
    virtual_time: VirtualTime, error: FairleadError
) -> None:
    keeper = ScriptedKeeper(retries_start=True)
    keeper.errors = [error]
    keeper.start()
    await asyncio.sleep(1000)
    assert (keeper.state, len(keeper.attempts)) == ("failed", 1)
    await keeper.stop()


@pytest.mark.parametrize("error", [ConnectFailed("no such file"), ConfigError("wrong")])
async def test_a_server_that_failed_is_connected_again_on_request(
    virtual_time: VirtualTime, error: FairleadError
) -> None:
    keeper = ScriptedKeeper()
    keeper.errors = [error]
    keeper.start()
    await asyncio.sleep(100)
    assert (keeper.state, keeper.error, keeper.settled.is_set()) == ("failed", error, True)
    with pytest.raises(ConnectFailed, match=f'server "red" is not connected: {error}') as why:
        await keeper.ready()
    assert why.value.__cause__ is error
    with pytest.raises(ConnectFailed) as other:
        await keeper.ready()
    # Reusing the exception would extend its traceback each time.
    assert other.value is not why.value
    await keeper.reconnect()
    assert (keeper.state, keeper.error) == ("connected", None)
    await keeper.stop()


async def test_all_waiters_receive_the_outcome_of_the_attempt(virtual_time: VirtualTime) -> None:
    for error in (ConnectFailed("no such file"), None):
        keeper = ScriptedKeeper()
        keeper.opening = lambda: asyncio.sleep(1)
        keeper.errors = [] if error is None else [error]
        keeper.start()
        waiting = (keeper.ready() for _ in range(3))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        if error is None:
            assert outcomes == 3 * keeper.clients
        else:
            texts = [str(outcome) for outcome in outcomes]
            assert texts == 3 * ['server "red" is not connected: no such file']
        assert (len(keeper.attempts), keeper._waiting) == (1, set())
        await keeper.stop()


@pytest.mark.parametrize(
    ("generation", "requested", "priority"),
    [
        (0, False, StartPriority.START_UP),
        (1, False, StartPriority.RECONNECT),
        (0, True, StartPriority.CALL),
        (1, True, StartPriority.CALL),
    ],
)
async def test_a_start_that_a_request_waits_for_has_priority(
    virtual_time: VirtualTime, generation: int, requested: bool, priority: StartPriority
) -> None:
    keeper = ScriptedKeeper()
    keeper.generation = generation
    keeper.start()
    if requested:
        await keeper.ready()
    else:
        await asyncio.sleep(1)
    assert keeper.priorities == [priority]
    await keeper.stop()


# Crashes and shortages


@pytest.mark.parametrize(
    ("seconds", "suspended"),
    [
        ([0, 6, 6, 6, 6, 6], True),  # the sixth loss occurs within 30 seconds
        ([0, 6, 6, 6, 6, 6.1], False),
        ([0, 1, 1, 1, 1], False),
    ],
)
async def test_six_losses_within_half_a_minute_are_a_crash_loop(
    virtual_time: VirtualTime, seconds: list[float], suspended: bool
) -> None:
    keeper = ScriptedKeeper()
    crashes = False
    for gap in seconds:
        virtual_time.now += gap
        assert not crashes
        crashes = keeper._crashes()
    assert crashes is suspended


async def test_a_crash_loop_suspends_a_process_until_a_manual_reconnect(
    virtual_time: VirtualTime,
) -> None:
    keeper = ScriptedKeeper()
    keeper.generation, keeper.always = 1, ConnectFailed("it crashed", exit_code=1)
    keeper.start()
    await asyncio.sleep(600)
    assert keeper.state == "suspended"
    assert len(keeper.attempts) == 6
    error = keeper.error
    assert isinstance(error, ConnectFailed)
    assert str(error) == ("suspended after more than 5 losses within 30 s; last error: it crashed")
    assert error.public == (
        "failed more than 5 times within 30 s; the last time it exited with code 1 during start-up"
    )
    with pytest.raises(ConnectFailed, match="suspended after more than 5 losses"):
        await keeper.ready()
    assert len(keeper.attempts) == 6
    keeper.always = None
    await keeper.reconnect()
    assert keeper.state == "connected"
    assert not keeper._losses
    await keeper.stop()
    assert keeper.state == "stopped"


@pytest.mark.parametrize("is_process", [True, False])
async def test_a_server_that_is_lost_repeatedly_is_suspended(
    virtual_time: VirtualTime, is_process: bool
) -> None:
    keeper = await connected(ScriptedKeeper(is_process=is_process))
    for generation in range(1, 7):
        assert (keeper.generation, keeper.state) == (generation, "connected")
        client: Any = keeper.clients[-1]
        keeper.lose(client, ChannelClosed("gone"))
        await asyncio.sleep(1)
    assert keeper.state == "suspended"
    assert [client.closed for client in keeper.clients] == 6 * [1]
    await keeper.stop()


@pytest.mark.parametrize("generation", [0, 1])
async def test_a_local_resource_shortage_does_not_count_as_a_loss_or_failure(
    virtual_time: VirtualTime, generation: int
) -> None:
    keeper = ScriptedKeeper()
    shortage = LocalResourceError("no pipe", "file descriptors")
    keeper.generation, keeper.always = generation, shortage
    keeper.start()
    await asyncio.wait_for(keeper.settled.wait(), 5)
    with pytest.raises(ConnectFailed, match="no pipe"):
        await keeper.ready()
    await asyncio.sleep(300)
    assert len(keeper.attempts) > 8
    assert keeper.state == "reconnecting"
    assert not keeper._losses
    assert keeper.starts.shortage.error is shortage
    assert keeper.starts.shortage.seconds >= 300
    await keeper.stop()


# Losses


async def test_the_loss_of_a_connection_is_reported_only_once(virtual_time: VirtualTime) -> None:
    keeper = await connected(ScriptedKeeper())
    client: Any = keeper.clients[0]
    other: Any = ScriptedClient()
    keeper.lose(other, None)
    assert keeper.state == "connected"
    keeper.states.clear()
    why = ChannelClosed("gone")
    keeper.lose(client, why)
    keeper.lose(client, ChannelClosed("again"))
    assert (keeper.state, keeper.error, keeper.states) == ("reconnecting", why, ["reconnecting"])
    await keeper.ready()
    assert (keeper.generation, client.closed) == (2, 1)
    await keeper.stop()


async def test_a_local_resource_shortage_does_not_end_an_open_connection(
    virtual_time: VirtualTime,
) -> None:
    keeper = await connected(ScriptedKeeper())
    client: Any = keeper.clients[0]
    shortage = LocalResourceError("too many", "file descriptors")
    exhausted = RetriesExhausted("tired")
    exhausted.__cause__ = shortage
    for error in (shortage, exhausted):
        keeper.starts.shortage.clear()
        keeper.lose(client, error)
        assert keeper.state == "connected"
        assert keeper.starts.shortage.error is shortage
    client.connected = False
    keeper.lose(client, shortage)
    assert keeper.state == "reconnecting"
    await keeper.stop()


async def test_a_connected_server_can_be_reconnected(virtual_time: VirtualTime) -> None:
    keeper = await connected(ScriptedKeeper())
    await keeper.reconnect()
    first, second = keeper.clients
    assert (first.closed, second.closed) == (1, 0)
    assert (keeper.state, keeper.generation, keeper.client) == ("connected", 2, second)
    await keeper.stop()


async def test_only_the_current_connection_of_a_process_is_checked_for_a_hang(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_process in (True, False):
        checked: list[Any] = []
        keeper = await connected(ScriptedKeeper(is_process=is_process))
        monkeypatch.setattr(keeper._liveness, "check_hang", lambda *of: checked.append(of))  # noqa: B023
        other: Any = ScriptedClient()
        keeper.check_hang(None)
        keeper.check_hang(other)
        assert checked == []
        keeper.check_hang(keeper.client)
        assert len(checked) == is_process
        keeper._lost = True
        keeper.check_hang(keeper.client)
        assert len(checked) == is_process
        keeper._lost = False
        await keeper.stop()


async def test_a_process_that_hangs_is_replaced_and_pending_requests_get_the_reason(
    virtual_time: VirtualTime,
) -> None:
    keeper = await connected(ScriptedKeeper())
    client: Any = keeper.clients[0]
    keeper._hangs(client, "hangs: no response")
    error = keeper.error
    assert keeper.state == "reconnecting"
    assert isinstance(error, ConnectFailed)
    assert (str(error), error.public) == ("the server hangs: no response", "hangs: no response")
    await keeper.ready()
    assert client.transport.peer.reasons == [
        ("the server hangs: no response", "hangs: no response")
    ]
    assert (client.closed, len(keeper.clients), keeper.state) == (1, 2, "connected")
    await keeper.stop()


# Idle servers


async def test_a_lazy_server_that_is_not_used_is_stopped_until_it_is_needed(
    virtual_time: VirtualTime,
) -> None:
    keeper = await connected(ScriptedKeeper(lazy=True, idle_close=100.0))
    await asyncio.sleep(99)
    with keeper.in_use():
        assert keeper.busy
        await asyncio.sleep(150)
        assert keeper.state == "connected"
    assert not keeper.busy
    await asyncio.sleep(99)
    assert keeper.state == "connected"
    await asyncio.sleep(2)
    assert (keeper.state, keeper.clients[0].closed, keeper.client) == ("idle", 1, None)
    assert keeper.settled.is_set()
    keeper.states.clear()
    await keeper.ready()
    assert (keeper.states, keeper.generation) == (["connecting", "connected"], 2)
    await keeper.stop()


async def test_a_server_that_is_not_lazy_is_never_stopped_as_idle(
    virtual_time: VirtualTime,
) -> None:
    keeper = await connected(ScriptedKeeper(idle_close=100.0))
    await asyncio.sleep(10_000)
    assert keeper.state == "connected"
    await keeper.stop()


async def test_a_lazy_server_is_not_connected_before_it_is_needed(
    virtual_time: VirtualTime,
) -> None:
    keeper = ScriptedKeeper(lazy=True)
    keeper.start(now=False)
    await asyncio.sleep(10)
    assert (keeper.state, keeper.clients, keeper.settled.is_set()) == ("idle", [], True)
    await keeper.ready()
    assert keeper.states == ["connecting", "connected"]
    await keeper.stop()


async def test_only_a_response_updates_the_time_of_the_last_response(
    virtual_time: VirtualTime,
) -> None:
    keeper = ScriptedKeeper()
    answered = keeper.answered
    await asyncio.sleep(5)
    with pytest.raises(ZeroDivisionError), keeper.in_use():
        raise ZeroDivisionError
    assert (keeper.answered, keeper.busy) == (answered, False)
    with keeper.in_use():
        await asyncio.sleep(5)
    assert keeper.answered == virtual_time.now


# Stopping


async def test_a_stopped_server_is_not_restarted(virtual_time: VirtualTime) -> None:
    keeper = await connected(ScriptedKeeper())
    await keeper.stop()
    assert (keeper.state, keeper.client, keeper.clients[0].closed) == ("stopped", None, 1)
    assert (keeper.closed_for_good, keeper._ending) == (1, set())
    with pytest.raises(
        ConnectFailed, match='server "red" is not connected: the server was disconnected'
    ):
        await keeper.ready()
    with pytest.raises(ConnectFailed, match="the server was disconnected"):
        await keeper.reconnect()
    keeper._become("connected")
    assert keeper.state == "stopped"


async def test_stopping_during_an_attempt_fails_the_waiting_requests(
    virtual_time: VirtualTime,
) -> None:
    keeper = ScriptedKeeper()
    keeper.opening = asyncio.Event().wait
    keeper.start()
    waiting = asyncio.ensure_future(keeper.ready())
    await asyncio.sleep(1)
    began = virtual_time.now
    await keeper.stop()
    with pytest.raises(ConnectFailed, match="the server was disconnected"):
        await waiting
    assert (virtual_time.now, keeper.clients, keeper.settled.is_set()) == (began, [], True)


async def test_a_stop_is_completed_even_if_its_caller_is_cancelled(
    virtual_time: VirtualTime,
) -> None:
    keeper = await connected(ScriptedKeeper())
    keeper.clients[0].ends = lambda: asyncio.sleep(3)
    stopping = asyncio.ensure_future(keeper.stop())
    await asyncio.sleep(1)
    stopping.cancel()
    await asyncio.wait((stopping,))
    assert (stopping.cancelled(), len(keeper._ending)) == (True, 2)
    await asyncio.sleep(3)
    assert (keeper.clients[0].closed, keeper._ending) == (1, set())


async def test_stopping_waits_ten_seconds_for_a_connection_that_does_not_close(
    virtual_time: VirtualTime,
) -> None:
    keeper, ended = await connected(ScriptedKeeper()), asyncio.Event()
    keeper.clients[0].ends = ended.wait
    began = virtual_time.now
    await keeper.stop()
    assert virtual_time.now == began + 10.0
    ended.set()
    await asyncio.wait(keeper._ending)


async def test_a_new_connection_waits_until_the_old_one_is_closed(
    virtual_time: VirtualTime,
) -> None:
    keeper = await connected(ScriptedKeeper())
    keeper.clients[0].ends = lambda: asyncio.sleep(5)
    began = virtual_time.now
    await keeper.reconnect()
    assert keeper.attempts[1] == began + 5.0
    await keeper.stop()


async def test_a_failure_to_close_a_connection_is_logged(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = await connected(ScriptedKeeper())

    async def fail() -> None:
        raise OSError("the pipe is broken")

    keeper.clients[0].ends = fail
    await keeper.stop()
    assert "red: closing the connection failed: the pipe is broken" in caplog.text


async def test_requests_fail_when_the_owner_task_ends(virtual_time: VirtualTime) -> None:
    keeper = await connected(ScriptedKeeper())
    assert keeper._owner is not None
    keeper._owner.cancel()
    await asyncio.sleep(1)
    assert (keeper.state, str(keeper.error)) == ("failed", "the owner task was cancelled")
    assert keeper._owner is None
    with pytest.raises(ConnectFailed, match="the owner task was cancelled"):
        await keeper.ready()
    await keeper.stop()
    assert [client.closed for client in keeper.clients] == [1]


async def test_a_server_whose_owner_task_ended_can_be_reconnected(
    virtual_time: VirtualTime,
) -> None:
    keeper = ScriptedKeeper()
    keeper.start()
    assert keeper._owner is not None
    keeper._owner.cancel()
    await asyncio.sleep(1)
    assert keeper.state == "failed"
    await keeper.reconnect()
    assert keeper.state == "connected"
    await keeper.stop()


async def test_only_connections_after_a_loss_are_counted_as_reconnections(
    virtual_time: VirtualTime,
) -> None:
    keeper = await connected(ScriptedKeeper(lazy=True, idle_close=100.0))
    await asyncio.sleep(200)
    await keeper.ready()  # the connection was closed because it was idle
    await keeper.reconnect()
    assert keeper.reconnects == 0
    client: Any = keeper.client
    keeper.lose(client, ChannelClosed("the server crashed"))
    await keeper.ready()
    assert (keeper.reconnects, keeper.generation) == (1, 4)
    await keeper.stop()


async def test_a_warning_about_a_server_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    keeper = ScriptedKeeper()
    for reason in ("is odd", "is odd", "is slow"):
        keeper.warn_once(reason)
    assert caplog.messages == ["red is odd", "red is slow"]
