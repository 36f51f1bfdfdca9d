"""Tests of the delay action with single exchanges."""

import pytest

from fairlead.policy.actions import Delay
from tests.support.single_exchange import Behind, exchange


@pytest.mark.parametrize(("seconds", "jitter"), [(-0.1, 0.0), (0.0, -0.1)])
def test_a_delay_of_negative_seconds_is_rejected(seconds: float, jitter: float) -> None:
    with pytest.raises(ValueError, match="must be at least 0"):
        Delay(seconds, jitter)


async def test_a_delay_varies_by_at_most_its_jitter_and_is_never_negative(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("fairlead.policy.actions.delay.asyncio.sleep", sleep)
    for extreme, expected in ((1.0, 0.7), (-1.0, 0.3)):
        with monkeypatch.context() as patched:
            patched.setattr(
                "fairlead.policy.actions.delay.random.uniform",
                lambda low, high, extreme=extreme: max(low, high) * extreme,
            )
            asked = exchange()
            assert await Delay(0.5, 0.2)(asked, Behind()) == b"{}"
            assert slept.pop() == pytest.approx(expected)
            assert asked.did == [f"delayed {expected:.3g} s"]
            await Delay(0.1, 0.2)(exchange(), Behind())
            assert slept.pop() == pytest.approx(max(0.0, 0.1 + 0.2 * extreme))
