"""`MCPTransport`: the public interface of a connection, with one method per kind of message."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from msgspec import Raw

from ...errors import ChannelClosed
from ...keyword_arguments import named_settings
from ...peer import OnProgress
from ...wire import RequestId
from ..client_config import request_timeout
from .notification_queue import NotificationListener, NotificationQueue

__all__ = ["AbortSignal", "MCPTransport", "OnRequest", "RequestOptions", "abortable"]

# Answers a request from the server: takes method and params, returns the result.
OnRequest = Callable[[str, dict[str, Any]], Awaitable[Any]]


class AbortSignal:
    """A signal that aborts requests that other tasks are waiting for."""

    def __init__(self) -> None:
        self.aborted = False
        self.reason: BaseException | None = None
        self._callbacks: set[Callable[[], None]] = set()

    def abort(self, reason: BaseException | None = None) -> None:
        """Abort the requests; they raise `reason`, or `asyncio.CancelledError` if it is None."""
        if self.aborted:
            return
        self.aborted, self.reason = True, reason
        for callback in tuple(self._callbacks):
            callback()


@named_settings
@dataclass(kw_only=True)
class RequestOptions:
    """Options of one request."""

    timeout: float | None = None  # seconds; 0 means no limit
    signal: AbortSignal | None = None  # aborts the request
    on_progress: OnProgress | None = None  # called with the progress of the request
    headers: Mapping[str, str] | None = None  # sent only by transports that support headers
    on_sent: Callable[[RequestId], None] | None = None  # called with the request's id


class MCPTransport(ABC):
    """A connection to one server. A closed transport cannot be reopened; create a new one."""

    def __init__(self, *, timeout: float | None = None) -> None:
        """Create a transport. `timeout` is the default timeout for requests, in seconds."""
        self.on_close: Callable[[ChannelClosed], None] | None = None
        self.on_error: Callable[[Exception], None] | None = None
        self.on_request: OnRequest | None = None
        self.timeout = request_timeout(None if timeout is None else timeout * 1000)
        self._notification_queue = NotificationQueue()

    @property
    def on_notification(self) -> NotificationListener | None:
        """The listener for all notifications.

        The first listener also receives earlier notifications.
        """
        return self._notification_queue.listener

    @on_notification.setter
    def on_notification(self, listener: NotificationListener | None) -> None:
        self._notification_queue.listener = listener

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Return True if requests can be sent."""

    @abstractmethod
    async def connect(self) -> None:
        """Open the connection. Safe to call more than once.

        Raises:
            ConnectFailed: The connection could not be opened.
        """

    @abstractmethod
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        options: RequestOptions | None = None,
    ) -> Any:
        """Send a request and return its decoded result.

        Raises:
            RpcError: The server answered with an error.
            RequestTimeout: No response came in time.
            ChannelClosed: The connection ended.
            BaseException: The signal aborted the request; this is its reason.
        """

    @abstractmethod
    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification.

        Raises:
            ChannelClosed: The connection ended.
            RequestTimeout: The server did not read the notification in time.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connection in bounded time. Any task may call this method, more than once."""

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


async def abortable(request: Awaitable[Raw], signal: AbortSignal) -> Raw:
    """Wait for a request that a signal may abort."""
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
