"""Calls to servers that are still starting: they wait, and hear so if it takes too long.

A list shows what is there after a moment, because the rest can be told as a change. A call has
nobody else to go to, so it waits as long as a start may take.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ...errors import RpcError
from ...protocol.own_errors import own_error
from ...upstream.startup_wait import StillStarting
from ...wire.error_codes import INTERNAL_ERROR

__all__ = ["still_starting_error", "wait_until_found"]

T = TypeVar("T")


class StartingServer(Protocol):
    """A server of a gateway, as far as waiting for its start is concerned."""

    introduced: asyncio.Event  # it has listed what it offers

    async def introduction(self) -> RpcError | None:
        """Wait until it has; return an error if that takes too long."""


def still_starting_error(server: str, error: StillStarting) -> RpcError:
    """What a client hears then."""
    return own_error(INTERNAL_ERROR, f"{server} {error.public}", server=server, starting=True)


async def wait_until_found(
    look: Callable[[], T | None], members: Iterable[StartingServer]
) -> T | None:
    """What is looked for; if it is not there, it may be of one of these, as far as they start.

    Raises:
        RpcError: it was not found, and some of them have not said yet what they offer.
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
