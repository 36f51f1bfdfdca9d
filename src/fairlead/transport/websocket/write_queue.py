"""A queue of frames for a peer that may read slowly, with one writer and a limit in bytes."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ..drain_waiter import DrainWaiter
from ..line_channel import HARD_LIMIT, HIGH_WATER

__all__ = ["FLOOD", "WriteQueue"]

FLOOD = 16  # times the hard limit above which a peer that does not read is disconnected
STALLED = 60.0  # seconds without a completed write after which a slow peer is disconnected


class WriteQueue:
    """A queue that a task writes out while it is not empty.

    Above the high-water mark well-behaved senders wait. Above the hard limit the owner should stop
    reading, because responses could accumulate for a peer that does not read. Responses to earlier
    requests may still be queued. The peer is disconnected if the queue exceeds `FLOOD` times the
    hard limit, or if no frame was written for `STALLED` seconds.
    """

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[None]],
        *,
        failed: Callable[[Exception], None],
        given_up: Callable[[str], None],
    ) -> None:
        """`failed` is called with an exception of `send`, `given_up` with the reason to give up."""
        self.congested = False
        self._send = send
        self._failed = failed
        self._given_up = given_up
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._size = 0  # bytes queued, including the frame that is being sent
        self._sent = 0  # number of frames sent
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
        if self._size <= HIGH_WATER:
            return
        if not self.congested:
            self.congested = True
            self._watch()
        # A single frame may be larger than the limit.
        if self._size > FLOOD * HARD_LIMIT and len(self._queue) > 1:
            self.drop()
            self._given_up("the peer left too many bytes unread")

    async def drain(self) -> None:
        """Wait until the queue is short again, or dropped."""
        while self.congested:
            await self._drained.wait()

    async def flush(self, seconds: float) -> None:
        """Write queued frames for up to `seconds`, and drop the rest."""
        if self._writer is not None:
            await asyncio.wait((self._writer,), timeout=seconds)
        self.drop()

    def drop(self) -> None:
        """Drop all queued frames."""
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
        # `send` belongs to a library or an ASGI server, so any exception is possible.
        except Exception as exc:
            self._writer = None
            self.drop()
            self._failed(exc)

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
            self._given_up("the peer does not read")
        else:
            self._watch()
