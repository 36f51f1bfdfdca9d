"""Who may use a connection alone, and who waits for it."""

import asyncio
from collections import deque

__all__ = ["Turns"]


class Turns:
    """One at a time, in the order they came. A lock that can be looked at and timed."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> bool:
        return not self._taken and not self._waiting

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def try_take(self) -> bool:
        if not self.free:
            return False
        self._taken = True
        return True

    async def take(self, seconds: float) -> None:
        """Raises `TimeoutError` if it does not come in time."""
        if self.try_take():
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds or None):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release()  # it came at the very moment in which nobody wanted it any more
            else:
                self._waiting.remove(turn)
            raise

    def release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False
