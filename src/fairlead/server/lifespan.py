"""The lifespan of a server: a context opened before the first connection, closed after the last."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

__all__ = ["Lifespan", "LifespanFactory"]

LifespanFactory: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


class Lifespan:
    """Asynchronous context that stays open while at least one connection uses it.

    A separate task enters and exits the context, because a context with a task group or cancel
    scope must be exited by the task that entered it, and connections close in any order.
    """

    def __init__(self, factory: LifespanFactory | None, server: Any) -> None:
        self._factory = factory
        self._server = server
        self._users = 0
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._over = asyncio.Event()
        self.state: Any = None  # the value that the context yielded

    async def __aenter__(self) -> Any:
        """Open the context if this is its first user. Exceptions of the context propagate."""
        if self._factory is None:
            return None
        self._users += 1
        if self._owner is None:
            loop = asyncio.get_running_loop()
            self._ready, self._over = loop.create_future(), asyncio.Event()
            self._owner = loop.create_task(self._own(self._factory, self._ready, self._over))
        assert self._ready is not None
        try:
            # Shielded: one cancelled connection must not cancel the future that others await.
            await asyncio.shield(self._ready)
        # BaseException, because a cancelled connection must release its use of the context too.
        except BaseException:
            await self._leave()
            raise
        return self.state

    async def __aexit__(self, *exc: object) -> None:
        if self._factory is not None:
            await self._leave()

    async def _leave(self) -> None:
        self._users -= 1
        if self._users or self._owner is None:
            return
        # Cleared before the wait, so that a connection opened meanwhile starts a new context.
        owner, self._owner = self._owner, None
        self._over.set()
        await asyncio.wait((owner,))
        if not owner.cancelled() and (error := owner.exception()) is not None:
            raise error

    async def _own(
        self, factory: LifespanFactory, ready: "asyncio.Future[None]", over: asyncio.Event
    ) -> None:
        try:
            async with factory(self._server) as state:
                self.state = state
                if not ready.done():
                    ready.set_result(None)
                await over.wait()
        except BaseException as exc:
            if ready.done():
                raise
            ready.set_exception(exc)
            # Mark the exception as retrieved: the connections that awaited it may be cancelled.
            ready.exception()
        finally:
            self.state = None
