"""Counts of lost processes by connection key."""

import pytest

from fairlead.errors import ConnectFailed
from fairlead.upstream.connection import loss_counter
from fairlead.upstream.connection.connection_key import ConnectionKey
from fairlead.upstream.connection.loss_counter import LossCounter
from tests.support.virtual_time import VirtualTime

ONE, TWO, THREE = (ConnectionKey(False, version) for version in "123")


def suspended(losses: LossCounter) -> list[str]:
    """Return the revisions of the suspended keys."""
    return [one["revision"] for one in losses.describe_suspended()]


async def test_more_than_five_losses_within_thirty_seconds_suspend_a_key(
    virtual_time: VirtualTime,
) -> None:
    losses = LossCounter("red")
    for _ in range(5):
        losses.count(ONE)
        losses.count(TWO)
        virtual_time.now += 1
    losses.check(ONE, 0)
    losses.count(ONE)
    with pytest.raises(ConnectFailed) as refused:
        losses.check(ONE, 0)
    assert str(refused.value) == "red failed more than 5 times within 30 s; try again in 25 s"
    assert refused.value.retry_after == 25
    losses.check(TWO, 0)
    assert suspended(losses) == ["1"]


async def test_the_description_of_a_suspended_key_has_its_session_property(
    virtual_time: VirtualTime,
) -> None:
    losses = LossCounter("red")
    for _ in range(6):
        losses.count(ConnectionKey(False, "1", b'{"roots":{}}', session=4))
    assert losses.describe_suspended() == [
        {
            "revision": "1",
            "capabilities": {"roots": {}},
            "principal": None,
            "in_session": False,
            "exclusive": True,
            "losses": 6,
            "seconds": 30.0,
        }
    ]


async def test_losses_of_processes_are_forgotten_after_a_while(virtual_time: VirtualTime) -> None:
    losses = LossCounter("red")
    for _ in range(7):
        losses.count(ONE)
    virtual_time.now += 30.1
    assert suspended(losses) == []
    losses.check(ONE, 0)
    losses.count(ONE)
    losses.check(ONE, 0)


async def test_unreported_losses_count_only_in_addition_to_reported_ones(
    virtual_time: VirtualTime,
) -> None:
    losses = LossCounter("red")
    losses.check(ONE, 9)
    for _ in range(4):
        losses.count(ONE)
    losses.check(ONE, 1)
    with pytest.raises(ConnectFailed):
        losses.check(ONE, 2)


async def test_a_manual_reconnect_ends_all_suspensions(virtual_time: VirtualTime) -> None:
    losses = LossCounter("red")
    for _ in range(6):
        losses.count(ONE)
    losses.clear()
    losses.check(ONE, 0)
    assert suspended(losses) == []


async def test_losses_of_the_keys_without_a_recent_loss_are_forgotten_first(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_counter, "MOST_KEYS", 2)
    losses = LossCounter("red")
    for _ in range(3):
        losses.count(ONE)
        losses.count(TWO)
    losses.count(ONE)
    losses.count(THREE)
    for _ in range(2):
        losses.count(ONE)
    assert list(losses._losses) == [THREE, ONE]
    assert suspended(losses) == ["1"]
