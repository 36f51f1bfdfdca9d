"""Tests of pending requests: progress is delivered before the result, which is set once."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from fairlead.peer.pending_requests import CallbackPending, Pending
from fairlead.wire import Notification


def progress(**params: Any) -> Notification:
    return Notification("notifications/progress", Raw(json.dumps(params).encode()))


class Waiting:
    """A request whose callback may be slow."""

    def __init__(self, *, slow: bool = False, heard: bool = True) -> None:
        self.future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self.heard: list[tuple[float, float | None, str | None]] = []
        self.go = asyncio.Semaphore(0)
        self._slow = slow
        self.pending = Pending("tools/call", self.future, 1, 2, self._hear if heard else None)

    def _hear(self, done: float, total: float | None, message: str | None) -> Any:
        self.heard.append((done, total, message))
        if done < 0:
            raise ValueError("odd")
        return self.go.acquire() if self._slow else None


async def turns() -> None:
    """Run all callbacks that are due."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_progress_callback_gets_the_values_of_the_notification() -> None:
    one = Waiting()
    one.pending.progressed(progress(progress=1, total=4, message="m"))
    one.pending.progressed(progress())
    assert one.heard == [(1, 4, "m"), (0, None, None)]
    for odd in (UNSET, Raw(b"[]"), Raw(b"{")):
        one.pending.progressed(Notification("notifications/progress", odd))
    assert len(one.heard) == 2
    one.pending.settle(Raw(b"{}"))
    assert bytes(one.future.result()) == b"{}"


async def test_progress_without_a_callback_is_ignored() -> None:
    one = Waiting(heard=False)
    one.pending.progressed(progress(progress=1))
    one.pending.progressed(Notification("notifications/progress"))
    await one.pending.progress_delivered()
    one.pending.settle(Raw(b"{}"))
    assert one.future.done()


async def test_the_first_outcome_wins() -> None:
    one = Waiting()
    one.pending.settle(ValueError("first"))
    one.pending.settle(Raw(b"{}"))
    with pytest.raises(ValueError, match="first"):
        one.future.result()


async def test_a_slow_callback_gets_all_progress_before_the_result() -> None:
    one = Waiting(slow=True)
    for number in range(3):
        one.pending.progressed(progress(progress=number))
    one.pending.settle(Raw(b"{}"))
    await turns()
    assert (one.heard, one.future.done()) == ([(0, None, None)], False)
    for _ in range(3):
        one.go.release()
    await one.pending.progress_delivered()
    await turns()
    assert [done for done, _, _ in one.heard] == [0, 1, 2]
    assert one.future.done()


async def test_a_callback_that_is_too_slow_misses_the_oldest_progress() -> None:
    one = Waiting(slow=True)
    for number in range(102):
        one.pending.progressed(progress(progress=number))
    for _ in range(200):
        one.go.release()
    await one.pending.progress_delivered()
    assert [done for done, _, _ in one.heard] == [0, *range(2, 102)]


async def test_a_callback_that_failed_is_called_for_the_next_progress(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Waiting()
    one.pending.progressed(progress(progress=-1))
    one.pending.progressed(progress(progress=1))
    assert [done for done, _, _ in one.heard] == [-1, 1]
    assert "the progress callback of tools/call failed" in caplog.text


async def test_forwarded_progress_is_unchanged() -> None:
    heard: list[Notification] = []
    future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
    pending = Pending("x", future, 1, 2, lambda *_: pytest.fail("not both"), heard.append)
    said = progress(progress=1)
    pending.progressed(said)
    outcomes: list[Any] = []
    relayed = CallbackPending("x", 1, 2, outcomes.append, heard.append)
    relayed.progressed(said)
    relayed.settle(Raw(b"{}"))
    assert (heard, len(outcomes)) == ([said, said], 1)
    CallbackPending("x", 1, 2, outcomes.append, None).progressed(said)
