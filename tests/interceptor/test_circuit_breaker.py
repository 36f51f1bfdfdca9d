"""Tests of the circuit breaker."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.errors import CircuitOpenError, FairleadError, RequestTimeout
from fairlead.interceptor.circuit_breaker import CircuitBreaker, CircuitState

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def fail(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(OSError), breaker:
            raise OSError("down")


def succeed(breaker: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        with breaker:
            pass


def opened(**settings: Any) -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    breaker = CircuitBreaker(clock=clock, **settings)
    fail(breaker, 5)
    assert breaker.state is OPEN
    return breaker, clock


@pytest.mark.covers("OBS-02")
def test_a_circuit_with_default_settings_opens_and_recovers() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock=clock)
    fail(breaker, 4)
    assert breaker.state is CLOSED
    fail(breaker)
    assert breaker.state is OPEN
    clock.now += 29.5
    with pytest.raises(CircuitOpenError, match=r"try again in 0\.5 s") as caught, breaker:
        pytest.fail("the call was admitted")
    assert caught.value.remaining == pytest.approx(0.5)
    assert isinstance(caught.value, FairleadError)
    clock.now += 0.5
    assert breaker.state is HALF_OPEN
    succeed(breaker)
    assert breaker.state is HALF_OPEN
    succeed(breaker)
    assert breaker.state is CLOSED
    fail(breaker, 4)
    assert breaker.state is CLOSED  # the count of failures was reset


@pytest.mark.covers("OBS-02")
def test_only_consecutive_failures_open_the_circuit() -> None:
    breaker = CircuitBreaker(failure_threshold=2)
    for _ in range(5):
        fail(breaker)
        succeed(breaker)
    assert breaker.state is CLOSED


@pytest.mark.covers("OBS-02")
def test_a_failed_probe_opens_the_circuit_again() -> None:
    breaker, clock = opened()
    clock.now += 30
    succeed(breaker)
    fail(breaker)
    assert breaker.state is OPEN
    assert breaker.remaining == 30
    clock.now += 30
    succeed(breaker)
    assert breaker.state is HALF_OPEN  # the earlier success does not count


@pytest.mark.covers("OBS-02")
def test_probes_are_counted_while_they_run_and_released_when_they_finish() -> None:
    breaker, clock = opened(half_open_max_calls=2, success_threshold=3)
    clock.now += 30
    first, second = breaker.admit(), breaker.admit()
    with pytest.raises(CircuitOpenError, match="soon") as caught:
        breaker.admit()
    assert caught.value.remaining == 0
    first.ended()
    first.ended()  # a second outcome is ignored
    third = breaker.admit()
    with pytest.raises(CircuitOpenError):
        breaker.admit()
    second.ended()
    third.ended()
    assert breaker.state is CLOSED


@pytest.mark.covers("OBS-02")
async def test_a_cancelled_probe_is_released_without_counting_as_an_outcome() -> None:
    breaker, clock = opened()
    clock.now += 30
    inside = asyncio.Event()

    async def probe() -> None:
        async with breaker:
            inside.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(5):
        for _ in range(3):
            inside.clear()
            task = asyncio.create_task(probe())
            await inside.wait()
            with pytest.raises(CircuitOpenError):
                await probe()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert breaker.state is HALF_OPEN
    succeed(breaker, 2)
    assert breaker.state is CLOSED


@pytest.mark.covers("OBS-02")
def test_cancelled_calls_do_not_change_the_count_of_failures() -> None:
    breaker = CircuitBreaker(failure_threshold=2)
    for _ in range(5):
        with pytest.raises(asyncio.CancelledError), breaker:
            raise asyncio.CancelledError
    assert breaker.state is CLOSED
    fail(breaker)
    with pytest.raises(asyncio.CancelledError), breaker:
        raise asyncio.CancelledError
    fail(breaker)
    assert breaker.state is OPEN


def test_an_rpc_error_counts_as_success_by_default() -> None:
    breaker = CircuitBreaker(failure_threshold=1)
    with pytest.raises(RpcError), breaker:
        raise RpcError(-32602, "no such thing")
    assert breaker.state is CLOSED
    strict = CircuitBreaker(failure_threshold=1, counts=lambda exc: True)
    with pytest.raises(RpcError), strict:
        raise RpcError(-32602, "no such thing")
    assert strict.state is OPEN


def test_outcomes_of_calls_admitted_before_a_state_change_are_ignored() -> None:
    clock = Clock()
    breaker = CircuitBreaker(failure_threshold=1, clock=clock)
    slow_failure, slow_success = breaker.admit(), breaker.admit()
    fail(breaker)
    clock.now += 10
    slow_failure.ended(OSError())
    assert breaker.remaining == 20  # the timeout does not start again
    clock.now += 20
    probe = breaker.admit()
    slow_success.ended()
    with pytest.raises(CircuitOpenError):
        breaker.admit()  # the trial call is still in progress
    probe.ended()
    succeed(breaker)
    assert breaker.state is CLOSED


async def test_concurrent_probes_report_their_own_outcomes() -> None:
    breaker, clock = opened(half_open_max_calls=2)
    clock.now += 30
    inside, go = asyncio.Barrier(3), asyncio.Event()

    async def call(problem: Exception | None) -> None:
        async with breaker:
            await inside.wait()
            await go.wait()
            if problem is not None:
                raise problem

    async with asyncio.timeout(5):
        tasks = [asyncio.create_task(call(OSError())), asyncio.create_task(call(None))]
        await inside.wait()
        assert breaker.metrics["probes"] == 2
        go.set()
        await asyncio.wait(tasks)
    assert isinstance(tasks[0].exception(), OSError)
    assert breaker.state is OPEN
    assert breaker.metrics["opened"] == 2


def test_two_breakers_may_be_nested_in_any_order() -> None:
    outer, inner = CircuitBreaker(failure_threshold=1), CircuitBreaker(failure_threshold=1)
    with outer, inner, outer:
        pass
    with outer, pytest.raises(OSError), inner:
        raise OSError
    assert (outer.state, inner.state) == (CLOSED, OPEN)


async def test_leaving_a_breaker_context_in_another_task_releases_the_probe() -> None:
    breaker, clock = opened()
    clock.now += 30
    await asyncio.create_task(breaker.__aenter__())
    await breaker.__aexit__(None, None, None)
    succeed(breaker)
    assert breaker.state is CLOSED


def test_metrics_contain_the_state_of_the_breaker_and_reset_clears_the_metrics() -> None:
    breaker, clock = opened(name="files")
    with pytest.raises(CircuitOpenError, match="files failed too often"):
        breaker.admit()
    clock.now += 10
    assert breaker.metrics == {
        "state": "open",
        "remaining": 20.0,
        "failures": 0,
        "probes": 0,
        "refused": 1,
        "opened": 1,
    }
    breaker.reset()
    assert breaker.state is CLOSED
    assert breaker.metrics["refused"] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"failure_threshold": 0},
        {"half_open_max_calls": 0},
        {"success_threshold": 0},
        {"reset_timeout": -1},
    ],
)
def test_invalid_breaker_settings_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        CircuitBreaker(**settings)


@given(
    st.lists(st.sampled_from(["begin", "good", "bad", "cancel", "wait"]), max_size=60),
    st.integers(1, 3),
)
def test_a_circuit_recovers_after_any_sequence_of_calls(steps: list[str], probes: int) -> None:
    clock = Clock()
    breaker = CircuitBreaker(2, 10, probes, 2, clock=clock)
    running = []
    for step in steps:
        if step == "wait":
            clock.now += 5
        elif step == "begin":
            with suppress(CircuitOpenError):
                running.append(breaker.admit())
        elif running:
            outcome = {"good": None, "bad": OSError(), "cancel": asyncio.CancelledError()}
            running.pop(0).ended(outcome[step])
        assert 0 <= breaker.metrics["probes"] <= probes
        assert 0 <= breaker.remaining <= 10
    for admission in running:
        admission.ended(asyncio.CancelledError())
    clock.now += 10
    succeed(breaker, 2)
    assert breaker.state is CLOSED


SERVER = """
import asyncio
from fairlead import MCPServer

server = MCPServer("moody")
calls = 0

@server.tool()
async def work(hang: bool) -> int:
    global calls
    calls += 1
    if hang:
        await asyncio.Event().wait()
    return calls

server.run()
"""


@pytest.mark.covers("OBS-02")
async def test_a_breaker_can_protect_the_calls_of_a_client(tmp_path: Path) -> None:
    program = tmp_path / "moody.py"
    program.write_text(SERVER)
    clock = Clock()
    breaker = CircuitBreaker(failure_threshold=2, name="moody", clock=clock)
    config = MCPClientConfig(max_retries=0)

    async with (
        asyncio.timeout(30),
        MCPClient.connect_stdio([sys.executable, str(program)], config) as client,
    ):

        async def work(*, hang: bool) -> Any:
            async with breaker:
                limit = 0.2 if hang else 10
                result = await client.call_tool("work", {"hang": hang}, timeout=limit)
                return int(result["content"][0]["text"])

        assert await work(hang=False) == 1
        for _ in range(2):
            with pytest.raises(RequestTimeout):
                await work(hang=True)
        with pytest.raises(CircuitOpenError, match=r"moody failed too often; .* in 30\.0 s"):
            await work(hang=False)
        clock.now += 30
        assert await work(hang=False) == 4  # the refused call did not reach the server
        assert await work(hang=False) == 5
        assert breaker.state is CLOSED


def test_a_circuit_is_open_for_exactly_its_timeout() -> None:
    breaker, clock = opened(reset_timeout=10)
    assert breaker.remaining == pytest.approx(10)
    clock.now += 9.9
    assert breaker.state is OPEN
    with pytest.raises(CircuitOpenError) as refused:
        breaker.admit()
    assert refused.value.remaining == pytest.approx(0.1)
    clock.now += 0.1
    assert breaker.state is HALF_OPEN
    assert breaker.remaining == 0.0


def test_entering_a_breaker_context_returns_the_breaker() -> None:
    breaker = CircuitBreaker(name="notes")
    with breaker as entered:
        assert entered is breaker


def test_only_the_first_outcome_of_a_permit_counts() -> None:
    breaker = CircuitBreaker(failure_threshold=2)
    permit = breaker.admit()
    for _ in range(3):
        permit.ended(OSError())
    assert breaker.metrics["failures"] == 1
    assert breaker.state is CLOSED


def test_the_outcome_of_a_block_entered_before_a_state_change_is_ignored() -> None:
    clock = Clock()
    breaker = CircuitBreaker(failure_threshold=1, reset_timeout=10, clock=clock)
    with pytest.raises(OSError), breaker:
        fail(breaker)
        assert breaker.state is OPEN
        clock.now += 10
        assert breaker.state is HALF_OPEN
        raise OSError("late")
    assert breaker.state is HALF_OPEN, "the block was entered before the circuit opened"
