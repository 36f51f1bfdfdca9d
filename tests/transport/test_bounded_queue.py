"""Tests of bounded queues, and of the task that processes a queue."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.transport.bounded_queue import BoundedQueue, WorkQueue


def size(item: str) -> int | None:
    return None if item.startswith("-") else len(item)


def queue_of(*items: str, most: int = 3, bytes_: int = 10) -> BoundedQueue[str]:
    queue: BoundedQueue[str] = BoundedQueue(size, most, bytes_)
    for item in items:
        queue.enqueue(item)
    return queue


def test_a_bounded_queue_drops_the_oldest_items_over_its_limit() -> None:
    queue = queue_of("aaaa", "bb", "ccc", "dd")
    assert (list(queue.items), queue.bytes, queue.dropped) == (["bb", "ccc", "dd"], 7, 1)
    queue.enqueue("eeeeee")
    assert (list(queue.items), queue.bytes, queue.dropped) == (["dd", "eeeeee"], 8, 3)
    queue.enqueue("f" * 11)
    assert (list(queue.items), queue.bytes, queue.dropped) == (["f" * 11], 11, 5)


def test_items_of_zero_bytes_count_towards_the_number_of_items() -> None:
    queue = queue_of("", "", "", "")
    assert (queue.count, queue.dropped) == (3, 1)


def test_queue_markers_are_neither_counted_nor_dropped() -> None:
    queue = queue_of("-1", "a", "-2", "b", "c", "-3", "d", "-4")
    assert list(queue.items) == ["-1", "-2", "b", "c", "-3", "d", "-4"]
    assert (queue.count, queue.bytes, queue.dropped) == (3, 3, 1)


def test_removing_an_item_reduces_the_number_of_queued_bytes() -> None:
    queue = queue_of("a", "bb", "-", "ccc")
    assert not queue.fits("")
    queue.remove("bb")
    assert not queue.fits("1234567")
    assert queue.fits("123456")
    assert [queue.pop(), queue.pop(), queue.pop()] == ["a", "-", "ccc"]
    assert (queue.count, queue.bytes) == (0, 0)
    queue.enqueue("d")
    queue.clear()
    assert (queue.count, queue.bytes, list(queue.items)) == (0, 0, [])


@given(st.lists(st.text("-a", max_size=8)), st.integers(1, 5), st.integers(0, 20))
def test_queue_limits_are_kept_unless_a_single_item_exceeds_them(
    items: list[str], most: int, bytes_: int
) -> None:
    queue = queue_of(most=most, bytes_=bytes_)
    for item in items:
        queue.enqueue(item)
        left = [one for one in queue.items if size(one) is not None]
        assert (queue.count, queue.bytes) == (len(left), sum(map(len, left)))
        assert queue.items[-1] is item
        assert queue.count <= 1 or (queue.count <= most and queue.bytes <= bytes_)


class Sender(WorkQueue[str]):
    def __init__(self) -> None:
        super().__init__(len, 100, 100)
        self.sent: list[str] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def handle(self, item: str) -> None:
        self.begun.set()
        await self.go_on.wait()
        self.sent.append(item)


async def test_the_queue_task_handles_one_item_at_a_time() -> None:
    queue = Sender()
    for item in ("a", "b", "c"):
        queue.enqueue(item)
    async with asyncio.timeout(5):
        await queue.begun.wait()
        assert (queue.busy, queue.sent) == (True, [])
        queue.go_on.set()
        await queue.flushed()
    assert (queue.busy, queue.sent) == (False, ["a", "b", "c"])


async def test_a_paused_queue_keeps_its_items_until_it_is_started() -> None:
    queue = Sender()
    queue.go_on.set()
    queue.paused = True
    queue.enqueue("a")
    assert not queue.busy
    queue.paused = False
    queue.start()
    async with asyncio.timeout(5):
        await queue.flushed()
    assert queue.sent == ["a"]


async def test_a_closed_queue_ends_its_task_and_can_be_used_again() -> None:
    queue = Sender()
    queue.enqueue("a")
    queue.close()  # closed before its task has run
    queue.go_on.set()
    queue.enqueue("b")
    async with asyncio.timeout(5):
        await queue.flushed()
    assert (queue.busy, queue.sent) == (False, ["b"])


@pytest.mark.parametrize(
    ("items", "item", "fits"),
    [
        ([], "xxxxx", True),
        ([], "xxxxxx", False),
        (["xx"], "xxx", True),
        (["xx"], "xxxx", False),
        (["x", "x"], "x", True),
        (["x", "x", "x"], "", False),
        (["xxxxx"], "", True),
    ],
)
def test_an_item_fits_into_a_queue_if_both_limits_allow_it(
    items: list[str], item: str, fits: bool
) -> None:
    queue: BoundedQueue[str] = BoundedQueue(len, 3, 5)
    for one in items:
        queue.enqueue(one)
    assert queue.fits(item) is fits


def test_a_queue_marker_has_no_size() -> None:
    queue: BoundedQueue[str] = BoundedQueue(lambda one: None if one == "|" else len(one), 3, 5)
    queue.enqueue("xxxxx")
    assert queue.fits("|")
    assert not queue.fits("x")
    queue.clear()
    assert (queue.count, queue.bytes, list(queue.items)) == (0, 0, [])


async def test_closing_a_queue_cancels_the_item_in_progress() -> None:
    queue = Sender()
    queue.enqueue("a")
    async with asyncio.timeout(5):
        await queue.begun.wait()
    before = asyncio.all_tasks()
    queue.close()
    queue.close()
    assert not queue.busy
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len([task for task in before if task.done()]) == 1
    queue.go_on.set()
    assert queue.sent == []
