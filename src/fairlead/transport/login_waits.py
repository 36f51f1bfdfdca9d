"""Periods in which requests wait for a user to log in; timeouts exclude them."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from . import timeouts

__all__ = ["LoginTimeout", "LoginWaits"]

# Called with True when a wait for a login begins, and with False when it ends.
LoginListener: TypeAlias = Callable[[bool], None]


class LoginWaits:
    """Logins for one credential source, as a context manager around each wait for the user.

    Belongs to one event loop, like its listeners.
    """

    def __init__(self) -> None:
        self._listeners: list[LoginListener] = []
        self._waiting = 0

    def add(self, listener: LoginListener) -> Callable[[], None]:
        """Register a listener; return a function that removes it and ends its wait."""
        self._listeners.append(listener)
        if self._waiting:
            listener(True)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
                if self._waiting:
                    listener(False)

        return remove

    def __enter__(self) -> None:
        self._waiting += 1
        if self._waiting == 1:
            self._report(True)

    def __exit__(self, *exc: object) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            self._report(False)

    def _report(self, waiting: bool) -> None:
        # A copy, because a listener may remove itself while it is called.
        for listener in tuple(self._listeners):
            listener(waiting)


class LoginTimeout:
    """`asyncio.timeout` whose clock stops while the user logs in."""

    def __init__(self, seconds: float | None, logins: LoginWaits | None) -> None:
        self._timeout = timeouts.timeout(seconds)
        self._logins = logins
        self._left: float | None = None
        self._remove: Callable[[], None] | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        if self._logins is not None and self._timeout.when() is not None:
            self._remove = self._logins.add(self._login)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._remove is not None:
            self._remove()
        await self._timeout.__aexit__(kind, error, trace)

    def _login(self, waiting: bool) -> None:
        if self._timeout.expired():
            return
        now = asyncio.get_running_loop().time()
        if waiting:
            at = self._timeout.when()
            self._left = None if at is None else at - now
            self._timeout.reschedule(None)
        elif self._left is not None:
            self._timeout.reschedule(now + self._left)
