"""Base class for transports that use a `Channel`, a long-lived stream of messages."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypedDict, Unpack

import msgspec
from msgspec import UnsetType

from ...errors import ChannelClosed, FairleadError, RpcError
from ...interceptor import Answer, Exchange, Handler, Interceptor, OnMalformed, chain
from ...observe.log_filter import ABOUT
from ...peer import Peer
from ...protocol.caller import ANONYMOUS
from ...protocol.conversation.conversation import Conversation, ConversationRole
from ...protocol.outgoing_params import Identity
from ...protocol.trace_context import request_trace
from ...transport.channel import Channel
from ...transport.login_waits import LoginWaits
from ...wire import Notification, RequestId, to_json
from ...wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from ..server_entry import MCPServerEntry
from .mcp_transport import MCPTransport, RequestOptions, abortable

__all__ = ["ChannelOptions", "ChannelTransport", "not_connected", "with_headers"]

log = logging.getLogger("fairlead.client")

_NEVER_CONNECTED = (
    "Transport not connected: use `async with`, or first await `initialize()` of the client or "
    "`connect()` of the transport"
)


class ChannelOptions(TypedDict, total=False):
    """Options shared by all channel transports; an `MCPClient` sets all of them."""

    timeout: float | None  # default timeout for requests, in seconds
    identity: Identity | None  # name, version and capabilities of this client
    gated: bool  # refuse requests before the handshake is complete
    # Maximum number of seconds for which an input request may pause the deadlines.
    input_timeout: float


class ChannelTransport(MCPTransport):
    """A transport that uses a `Channel`, a long-lived stream of messages."""

    entry: MCPServerEntry | None = None  # the entry that describes the server, if any
    logins: LoginWaits | None = None  # records when requests wait for a user

    def __init__(
        self,
        open_channel: Callable[[], Awaitable[Channel]],
        *,
        entry: MCPServerEntry | None = None,
        **options: Unpack[ChannelOptions],
    ) -> None:
        """Create a transport.

        `entry` sets the request id format, and the timeout unless `timeout` is given.
        """
        timeout = options.get("timeout")
        if timeout is None and entry is not None and entry.timeout is not None:
            timeout = entry.timeout / 1000
        super().__init__(timeout=timeout)
        self._given_timeout = timeout
        self._input_timeout = options.get("input_timeout", 600.0)
        self._open_channel = open_channel
        self._conversation = Conversation(
            ConversationRole.CLIENT,
            options.get("identity"),
            id_format="integer" if entry is None else entry.request_id_format,
            gated=options.get("gated", False),
            principal=ANONYMOUS,  # the principal of a server is not authenticated
        )
        # called with each notification immediately, before any listener
        self.overhear: Callable[[Notification], None] | None = None
        # Returns a handler that answers a request from the server instead of `on_request`, or None.
        self.answer_with: Callable[[Exchange], Handler | None] | None = None
        # called when the connection is lost, before `on_close`; not called after `close()`
        self.on_lost: Callable[[], None] | None = None
        self.on_malformed: OnMalformed | None = None
        self.interceptors: Sequence[Interceptor] = ()  # must be set before `connect`
        self.server_name = ""  # name of the server in log lines
        self._peer: Peer | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._closed = False

    @property
    def peer(self) -> Peer:
        """The peer of the connection.

        Raises:
            ChannelClosed: The transport was not connected.
        """
        if self._peer is None:
            raise not_connected() if self._closed else not_connected(_NEVER_CONNECTED)
        return self._peer

    async def open_channel(self) -> Channel:
        """Open only the channel, for callers that manage the conversation."""
        return await self._open_channel()

    @property
    def connected(self) -> bool:
        return self._peer is not None and self._peer.connected

    @property
    def unreadable_output(self) -> tuple[str, ...]:
        """The first lines that the server wrote before its first message, redacted and escaped."""
        return () if self._peer is None else self._peer.unreadable_output

    async def connect(self) -> None:
        async with self._connecting:
            self._check_open()
            if self._peer is not None:
                return
            channel = await self._open_channel()
            try:
                # Another task may have closed the transport in the meantime.
                self._check_open()
            except ChannelClosed:
                await channel.close()
                raise
            self._peer = self._make_peer(channel)
            self._peer.on_malformed = self.on_malformed
            self._peer.state.peer_name = self.server_name
            self._peer.start()

    def _check_open(self) -> None:
        if self._closed or (self._peer is not None and not self._peer.connected):
            # A closed transport is not reopened.
            raise not_connected()

    def _make_peer(self, channel: Channel) -> Peer:
        make: Callable[..., Peer] = Peer
        if self.interceptors:
            # Imported only if needed: most connections have no interceptors.
            from ...peer.intercepted_peer import InterceptedPeer

            make = partial(InterceptedPeer, interceptors=self.interceptors)
        return make(
            channel,
            self._conversation,
            handler=chain(self.interceptors, self._answer),
            on_notification=self._told,
            on_error=self._failed,
            on_close=self._ended,
            input_timeout=self._input_timeout,
        )

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        options: RequestOptions | None = None,
    ) -> Any:
        options = options or RequestOptions()
        on_sent = options.on_sent
        if options.headers:
            on_sent = with_headers(lambda: self, options.headers, on_sent)
        request = self.peer.request(
            method,
            params,
            timeout=self.timeout if options.timeout is None else options.timeout,
            on_progress=options.on_progress,
            on_sent=on_sent,
        )
        if options.signal is not None:
            request = abortable(request, options.signal)
        return msgspec.json.decode(await request)

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        """Add headers to one request, if the transport has headers. Call it in `on_sent`."""

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self.peer.notify(method, params, timeout=self.timeout)

    async def close(self) -> None:
        self._closed = True
        if self._peer is not None:
            await self._peer.close()
            self._notification_queue.close()

    async def _answer(self, exchange: Exchange) -> Answer:
        """Answer a request from the server: `ping` directly, all others with `on_request`."""
        other = None if self.answer_with is None else self.answer_with(exchange)
        if other is not None:
            return await other(exchange)
        if exchange.method == "ping":
            return b"{}"
        if self.on_request is None:
            raise RpcError(METHOD_NOT_FOUND, "Method not found")
        params = exchange.message.params
        given = {} if isinstance(params, UnsetType) else msgspec.json.decode(params)
        try:
            with request_trace(exchange.head.meta):
                return to_json(await self.on_request(exchange.method, given))
        except FairleadError:
            raise
        # `on_request` is user code; an exception becomes an error response.
        except Exception as exc:
            log.exception("on_request failed for %s", exchange.method, extra={ABOUT: given})
            code = getattr(exc, "code", INTERNAL_ERROR)
            if not isinstance(code, int):
                code = INTERNAL_ERROR
            raise RpcError(code, str(exc) or type(exc).__name__) from exc

    def _told(self, notification: Notification) -> None:
        if self.overhear is not None:
            self.overhear(notification)
        self._notification_queue.put(notification)

    def _failed(self, error: Exception) -> None:
        if self.on_error is not None:
            self.on_error(error)

    def _ended(self, end: ChannelClosed) -> None:
        if self.on_lost is not None and not self._closed:
            self.on_lost()
        if self.on_close is not None:
            self.on_close(end)


def with_headers(
    transport: Callable[[], ChannelTransport],
    headers: Mapping[str, str],
    on_sent: Callable[[RequestId], None] | None = None,
) -> Callable[[RequestId], None]:
    """Return an `on_sent` callback that adds headers to a request each time it is sent."""

    def sent(request_id: RequestId) -> None:
        transport().add_headers(request_id, headers)
        if on_sent is not None:
            on_sent(request_id)

    return sent


def not_connected(text: str = "Transport not connected") -> ChannelClosed:
    """Build the error for sending on a transport that is not connected, or is closed."""
    error = ChannelClosed(delivered=False)
    error.args = (text,)
    return error
