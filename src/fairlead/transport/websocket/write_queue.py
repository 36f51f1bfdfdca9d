"""Frames on their way to a peer that may read slowly: one writer, and a bound in bytes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ..drain_waiter import DrainWaiter
from ..line_channel import HARD_LIMIT, HIGH_WATER

__all__ = ["FLOOD", "WriteQueue"]

FLOOD = 16  # times the hard limit: a peer that will never read all of it
STALLED = 60.0  # seconds in which a peer that we wait for takes nothing


class WriteQueue:
    """A queue that a task empties, as long as there is something in it.

    Above the high-water mark polite senders wait. Above the hard limit its owner should not
    read on, because answers could pile up behind a peer that does not read. What was asked before
    may still be answered; but with `FLOOD` times as many bytes, or after a time in which
    nothing left, the peer is given up.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        failed: Callable[[Exception], None],
        given_up: Callable[[str], None],
    ) -> None:
        """`failed` is told what `send` raised, `given_up` why we hang up on a peer."""
        self.congested = False
        self._send = send
        self._failed = failed
        self._given_up = given_up
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._size = 0  # bytes in it, with the frame that is just being sent
        self._sent = 0  # frames
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._drained = DrainWaiter()

    @property
    def full(self) -> bool:
        return self._size > HARD_LIMIT

    def put(self, frame: bytes) -> None:
        """Queue a frame."""
        self._queue.append(frame)
        self._size += len(frame)
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())
        if self._size > HIGH_WATER:
            self._crowded()

    async def drain(self) -> None:
        """Wait until the queue is short again, or dropped."""
        while self.congested:
            await self._drained.wait()

    async def flush(self, seconds: float) -> None:
        """Give what is queued so much time to leave, and drop the rest."""
        if self._writer is not None:
            await asyncio.wait((self._writer,), timeout=seconds)
        self.drop()

    def drop(self) -> None:
        """Nothing of what is queued leaves any more."""
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None
        self._queue.clear()
        self._size = 0
        self._relieved()

    async def _write(self) -> None:
        try:
            while self._queue:
                frame = self._queue.popleft()
                await self._send(frame)
                self._size -= len(frame)
                self._sent += 1
                if self.congested and self._size <= HIGH_WATER // 2:
                    self._relieved()
            self._writer = None
        except Exception as exc:
            self._writer = None
            self.drop()
            self._failed(exc)

    def _crowded(self) -> None:
        if not self.congested:
            self.congested = True
            self._watch()
        if self._size > FLOOD * HARD_LIMIT and len(self._queue) > 1:
            self.drop()
            self._given_up("too much is waiting to be read")

    def _relieved(self) -> None:
        self.congested = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drained.wake()

    def _watch(self) -> None:
        self._timer = self._loop.call_later(STALLED, self._look, self._sent)

    def _look(self, sent: int) -> None:
        if sent == self._sent:
            self.drop()
            self._given_up("nothing is read")
        else:
            self._watch()
