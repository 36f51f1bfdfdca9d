"""Lookups of names that a server which is still starting may have.

A list shows what is known after a moment, because the rest can be announced as a change. A call
cannot be completed later, so it waits as long as a start may take.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ...errors import RpcError

__all__ = ["wait_until_found"]

T = TypeVar("T")


class StartingServer(Protocol):
    """A server of a gateway, as far as waiting for its start is concerned."""

    introduced: asyncio.Event  # it has listed what it offers

    async def introduction(self) -> RpcError | None:
        """Wait until it has; return an error if that takes too long."""


async def wait_until_found(
    look: Callable[[], T | None], members: Iterable[StartingServer]
) -> T | None:
    """Return what `look` finds; if that is None, look again as each of the members has listed.

    Raises:
        RpcError: It was not found, and some of the members are still starting.
    """
    if (found := look()) is not None:
        return found
    loop = asyncio.get_running_loop()
    waiting = {loop.create_task(m.introduction()) for m in members if not m.introduced.is_set()}
    late: list[RpcError] = []
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if (found := look()) is not None:
                return found
            late += [refused for one in done if (refused := one.result()) is not None]
    finally:
        for task in waiting:
            task.cancel()
    if late:
        raise late[0]
    return None
