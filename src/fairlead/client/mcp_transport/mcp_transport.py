"""`MCPTransport`: the plain face of a connection, for people who want one method call."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from msgspec import Raw

from ...errors import ChannelClosed
from ...peer import OnProgress
from ...wire import RequestId
from ..client_config import request_timeout
from .notification_queue import NotificationListener, NotificationQueue

__all__ = ["AbortSignal", "MCPTransport", "OnRequest", "RequestOptions", "abortable"]

# Answers a request of the server: method and params in, the result out.
OnRequest = Callable[[str, dict[str, Any]], Awaitable[Any]]


class AbortSignal:
    """Lets one place stop requests that another waits for."""

    def __init__(self) -> None:
        self.aborted = False
        self.reason: BaseException | None = None
        self._callbacks: set[Callable[[], None]] = set()

    def abort(self, reason: BaseException | None = None) -> None:
        """Stop them. They raise `reason`, or `asyncio.CancelledError` if there is none."""
        if self.aborted:
            return
        self.aborted, self.reason = True, reason
        for callback in tuple(self._callbacks):
            callback()


@dataclass(kw_only=True)
class RequestOptions:
    """How one request is made."""

    timeout: float | None = None  # seconds; 0 means no limit
    signal: AbortSignal | None = None
    on_progress: OnProgress | None = None
    headers: Mapping[str, str] | None = None  # where the transport has headers
    on_sent: Callable[[RequestId], None] | None = None  # learns the id of the request


class MCPTransport(ABC):
    """A connection to one server. Closed is closed: recovery makes a new one."""

    def __init__(self, *, timeout: float | None = None) -> None:
        """`timeout` is the default for requests, in seconds."""
        self.on_close: Callable[[ChannelClosed], None] | None = None
        self.on_error: Callable[[Exception], None] | None = None
        self.on_request: OnRequest | None = None
        self.timeout = request_timeout(None if timeout is None else timeout * 1000)
        self._notification_queue = NotificationQueue()

    @property
    def on_notification(self) -> NotificationListener | None:
        """Hears every notification; the first one set also hears what came before."""
        return self._notification_queue.listener

    @on_notification.setter
    def on_notification(self, listener: NotificationListener | None) -> None:
        self._notification_queue.listener = listener

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether requests can be made."""

    @abstractmethod
    async def connect(self) -> None:
        """Open the connection; more than once is harmless. Raises `ConnectFailed`."""

    @abstractmethod
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        options: RequestOptions | None = None,
    ) -> Any:
        """Make one request and return its decoded result.

        Raises:
            RpcError: the server said no.
            RequestTimeout: no answer in time; a caller's abort raises its own reason instead.
            ChannelClosed: the connection ended.
        """

    @abstractmethod
    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification. Raises `ChannelClosed`, or `RequestTimeout` if nobody reads."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection in bounded time; by any task, more than once."""

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def abortable(request: Awaitable[Raw], signal: AbortSignal) -> Raw:
    """Wait for a request that a signal may stop."""
    task = asyncio.ensure_future(request)

    def stop() -> None:
        task.cancel()

    signal._callbacks.add(stop)
    if signal.aborted:
        stop()
    try:
        return await task
    except asyncio.CancelledError:
        if signal.aborted and signal.reason is not None:
            raise signal.reason from None
        raise
    finally:
        signal._callbacks.discard(stop)
        if not task.done():
            task.cancel()
