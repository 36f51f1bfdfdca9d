"""Awaiting the rest of a coroutine whose first step has been taken already."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

__all__ = ["ResumedCoroutine"]

_Work = Coroutine[Any, Any, Any]


class ResumedCoroutine:
    """What is left of a coroutine that waits for something; awaited like the whole.

    One that goes on waiting after it was cancelled may only be cleaning up, so that is waited for;
    until `leave(coroutine, waiting)` says that it is somebody else's from now on.
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
