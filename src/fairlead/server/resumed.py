"""Awaiting the rest of a coroutine whose first step has been taken already."""

from collections.abc import Coroutine, Generator
from typing import Any

__all__ = ["Rest"]


class Rest:
    """What is left of a coroutine that waits for something; awaited like the whole."""

    __slots__ = ("_coroutine", "_waiting")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waiting: Any) -> None:
        self._coroutine = coroutine
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._waiting
        while True:
            try:
                try:
                    sent = yield waiting
                except BaseException as exc:
                    waiting = self._coroutine.throw(exc)
                else:
                    waiting = self._coroutine.send(sent)
            except StopIteration as done:
                return done.value
