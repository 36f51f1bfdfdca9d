"""What a server needs while it runs: opened before the first connection, closed after the last."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

__all__ = ["Lifespan", "LifespanFactory"]

LifespanFactory: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


class Lifespan:
    """Holds one asynchronous context open as long as anybody uses it.

    A task of its own enters and leaves it: connections come and go in any order, and a context
    with a task group or a cancel scope in it must be left by the task that entered it.
    """

    def __init__(self, factory: LifespanFactory | None, server: Any) -> None:
        self._factory = factory
        self._server = server
        self._users = 0
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._over = asyncio.Event()
        self.state: Any = None  # what the context yielded

    async def __aenter__(self) -> Any:
        """Raises whatever the context raises when it is entered."""
        if self._factory is None:
            return None
        self._users += 1
        if self._owner is None:
            loop = asyncio.get_running_loop()
            self._ready, self._over = loop.create_future(), asyncio.Event()
            self._owner = loop.create_task(self._own(self._factory, self._ready, self._over))
        assert self._ready is not None
        try:
            await asyncio.shield(self._ready)
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
            ready.exception()  # whoever waited may have gone
        finally:
            self.state = None
