"""`asyncio.timeout` and `asyncio.timeout_at` for tasks that are being cancelled.

Before Python 3.11.3, a timeout of asyncio in a task that has been cancelled raises CancelledError
instead of TimeoutError, so that the wait ends the cleanup of which it is a part. Debian 12 has
Python 3.11.2.
"""

import asyncio
import sys
from collections.abc import Callable
from types import TracebackType

__all__ = ["CleanupTimeout", "timeout", "timeout_at"]


class CleanupTimeout(asyncio.Timeout):  # type: ignore[misc]  # final for type checkers only
    """A timeout that raises TimeoutError even if its task was cancelled before."""

    async def __aenter__(self) -> "CleanupTimeout":
        await super().__aenter__()
        self._cancelled_before = self._count()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await super().__aexit__(exc_type, exc_val, exc_tb)
        if (
            self.expired()
            and exc_type is asyncio.CancelledError
            and self._count() <= self._cancelled_before
        ):
            raise TimeoutError from exc_val

    def _count(self) -> int:
        """Return the number of pending cancellations of the task."""
        task = asyncio.current_task()
        return 0 if task is None else task.cancelling()


def _timeout(delay: float | None) -> asyncio.Timeout:
    return _timeout_at(None if delay is None else asyncio.get_running_loop().time() + delay)


def _timeout_at(when: float | None) -> asyncio.Timeout:
    return CleanupTimeout(when)


# Chosen by version, because the class costs a few microseconds more.
_IS_FIXED = sys.version_info >= (3, 11, 3)
timeout: Callable[[float | None], asyncio.Timeout] = asyncio.timeout if _IS_FIXED else _timeout
timeout_at: Callable[[float | None], asyncio.Timeout] = (
    asyncio.timeout_at if _IS_FIXED else _timeout_at
)
