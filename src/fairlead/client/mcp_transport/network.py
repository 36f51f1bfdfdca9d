"""Transports for remote servers, over HTTP and WebSocket."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from ...errors import ConfigError, HttpError
from ...keyword_arguments import require_known
from ...observe.log_filter import register_secrets, secrets_of_url
from ...peer import Peer
from ...protocol.headers import ParamHeader
from ...protocol.result_fragments import fragment_content, fragment_notification
from ...transport.channel import Channel
from ...wire import Notification, RequestId, to_json
from ..server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPSseServerConfig,
    MCPWebSocketServerConfig,
    read_entry,
)
from .channel_transport import ChannelOptions, ChannelTransport, not_connected

if TYPE_CHECKING:
    from ...transport.http.client.http_channel import HttpChannel
    from ...transport.http.client.request_authorizer import RequestAuthorizer

__all__ = ["HttpOptions", "HttpTransport", "WebSocketTransport"]


class HttpOptions(TypedDict, total=False):
    """Options for servers over HTTP."""

    listen: bool  # open a stream for messages outside of requests (handshake era)
    pool_size: int  # maximum number of connections for calls
    verify: bool  # False accepts any certificate; only for tests
    ca_file: str | None  # certificates of trusted authorities (PEM); None: those of the system
    ssl_context: ssl.SSLContext | None  # TLS settings, instead of `verify` and `ca_file`
    authorizer: "RequestAuthorizer | None"  # obtains the credentials, for example with OAuth
    # called with a 401 or 403; returns headers for a second attempt, or None
    on_auth_error: "Callable[[HttpError], Awaitable[Mapping[str, str] | None]] | None"
    # called with content blocks of a result that is sent in parts
    on_fragment: "Callable[[RequestId, list[Any]], None] | None"


class HttpTransport(ChannelTransport):
    """The transport for a server over HTTP; the first requests determine the server's era."""

    entry: MCPHttpServerConfig | MCPSseServerConfig

    def __init__(
        self,
        entry: MCPServerEntry | dict[str, Any],
        *,
        http: HttpOptions | None = None,
        **options: Unpack[ChannelOptions],
    ) -> None:
        entry = read_entry(entry)
        if not isinstance(entry, MCPHttpServerConfig | MCPSseServerConfig):
            raise ConfigError(
                f"a server of type {entry.type!r} is not reached over HTTP: "
                "expected type 'http' or 'sse'"
            )
        self.entry = entry
        register_secrets(self, lambda: (entry.headers, secrets_of_url(entry.url)))
        self.param_headers_of: Callable[[str], tuple[ParamHeader, ...]] | None = None
        self._http: HttpOptions = http or {}
        require_known(self._http, HttpOptions.__annotations__)
        authorizer = self._http.get("authorizer")
        self.logins = None if authorizer is None else authorizer.logins
        super().__init__(self._open, entry=entry, **options)

    async def _open(self) -> Channel:
        from ...transport.http.client.http_channel import HttpChannel
        from ...transport.http.client.legacy_sse import LegacySseChannel
        from ...transport.http.client.negotiation import open_http

        options: dict[str, Any] = {
            name: value
            for name, value in self._http.items()
            if name not in ("on_auth_error", "on_fragment")
        }
        channel = await open_http(
            self.entry.url, mode=self.entry.type, headers=self.entry.headers, **options
        )
        if isinstance(channel, HttpChannel):
            self._connect_hooks(channel)
        elif isinstance(channel, LegacySseChannel):
            channel.on_error = self._failed
        return channel

    def _connect_hooks(self, channel: "HttpChannel") -> None:
        channel.on_error = self._failed
        channel.on_auth_error = self._http.get("on_auth_error")
        heard = self._http.get("on_fragment")
        channel.on_fragment = heard if heard is None or not self.interceptors else self._part_came
        channel.param_headers_of = self._params_of

    def _part_came(self, request_id: RequestId, content: list[Any]) -> None:
        """Pass a result fragment through the interceptors before calling `on_fragment`."""
        from ...peer.intercepted_peer import InterceptedPeer

        def deliver(note: Notification) -> None:
            left, heard = fragment_content(note), self._http.get("on_fragment")
            if left is not None and heard is not None:
                heard(request_id, msgspec.json.decode(left))

        assert isinstance(self.peer, InterceptedPeer)
        self.peer.receive_through(deliver, fragment_notification(to_json(content)), request_id)

    def _params_of(self, tool: str) -> tuple[ParamHeader, ...]:
        return () if self.param_headers_of is None else self.param_headers_of(tool)

    def add_headers(self, request_id: RequestId, headers: Mapping[str, str]) -> None:
        self.peer.channel.add_headers(request_id, headers)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        from ...transport.http.client.http_channel import HttpChannel

        peer = self.peer
        channel = peer.channel
        # `initialized` is sent through the channel's queue, where later messages wait for it.
        if not isinstance(channel, HttpChannel) or method == "notifications/initialized":
            await super().notify(method, params)
            return

        async def deliver(note: Notification) -> None:
            await channel.tell(note, timeout=self.timeout)

        message = peer.conversation.notification(method, params)
        if self.interceptors:
            from ...peer.intercepted_peer import InterceptedPeer

            assert isinstance(peer, InterceptedPeer)
            await peer.notify_through(deliver, message)
        else:
            await deliver(message)

    async def start_sse_listener(self) -> None:
        """Open the stream for messages outside of requests (handshake era), unless it is open."""
        from ...transport.http.client.http_channel import HttpChannel

        if isinstance(self.peer.channel, HttpChannel):
            await self.peer.channel.start_listening()


class WebSocketTransport(ChannelTransport):
    """The transport for a server over WebSocket."""

    entry: MCPWebSocketServerConfig

    def __init__(
        self,
        entry: MCPServerEntry | dict[str, Any],
        *,
        ssl: ssl.SSLContext | None = None,
        authorizer: "RequestAuthorizer | None" = None,
        **options: Unpack[ChannelOptions],
    ) -> None:
        entry = read_entry(entry)
        if not isinstance(entry, MCPWebSocketServerConfig):
            raise ConfigError(
                f"a server of type {entry.type!r} is not reached over WebSocket: expected type 'ws'"
            )
        self.entry = entry
        register_secrets(self, lambda: (entry.headers, secrets_of_url(entry.url)))
        self._ssl = ssl
        self._authorizer = authorizer
        self.logins = None if authorizer is None else authorizer.logins
        super().__init__(self._open, entry=entry, **options)

    @property
    def peer(self) -> Peer:
        if self._peer is None and not self._closed:
            raise not_connected("WebSocket not open")
        return super().peer

    async def _open(self) -> Channel:
        from ...transport.websocket.websocket_client import connect_websocket

        entry = self.entry
        return await connect_websocket(
            entry.url,
            headers=entry.headers,
            dialect=entry.dialect,
            ssl=self._ssl,
            open_timeout=self._given_timeout,  # None means 5 seconds
            authorizer=self._authorizer,
        )
