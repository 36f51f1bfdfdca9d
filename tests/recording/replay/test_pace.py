"""Tests of the pace of a replay: recorded, faster, without delays or step by step."""

import asyncio

import pytest

from fairlead.recording.replay.pace import Pace
from tests.support.virtual_time import VirtualTime


async def turns() -> None:
    """Run all ready callbacks."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("speed", "seconds", "took"),
    [(None, 5, 0), (1, 5, 5), (2, 5, 2.5), (0.5, 5, 10), (1, 0, 0), (1, -1, 0)],
)
async def test_the_replay_speed_divides_the_recorded_delays(
    virtual_time: VirtualTime, speed: float | None, seconds: float, took: float
) -> None:
    begun = virtual_time.now
    await Pace(speed).wait(seconds)
    assert virtual_time.now - begun == pytest.approx(took)


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_replay_speed_must_be_positive_and_finite(speed: float) -> None:
    with pytest.raises(ValueError, match="^`speed` must be a finite number greater than 0, not "):
        Pace(speed)


async def test_each_step_of_a_replay_releases_one_message() -> None:
    pace = Pace(stepped=True)
    tasks = [asyncio.ensure_future(pace.wait(0)) for _ in range(4)]
    await turns()
    assert pace.waiting == 4
    pace.step()
    await turns()
    assert ([task.done() for task in tasks], pace.waiting) == ([True, False, False, False], 3)
    pace.resume()
    await turns()
    assert pace.waiting == 3, "resume does not release stepped messages"
    pace.step(5)
    await turns()
    assert pace.waiting == 0
    for _ in range(2):  # two of the five granted steps are left
        await pace.wait(0)
    last = asyncio.ensure_future(pace.wait(0))
    await turns()
    assert pace.waiting == 1
    pace.step()
    await last


async def test_a_paused_replay_sends_one_message_per_step() -> None:
    pace = Pace()
    pace.pause()
    tasks = [asyncio.ensure_future(pace.wait(0)) for _ in range(3)]
    await turns()
    assert pace.waiting == 3
    pace.step()
    await turns()
    assert [task.done() for task in tasks] == [True, False, False]
    pace.resume()
    await asyncio.gather(*tasks)
    await pace.wait(0)
    assert pace.waiting == 0


async def test_a_cancelled_wait_does_not_use_up_a_step() -> None:
    pace = Pace(stepped=True)
    first, second = (asyncio.ensure_future(pace.wait(0)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    assert pace.waiting == 1
    pace.step()
    await second
