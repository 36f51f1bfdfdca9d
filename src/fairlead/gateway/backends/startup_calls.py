"""Lookup of names that a starting server may have.

A list request waits only briefly, because later items can be announced as a change. A call cannot
be completed later, so it waits as long as a start may take.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from ...errors import RpcError
from .backend import Member

__all__ = ["wait_until_found"]

T = TypeVar("T")


async def wait_until_found(look: Callable[[], T | None], members: Iterable[Member]) -> T | None:
    """Return the result of `look`. While it is None, repeat `look` after each member has listed.

    Raises:
        RpcError: `look` found nothing, and some members are still starting.
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
        # The remaining members are not needed once the name is found.
        for task in waiting:
            task.cancel()
    if late:
        raise late[0]
    return None
