"""How many calls are made at once, and how much may wait for that."""

import asyncio

from ....errors import ChannelClosed

__all__ = ["ConcurrencyLimit"]

HIGH_WATER = 1 << 20  # bytes that wait for their turn before senders are asked to wait


class ConcurrencyLimit:
    """A bound on calls, in order, that knows how much is waiting."""

    def __init__(self, size: int) -> None:
        self._semaphore = asyncio.Semaphore(size)
        self._waiting = 0
        self._drained: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def congested(self) -> bool:
        return self._waiting > HIGH_WATER

    async def take(self, size: int) -> None:
        """Wait for a slot; meanwhile so many bytes are waiting."""
        if not self._semaphore.locked():
            await self._semaphore.acquire()
            return
        self._waiting += size
        try:
            await self._semaphore.acquire()
        finally:
            self._waiting -= size
            if not self.congested:
                self._wake()

    def release(self) -> None:
        self._semaphore.release()

    async def drain(self) -> None:
        """Wait until little is waiting. Raises `ChannelClosed` if nothing will leave any more."""
        while self.congested:
            if self._closed:
                raise ChannelClosed(delivered=False)
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
