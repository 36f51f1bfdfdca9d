"""An event on which senders wait until a channel accepts more data."""

import asyncio

__all__ = ["DrainWaiter"]


class DrainWaiter:
    """A recurring event that any number of tasks can wait for."""

    def __init__(self) -> None:
        self._future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait for the next `wake`. Cancelling one task leaves the others waiting."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        # Shielded: cancelling one task must not cancel the future that all waiting tasks share.
        await asyncio.shield(self._future)

    def wake(self) -> None:
        """Wake all tasks that are waiting."""
        future, self._future = self._future, None
        if future is not None:
            future.set_result(None)
