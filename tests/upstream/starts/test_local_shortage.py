"""Shortages of this machine: the delay of starts, and the end of a shortage."""

import asyncio
import logging

import pytest

from fairlead.errors import LocalResourceError
from fairlead.upstream.starts.local_shortage import FORGOTTEN_AFTER, LocalShortage
from fairlead.upstream.starts.start_limiter import StartLimiter
from tests.support.virtual_time import VirtualTime

ERROR = LocalResourceError("no process", "file descriptors")


async def test_the_delay_of_starts_grows_until_one_succeeds(virtual_time: VirtualTime) -> None:
    shortage = LocalShortage()
    pauses = []
    for _ in range(8):
        shortage.report(ERROR)
        shortage.report(ERROR)  # a report of another server at the same time causes no second pause
        began = virtual_time.now
        await shortage.wait()
        pauses.append(virtual_time.now - began)
    for pause, longest in zip(pauses, [1, 2, 4, 8, 16, 30, 30, 30], strict=True):
        assert 0.75 * longest <= pause <= longest
    assert shortage.error is ERROR
    assert shortage.seconds == pytest.approx(sum(pauses))
    shortage.clear()
    assert shortage.error is None
    assert shortage.seconds == 0.0
    began = virtual_time.now
    await shortage.wait()
    assert virtual_time.now == began
    shortage.report(ERROR)
    await shortage.wait()
    assert virtual_time.now - began <= 1.0


async def test_a_shortage_that_is_not_reported_again_is_over(virtual_time: VirtualTime) -> None:
    shortage = LocalShortage()
    shortage.report(ERROR)
    await asyncio.sleep(FORGOTTEN_AFTER)
    assert shortage.error is ERROR
    await asyncio.sleep(0.5)
    assert shortage.error is None


async def test_a_shortage_is_logged_when_it_begins_and_ends(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    shortage = LocalShortage()
    with caplog.at_level(logging.WARNING, logger="fairlead.upstream"):
        for _ in range(3):
            shortage.report(ERROR)
        shortage.clear()
        shortage.clear()
    assert caplog.messages == [
        "this machine is out of file descriptors; starts are delayed",
        "this machine has enough file descriptors again",
    ]


async def test_no_server_is_started_during_a_shortage(virtual_time: VirtualTime) -> None:
    limiter, began = StartLimiter(4), virtual_time.now
    limiter.shortage.report(ERROR)
    async with limiter.starting():
        assert 0.75 <= virtual_time.now - began <= 1.0
