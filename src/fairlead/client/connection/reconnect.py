"""Health checks for a connection, and its replacement when it is lost."""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ...errors import ChannelClosed, ConnectFailed, FairleadError
from ...transport import timeouts
from ...transport.backoff import Backoff
from ...transport.login_waits import LoginTimeout
from ..client_config import MCPClientConfig
from ..mcp_transport.channel_transport import ChannelTransport
from .retry import restarts

__all__ = ["Reconnector"]

log = logging.getLogger("fairlead.client")

T = TypeVar("T")


class ReconnectableClient(Protocol):
    """The client methods that a `Reconnector` uses."""

    config: MCPClientConfig
    transport: ChannelTransport

    async def open_on(self, transport: ChannelTransport, stateless: bool | None = None) -> None: ...
    async def restore(self) -> None: ...
    async def health_check(self) -> dict[str, Any]: ...


class Reconnector:
    """Replacement of a lost connection, once for all tasks that detected the loss.

    Each connection has a number. A task passes the number of the connection that failed, so tasks
    that detected the same loss share one replacement, and a late task never replaces a working
    connection.
    """

    def __init__(
        self, client: ReconnectableClient, make: Callable[[], ChannelTransport] | None
    ) -> None:
        """Create a reconnector.

        `make` creates another transport to the server; None disables reconnecting.
        """
        self.generation = 0
        self.health: dict[str, Any] | None = None  # result of the last health check
        self._client = client
        self._make = make
        self._renewing = asyncio.Lock()
        self._coming: ChannelTransport | None = None
        self._watch: asyncio.Task[None] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._backoff: Backoff | None = None
        self._renewed_at = 0.0
        self._over = asyncio.Event()  # set when the client is closed

    @property
    def can_renew(self) -> bool:
        return self._make is not None and not self._closed

    @property
    def _closed(self) -> bool:
        return self._over.is_set()

    async def renew(self, failed: int) -> None:
        """Replace the connection with this number, unless another task has done so.

        Raises:
            ConnectFailed: The server cannot be reached.
            ChannelClosed: The connection was lost again, or the client was closed.
        """
        async with self._renewing:
            if failed != self.generation:
                return
            if self._make is None or self._closed:
                raise _client_closed()
            await self._client.transport.close()
            transport = self._coming = self._make()
            try:
                limit = self._client.config.timeout_seconds or None
                async with LoginTimeout(limit, transport.logins):
                    await self._client.open_on(transport)
                if self._closed:
                    raise _client_closed()
            except BaseException as exc:
                await transport.close()
                if isinstance(exc, TimeoutError):
                    raise ConnectFailed("Could not reconnect in time") from exc
                if isinstance(exc, ChannelClosed):
                    # The caller's request was not sent at all.
                    exc.delivered = False
                raise
            finally:
                self._coming = None
            self.generation += 1
            self._renewed_at = asyncio.get_running_loop().time()
            log.info("reconnected (connection %d)", self.generation)
            try:
                await self._client.restore()
            except FairleadError as exc:
                log.warning("reconnected, but not all subscriptions could be restored: %s", exc)

    def watch(self, interval: float) -> None:
        """Check every `interval` seconds whether the server responds; 0 disables the check."""
        if interval > 0 and self._watch is None and not self._closed:
            self._watch = asyncio.ensure_future(self._look_after(interval))

    def lost(self) -> None:
        """Reconnect in the background immediately,
        so that listeners do not wait for the next request.
        """
        if self.can_renew and self._reviving is None:
            self._reviving = asyncio.ensure_future(self._revive())

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the client is closed.

        Raises:
            ChannelClosed: The client was closed first.
        """
        try:
            async with timeouts.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        # `delivered` is True, because an earlier attempt may have reached the server.
        raise _client_closed(delivered=True)

    async def run_until_closed(self, work: Coroutine[Any, Any, T]) -> T:
        """Await an operation that depends on a user, unless the client is closed first.

        Raises:
            ChannelClosed: The client was closed first, and the operation was cancelled.
        """
        task, over = asyncio.ensure_future(work), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((task, over), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise _client_closed(delivered=True)
        finally:
            over.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    async def close(self) -> None:
        """Stop all checks and reject further connections."""
        self._over.set()
        tasks = (self._watch, self._reviving)
        self._watch = self._reviving = None
        for task in tasks:
            if task is not None and task is not asyncio.current_task():
                task.cancel()
                await asyncio.wait((task,))
        if self._coming is not None:
            await self._coming.close()
            async with self._renewing:
                # The lock is released once the task that was connecting has cleaned up.
                pass

    async def _revive(self) -> None:
        now = asyncio.get_running_loop().time
        backoff = self._backoff = self._backoff or restarts(self._client.config.retry_delay)
        lasted = now() - self._renewed_at
        try:
            while self.can_renew and not self._client.transport.connected:
                await asyncio.sleep(backoff.after(lasted))
                lasted = 0.0
                if not self._client.transport.connected:
                    await self._try_to_renew(self.generation)
        finally:
            # `close` may have reset the attribute, and a later task may have set it again.
            if self._reviving is asyncio.current_task():
                self._reviving = None

    async def _look_after(self, interval: float) -> None:
        while not self._closed:
            # Randomised, so that clients that started together do not check at the same time.
            await asyncio.sleep(interval * random.uniform(0.9, 1.0))
            generation = self.generation
            self.health = await self._client.health_check()
            if self.health["ok"]:
                continue
            log.warning("the server does not answer: %s", self.health.get("error"))
            if self.can_renew:
                await self._try_to_renew(generation)

    async def _try_to_renew(self, failed: int) -> None:
        try:
            await self.renew(failed)
        except (FairleadError, OSError) as exc:
            log.warning("could not connect again: %s", exc)


def _client_closed(*, delivered: bool = False) -> ChannelClosed:
    return ChannelClosed("the client is closed", delivered=delivered)
