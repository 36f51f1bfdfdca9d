"""Tests of the delays between reconnection attempts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.transport.backoff import Backoff, exponential


def test_delays_double_up_to_the_maximum_and_start_again_after_a_reset() -> None:
    backoff = Backoff(0.5, 3.0, jitter=0.0)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.5


def test_a_delay_that_was_interrupted_does_not_increase_the_next_one() -> None:
    backoff = Backoff(0.5, 3.0, jitter=0.0)
    assert backoff.next() == 0.5
    backoff.undo()
    assert [backoff.next(), backoff.next()] == [0.5, 1.0]
    backoff.reset()
    backoff.undo()
    assert backoff.next() == 0.5


def test_delays_start_again_after_a_connection_that_lasted_longer_than_the_last_delay() -> None:
    backoff = Backoff(1.0, 30.0, jitter=0.0)
    assert [backoff.after(0.0) for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert backoff.after(29.9) == 30.0
    assert backoff.after(30.0) == 1.0
    assert backoff.after(1.0) == 1.0
    assert backoff.after(0.9) == 2.0


@pytest.mark.parametrize("jitter", [0.0, 0.25])
def test_jitter_shortens_a_retry_delay(jitter: float) -> None:
    delays = {Backoff(2.0, 9.0, jitter=jitter).next() for _ in range(50)}
    assert all(2.0 * (1.0 - jitter) <= delay <= 2.0 for delay in delays)
    assert (len(delays) > 1) == bool(jitter)


@given(st.floats(0.001, 100), st.integers(0, 100_000), st.floats(0.001, 100))
def test_no_retry_delay_exceeds_the_maximum(initial: float, attempt: int, maximum: float) -> None:
    delay = exponential(initial, attempt, maximum)
    assert 0 < delay <= maximum
    assert delay <= exponential(initial, attempt + 1, maximum)


def test_the_default_jitter_of_a_delay_is_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return low

    monkeypatch.setattr("fairlead.transport.backoff.random.uniform", uniform)
    assert Backoff(2.0, 9.0).next() == 1.5
    assert Backoff(2.0, 9.0, jitter=0.5).next() == 1.0
    assert ranges == [(0.75, 1.0), (0.5, 1.0)]
