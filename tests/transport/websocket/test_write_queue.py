"""Tests of the queue of frames for a peer that reads slowly or not at all."""

import asyncio

import pytest

from fairlead.transport.line_channel import HARD_LIMIT, HIGH_WATER
from fairlead.transport.websocket.write_queue import WriteQueue
from tests.support.virtual_time import VirtualTime


async def turns() -> None:
    """Run all callbacks that are due."""
    for _ in range(5):
        await asyncio.sleep(0)


class SlowPeer:
    """A peer that reads one frame whenever the test allows it."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(0)
        self.taken: list[int] = []
        self.failures: list[Exception] = []
        self.given_up: list[str] = []
        self.queue = WriteQueue(
            self._send, failed=self.failures.append, given_up=self.given_up.append
        )

    async def _send(self, frame: bytes) -> None:
        await self.turns.acquire()
        self.taken.append(len(frame))


async def test_a_peer_that_reads_nothing_for_a_minute_is_disconnected(
    virtual_time: VirtualTime,
) -> None:
    peer = SlowPeer()
    for _ in range(3):
        peer.queue.put(bytes(HIGH_WATER))
    for _ in range(2):  # each frame that is read restarts the time limit
        await asyncio.sleep(59)
        assert peer.given_up == []
        peer.turns.release()
        await asyncio.sleep(1)
    assert peer.queue.congested
    await asyncio.sleep(59)
    assert peer.given_up == []
    await asyncio.sleep(1)
    assert peer.given_up == ["the peer does not read"]
    assert (peer.queue.congested, peer.queue.full) == (False, False)


async def test_a_short_queue_has_no_time_limit(virtual_time: VirtualTime) -> None:
    peer = SlowPeer()
    peer.queue.put(bytes(HIGH_WATER))
    await asyncio.sleep(600)
    assert (peer.given_up, peer.queue.congested) == ([], False)
    peer.queue.drop()
    crowded = SlowPeer()
    crowded.queue.put(bytes(HIGH_WATER))
    crowded.queue.put(b"x")
    assert crowded.queue.congested
    crowded.turns.release()
    await crowded.queue.drain()
    assert crowded.taken == [HIGH_WATER]
    await asyncio.sleep(600)
    assert crowded.given_up == []
    crowded.queue.drop()


async def test_a_queue_over_sixteen_times_the_hard_limit_is_dropped() -> None:
    peer = SlowPeer()
    frame = bytes(HARD_LIMIT)  # one object: the queue counts bytes and makes no copies
    peer.queue.put(frame)
    assert not peer.queue.full
    for _ in range(15):
        peer.queue.put(frame)
    assert (peer.given_up, peer.queue.full) == ([], True)
    peer.queue.put(b"x")
    assert peer.given_up == ["the peer left too many bytes unread"]
    assert not peer.queue.full
    await asyncio.sleep(0)


@pytest.mark.parametrize(("seconds", "taken"), [(3.0, [1, 2]), (0.5, [])])
async def test_flush_writes_frames_in_time_or_drops_them(
    virtual_time: VirtualTime, seconds: float, taken: list[int]
) -> None:
    peer = SlowPeer()
    peer.queue.put(b"x")
    peer.queue.put(b"xx")
    loop = asyncio.get_running_loop()
    for later in (1.0, 2.0):
        loop.call_later(later, peer.turns.release)
    begun = virtual_time.now
    await peer.queue.flush(seconds)
    assert virtual_time.now - begun == pytest.approx(min(seconds, 2.0))
    await asyncio.sleep(5)
    assert peer.taken == taken


async def test_a_dropped_queue_sends_nothing_until_new_frames_are_queued() -> None:
    peer = SlowPeer()
    peer.queue.put(b"x")
    peer.queue.put(b"xx")
    await asyncio.sleep(0)
    peer.queue.drop()
    peer.queue.put(b"xxx")
    for _ in range(3):
        peer.turns.release()
    await turns()
    assert peer.taken == [3]


@pytest.mark.parametrize(
    ("left", "congested"), [(HIGH_WATER // 2, False), (HIGH_WATER // 2 + 1, True)]
)
async def test_senders_resume_at_half_of_the_high_water_mark(left: int, congested: bool) -> None:
    peer = SlowPeer()
    peer.queue.put(bytes(HIGH_WATER))
    assert not peer.queue.congested
    peer.queue.put(bytes(left))
    assert peer.queue.congested
    peer.turns.release()
    await turns()
    assert peer.queue.congested is congested
    peer.queue.drop()
    assert not peer.queue.congested
    await peer.queue.drain()


async def test_a_failed_write_drops_the_rest_and_is_reported() -> None:
    failures: list[Exception] = []

    async def fail(frame: bytes) -> None:
        raise OSError("gone")

    queue = WriteQueue(fail, failed=failures.append, given_up=lambda why: None)
    for _ in range(3):
        queue.put(bytes(HIGH_WATER))
    await queue.drain()
    assert [str(one) for one in failures] == ["gone"]
    assert (queue.congested, queue.full) == (False, False)


async def test_a_single_frame_may_exceed_the_limit() -> None:
    peer = SlowPeer()

    class Huge(bytes):
        def __len__(self) -> int:
            return 16 * HARD_LIMIT + 1

    peer.queue.put(Huge())
    assert peer.given_up == []
    peer.queue.put(b"x")  # the first one may still be queued, but two exceed the limit
    assert peer.given_up == ["the peer left too many bytes unread"]
    await asyncio.sleep(0)
