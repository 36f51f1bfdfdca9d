"""Exclusive use of a connection, and the queue of those that wait for it."""

import asyncio
from collections import deque
from collections.abc import Sequence

__all__ = ["Turn", "TurnLock", "first_turn"]


class Turn:
    """The right to use a connection until it is released. Releasing it twice is harmless."""

    __slots__ = ("_over", "_turns")

    def __init__(self, turns: "TurnLock") -> None:
        self._turns = turns
        self._over = False

    def release(self) -> None:
        if not self._over:
            self._over = True
            self._turns._released()


class TurnLock:
    """A lock with one owner at a time, granted in order of arrival.

    An owner may hold several turns at once, as long as no other owner waits.
    """

    def __init__(self) -> None:
        self._owner: object | None = None
        self._held = 0
        self._waiting: deque[tuple[object, asyncio.Future[Turn]]] = deque()

    @property
    def free(self) -> bool:
        return not self._held and not self._waiting

    def try_take(self, owner: object, *, urgent: bool = False) -> Turn | None:
        """Return a turn if one is free. If `urgent`, the current owner need not queue."""
        if self.free or (self._held and owner is self._owner and (urgent or not self._waiting)):
            return self._given(owner)
        return None

    async def take(self, owner: object, seconds: float, *, urgent: bool = False) -> Turn:
        """Wait for a turn; 0 seconds mean no limit.

        Raises:
            TimeoutError: No turn was free in time.
        """
        turn = self.try_take(owner, urgent=urgent)
        if turn is not None:
            return turn
        coming: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        entry = (owner, coming)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(seconds or None):
                return await coming
        except BaseException:
            if coming.done() and not coming.cancelled():
                # The turn was granted in the same iteration of the loop as the timeout or
                # cancellation.
                coming.result().release()
            elif entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def _given(self, owner: object) -> Turn:
        self._owner = owner
        self._held += 1
        return Turn(self)

    def _released(self) -> None:
        self._held -= 1
        if self._held:
            return
        self._owner = None
        while self._waiting:
            owner, coming = self._waiting.popleft()
            if not coming.done():
                coming.set_result(self._given(owner))
                return


async def first_turn(locks: Sequence[TurnLock], owner: object, seconds: float) -> tuple[int, Turn]:
    """Return the index of the first lock that has a turn, and the turn.

    Raises:
        TimeoutError: No turn was free in time.
    """
    for place, lock in enumerate(locks):
        turn = lock.try_take(owner)
        if turn is not None:
            return place, turn
    waiting = {asyncio.ensure_future(lock.take(owner, seconds)): n for n, lock in enumerate(locks)}
    chosen: Turn | None = None
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        task = next((one for one in waiting if one.done() and not one.exception()), None)
        if task is None:
            raise TimeoutError
        chosen = task.result()
        return waiting[task], chosen
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        # A lock may have granted a turn before the cancellation of its task took effect.
        for task in waiting:
            if not task.cancelled() and not task.exception() and task.result() is not chosen:
                task.result().release()
