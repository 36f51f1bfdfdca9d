"""Calls to servers that are still starting: they wait, and hear so if it takes too long.

A list shows what is there after a moment, because the rest can be told as a change. A call has
nobody else to go to, so it waits as long as a start may take.
"""

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import TYPE_CHECKING, TypeVar

from ...errors import ConnectFailed, RpcError
from ...protocol.own_errors import own_error
from ...wire.error_codes import INTERNAL_ERROR

if TYPE_CHECKING:
    from .backend import Member

__all__ = ["StartupWait", "StillStarting", "still_starting_error", "wait_until_found"]

T = TypeVar("T")


class StartupWait:
    """How long a call waits for a server to start, and the setting that says so."""

    def __init__(self, connect_timeout: float, call_timeout: float) -> None:
        """As long as a start may take, but no longer than the call itself; 0: no limit."""
        self.limit = connect_timeout or inf
        self.setting = "`timeout` (milliseconds) in its entry"
        if 0 < call_timeout < self.limit:
            self.limit, self.setting = call_timeout, "`call_timeout` (seconds)"

    @property
    def seconds(self) -> float | None:
        return None if self.limit == inf else self.limit


class StillStarting(ConnectFailed):
    """A server could not be asked yet. That is no failure of it."""

    def __init__(self, patience: StartupWait) -> None:
        why = (
            f"is still starting, after {patience.limit:g} s. Try again in a moment; if it always "
            f"takes so long, raise {patience.setting}"
        )
        super().__init__(f"it {why}", public=why)


def still_starting_error(server: str, error: StillStarting) -> RpcError:
    """What a client hears then."""
    return own_error(INTERNAL_ERROR, f"{server} {error.public}", server=server, starting=True)


async def wait_until_found(look: Callable[[], T | None], members: "Iterable[Member]") -> T | None:
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
