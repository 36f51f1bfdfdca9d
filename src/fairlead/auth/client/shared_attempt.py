"""A renewal or login that runs in its own task and whose outcome several requests share."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

__all__ = ["SharedAttempt"]


class SharedAttempt:
    """A renewal or login that starts at once.

    A renewal is completed even if no request waits for it, because the server may already
    have replaced the refresh token. A login that waits for the user is cancelled when no request
    waits for it.
    """

    def __init__(
        self,
        work: Callable[["SharedAttempt"], Coroutine[Any, Any, bool]],
        ended: Callable[[], None],
    ) -> None:
        self._waiting = 0
        self._waits_for_person = False
        self._task = asyncio.get_running_loop().create_task(work(self))
        self._task.add_done_callback(lambda task: _retrieve(task, ended))

    async def join(self) -> bool:
        """Wait for the outcome, which is the same for all requests.

        Return False if the login was already being cancelled, because no request waited for it.
        """
        self._waiting += 1
        try:
            # Not awaited itself: cancelling one request must not affect the others, and a request
            # that comes too late must not be cancelled with the login.
            await asyncio.wait((self._task,))
        finally:
            self._waiting -= 1
            self._end_unless_wanted()
        return not self._task.cancelled() and self._task.result()

    @contextlib.contextmanager
    def waiting_for_person(self) -> Iterator[None]:
        """Enter a context in which the attempt is cancelled if no request waits for it."""
        self._waits_for_person = True
        self._end_unless_wanted()
        try:
            yield
        finally:
            self._waits_for_person = False

    def _end_unless_wanted(self) -> None:
        if self._waits_for_person and not self._waiting and not self._task.done():
            self._task.cancel()


def _retrieve(task: "asyncio.Task[bool]", ended: Callable[[], None]) -> None:
    ended()
    # Otherwise asyncio reports a failure that no request waited for.
    if not task.cancelled():
        task.exception()
