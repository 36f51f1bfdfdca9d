"""`MCPTransport`: the plain face of a connection, for people who want one method call.

`MCPClient` uses the same machinery underneath.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import msgspec
from msgspec import Raw, UnsetType

from ..errors import ChannelClosed, FairleadError, RpcError
from ..interceptor import Answer, Exchange
from ..peer import OnProgress, Peer
from ..protocol.conversation import Conversation, Role
from ..protocol.outgoing import Identity
from ..transport.base import Channel
from ..wire import Notification, RequestId, to_json
from ..wire.codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from .config import MCPStdioServerConfig, read_entry, request_timeout
from .mailbox import Listener, Mailbox

__all__ = [
    "AbortSignal",
    "ChannelTransport",
    "MCPTransport",
    "OnRequest",
    "RequestOptions",
    "StdioTransport",
    "create_stdio_transport",
    "create_transport",
    "register_transport",
]

log = logging.getLogger("fairlead.client")

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
        self._mailbox = Mailbox()

    @property
    def on_notification(self) -> Listener | None:
        """Hears every notification; the first one set also hears what came before."""
        return self._mailbox.listener

    @on_notification.setter
    def on_notification(self, listener: Listener | None) -> None:
        self._mailbox.listener = listener

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


class ChannelTransport(MCPTransport):
    """A transport on a `Channel`: everything that is a long-lived stream of messages."""

    def __init__(
        self,
        open_channel: Callable[[], Awaitable[Channel]],
        *,
        timeout: float | None = None,
        identity: Identity | None = None,
        id_format: str = "integer",
        gated: bool = False,
        input_timeout: float = 600.0,
    ) -> None:
        super().__init__(timeout=timeout)
        self._input_timeout = input_timeout
        self._open_channel = open_channel
        self._conversation = Conversation(
            Role.CLIENT,
            identity,
            id_format="string" if id_format == "string" else "integer",
            gated=gated,
        )
        self.overhear: Callable[[Notification], None] | None = None  # before any listener, at once
        self._peer: Peer | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._closed = False

    @property
    def peer(self) -> Peer:
        """The machinery underneath. Raises `ChannelClosed` before `connect`."""
        if self._peer is None:
            raise _not_connected()
        return self._peer

    @property
    def connected(self) -> bool:
        return self._peer is not None and self._peer.connected

    async def connect(self) -> None:
        async with self._connecting:
            if self._closed or (self._peer is not None and not self._peer.connected):
                raise _not_connected()  # closed stays closed
            if self._peer is not None:
                return
            channel = await self._open_channel()
            self._peer = Peer(
                channel,
                self._conversation,
                handler=self._answer,
                on_notification=self._told,
                on_error=self._failed,
                on_close=self._ended,
                input_timeout=self._input_timeout,
            )
            self._peer.start()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        options: RequestOptions | None = None,
    ) -> Any:
        options = options or RequestOptions()
        request = self.peer.request(
            method,
            params,
            timeout=self.timeout if options.timeout is None else options.timeout,
            on_progress=options.on_progress,
            on_sent=options.on_sent,
        )
        if options.signal is not None:
            request = _abortable(request, options.signal)
        return msgspec.json.decode(await request)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self.peer.notify(method, params, timeout=self.timeout)

    async def close(self) -> None:
        self._closed = True
        if self._peer is not None:
            await self._peer.close()
            self._mailbox.close()

    async def _answer(self, exchange: Exchange) -> Answer:
        """A request of the server. `ping` needs nobody; for the rest there is `on_request`."""
        if exchange.method == "ping":
            return b"{}"
        if self.on_request is None:
            raise RpcError(METHOD_NOT_FOUND, "Method not found")
        params = exchange.message.params
        given = {} if isinstance(params, UnsetType) else msgspec.json.decode(params)
        try:
            return to_json(await self.on_request(exchange.method, given))
        except FairleadError:
            raise
        except Exception as exc:
            log.exception("on_request failed for %s", exchange.method)
            code = getattr(exc, "code", INTERNAL_ERROR)
            if not isinstance(code, int):
                code = INTERNAL_ERROR
            raise RpcError(code, str(exc) or type(exc).__name__) from exc

    def _told(self, notification: Notification) -> None:
        if self.overhear is not None:
            self.overhear(notification)
        self._mailbox.put(notification)

    def _failed(self, error: Exception) -> None:
        if self.on_error is not None:
            self.on_error(error)

    def _ended(self, end: ChannelClosed) -> None:
        if self.on_close is not None:
            self.on_close(end)


class StdioTransport(ChannelTransport):
    """A server as a child process."""

    def __init__(
        self,
        entry: MCPStdioServerConfig | dict[str, Any],
        *,
        on_stderr: Callable[[str], None] | None = None,
        identity: Identity | None = None,
        timeout: float | None = None,
        gated: bool = False,
        input_timeout: float = 600.0,
    ) -> None:
        self.entry = read_entry(entry)
        self.on_stderr = on_stderr
        entry_timeout = None if self.entry.timeout is None else self.entry.timeout / 1000
        super().__init__(
            self._spawn,
            timeout=timeout if timeout is not None else entry_timeout,
            identity=identity,
            id_format=self.entry.request_id_format,
            gated=gated,
            input_timeout=input_timeout,
        )

    async def _spawn(self) -> Channel:
        from ..transport.process import spawn

        entry = self.entry
        return await spawn(
            [entry.command, *entry.args],
            env=entry.env,
            cwd=entry.cwd,
            inherit_env=entry.inherit_env,
            on_stderr=self.on_stderr,
        )


TransportFactory = Callable[[dict[str, Any]], MCPTransport]
_registered: dict[str, TransportFactory] = {}


def register_transport(kind: str, factory: TransportFactory) -> None:
    """Make `create_transport` understand another `type`."""
    _registered[kind] = factory


def create_transport(entry: MCPStdioServerConfig | dict[str, Any]) -> MCPTransport:
    """The transport for a server entry, by its `type`; not connected yet.

    Raises:
        ConfigError: `Unknown server type: ...`, or what else is wrong with the entry.
    """
    if isinstance(entry, dict) and (factory := _registered.get(entry.get("type", ""))):
        return factory(entry)
    return StdioTransport(read_entry(entry))


async def create_stdio_transport(
    entry: MCPStdioServerConfig | dict[str, Any],
) -> StdioTransport:
    """A connected transport; cleaned up if connecting fails."""
    transport = StdioTransport(entry)
    try:
        await transport.connect()
    except BaseException:
        await transport.close()
        raise
    return transport


def _not_connected() -> ChannelClosed:
    error = ChannelClosed(delivered=False)
    error.args = ("Transport not connected",)
    return error


async def _abortable(request: Awaitable[Raw], signal: AbortSignal) -> Raw:
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
