"""Keeping a connection alive: looking after it now and then, and replacing one that is lost."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Protocol

from ..errors import ChannelClosed, ConnectFailed, FairleadError
from .config import MCPClientConfig
from .transports import ChannelTransport

__all__ = ["Keeper"]

log = logging.getLogger("fairlead.client")


class Kept(Protocol):
    """A client, as far as its keeper is concerned."""

    config: MCPClientConfig
    transport: ChannelTransport

    async def open_on(self, transport: ChannelTransport, stateless: bool | None = None) -> None: ...
    async def restore(self) -> None: ...
    async def health_check(self) -> dict[str, Any]: ...


class Keeper:
    """Replaces a lost connection, once for all who miss it.

    Each connection has a number. Whoever wants a new one names the one that failed, so two who
    noticed the same loss get the same replacement, and a late one never replaces what works.
    """

    def __init__(self, client: Kept, make: Callable[[], ChannelTransport] | None) -> None:
        """`make` makes another transport to the same server; without it nothing is replaced."""
        self.generation = 0
        self.health: dict[str, Any] | None = None  # what the last check found
        self._client = client
        self._make = make
        self._renewing = asyncio.Lock()
        self._coming: ChannelTransport | None = None
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def can_renew(self) -> bool:
        return self._make is not None and not self._closed

    async def renew(self, failed: int) -> None:
        """Replace the connection of that number, unless somebody did.

        Raises:
            ConnectFailed: the server cannot be reached.
            ChannelClosed: it went away again, or the client was closed.
        """
        async with self._renewing:
            if failed != self.generation:
                return
            if self._make is None or self._closed:
                raise ChannelClosed("the client is closed", delivered=False)
            await self._client.transport.close()
            transport = self._coming = self._make()
            try:
                async with asyncio.timeout(self._client.config.timeout_seconds or None):
                    await self._client.open_on(transport)
                if self._closed:
                    raise ChannelClosed("the client is closed", delivered=False)
            except BaseException as exc:
                await transport.close()
                if isinstance(exc, TimeoutError):
                    raise ConnectFailed("Could not connect again in time") from exc
                if isinstance(exc, ChannelClosed):
                    exc.delivered = False  # what the caller wants to send was not sent at all
                raise
            finally:
                self._coming = None
            self.generation += 1
            log.info("connected again (number %d)", self.generation)
            try:
                await self._client.restore()
            except FairleadError as exc:
                log.warning("connected again, but not everything could be restored: %s", exc)

    def watch(self, interval: float) -> None:
        """Check every so many seconds whether the server answers; 0 does not."""
        if interval > 0 and self._watch is None and not self._closed:
            self._watch = asyncio.ensure_future(self._look_after(interval))

    async def close(self) -> None:
        """No checks and no new connections from now on."""
        self._closed = True
        watch, self._watch = self._watch, None
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()
            await asyncio.wait((watch,))
        if self._coming is not None:
            await self._coming.close()
            async with self._renewing:
                pass  # whoever was about to connect has cleaned up

    async def _look_after(self, interval: float) -> None:
        while not self._closed:
            # Clients that started together shall not ask together for ever.
            await asyncio.sleep(interval * random.uniform(0.9, 1.0))
            generation = self.generation
            self.health = await self._client.health_check()
            if self.health["ok"]:
                continue
            log.warning("the server does not answer: %s", self.health.get("error"))
            if self.can_renew:
                try:
                    await self.renew(generation)
                except (FairleadError, OSError) as exc:
                    log.warning("could not connect again: %s", exc)
