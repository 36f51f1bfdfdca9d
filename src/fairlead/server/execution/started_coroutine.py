"""Awaiting the rest of a coroutine that was started by hand."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ["ResumedCoroutine"]

_Work = Coroutine[Any, Any, Any]


class ResumedCoroutine:
    """The rest of a suspended coroutine; can be awaited like the whole coroutine.

    A coroutine that continues to wait after it was cancelled may be cleaning up, so it is awaited
    further, until `leave(coroutine, waiting)` returns True and takes it over.
    """

    __slots__ = ("_coroutine", "_leave", "_waiting")

    def __init__(
        self, coroutine: _Work, waiting: Any, leave: Callable[[_Work, Any], bool] | None = None
    ) -> None:
        self._coroutine = coroutine
        self._waiting = waiting
        self._leave = leave

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting
        while True:
            try:
                try:
                    # `waiting` is what the coroutine yielded to the event loop; the task has to see
                    # the same object.
                    sent = yield waiting
                except asyncio.CancelledError as exc:
                    waiting = self._coroutine.throw(exc)
                    if self._leave is not None and self._leave(self._coroutine, waiting):
                        raise
                except BaseException as exc:
                    waiting = self._coroutine.throw(exc)
                else:
                    waiting = self._coroutine.send(sent)
            except StopIteration as done:
                return done.value
