"""Client connections over WebSocket, opened with the library `websockets`."""

import contextlib
import ssl as tls
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    SecurityError,
    WebSocketException,
)
from websockets.protocol import State
from websockets.typing import Subprotocol

from ...errors import ConfigError, ConnectFailed, HttpError
from ...protocol.envelope import TransportContext
from ...wire import MAX_MESSAGE
from ..address_hint import shown_url
from ..http.client.http1.header_fields import merge_headers
from ..http.client.http1.http_client import MAX_AUTHORIZATIONS
from ..http.client.http1.url import basic_authorization
from ..local_resources import connect_error
from .toolcall_dialect import ToolCallClientChannel
from .websocket_channel import (
    LINGER,
    SUBPROTOCOL,
    WebSocketChannel,
    WebSocketClientChannel,
    WebSocketClosed,
)

if TYPE_CHECKING:
    from ..http.client.request_authorizer import RequestAuthorizer

__all__ = ["WebSocketDialect", "connect_websocket"]

OPEN_TIMEOUT = 5.0  # seconds to open a connection, unless a request timeout is configured
PING_INTERVAL = 20.0  # seconds between pings; a server that does not answer in this time is lost
MAX_ERROR_BODY = 4096  # bytes of an error response that are kept

WebSocketDialect = Literal["jsonrpc", "toolcall"]


async def connect_websocket(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    open_timeout: float | None = None,
    max_size: int = MAX_MESSAGE,
    ssl: tls.SSLContext | None = None,
    dialect: WebSocketDialect = "jsonrpc",
    proxy: str | Literal[True] | None = True,
    ping_interval: float | None = PING_INTERVAL,
    authorizer: "RequestAuthorizer | None" = None,
) -> WebSocketChannel:
    """Open a WebSocket to a server and offer the subprotocol `mcp`.

    `open_timeout` defaults to 5 seconds; 0 means no limit. `proxy` is True for the proxies set in
    the environment, the URL of a proxy, or None for a direct connection. `authorizer` obtains the
    credentials of the upgrade request; the time for this is not part of `open_timeout`.

    Raises:
        ConfigError: The URL is not a `ws:` or `wss:` URL.
        ConnectFailed: The server did not answer in time, or not as a WebSocket server.
        HttpError: The server refused the connection; with its status and response body.
        AuthorizationError: The server requires credentials that could not be obtained.
    """
    shown = shown_url(url)
    url, own = _without_credentials(url)
    configured = merge_headers(own, headers or {})
    seconds = OPEN_TIMEOUT if open_timeout is None else open_timeout
    options: dict[str, Any] = {} if ssl is None else {"ssl": ssl}

    def headers_for(target: str) -> Mapping[str, str] | None:
        """Return the headers after a redirect, or None if it may not receive the credentials."""
        if authorizer is None:
            return configured
        given = authorizer.current("GET", target) if authorizer.covers(target) else None
        return None if given is None else merge_headers(configured, given)

    async def upgrade(credentials: Mapping[str, str]) -> ClientConnection:
        try:
            return await _Connect(
                url,
                headers_for=headers_for,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                # Messages are small or secret, and may be decompression bombs.
                compression=None,
                additional_headers=merge_headers(configured, credentials),
                user_agent_header="fairlead",
                open_timeout=seconds or None,
                ping_interval=ping_interval,
                ping_timeout=ping_interval,
                close_timeout=LINGER,
                max_size=max_size,
                proxy=proxy,
                **options,
            )
        except Exception as exc:
            _translate(exc, shown, seconds)

    connection = await _authorized(url, upgrade, authorizer)
    place = urlsplit(shown)
    context = TransportContext(
        transport_type="websocket", path=place.path, peer_address=place.netloc
    )
    kind = ToolCallClientChannel if dialect == "toolcall" else WebSocketClientChannel
    return kind(context, _LibraryConnection(connection))


async def _authorized(
    url: str,
    upgrade: Callable[[Mapping[str, str]], Awaitable[ClientConnection]],
    authorizer: "RequestAuthorizer | None",
) -> ClientConnection:
    """Open a connection with credentials, which are renewed if the server refuses them."""
    if authorizer is None:
        return await upgrade({})
    for left in range(MAX_AUTHORIZATIONS, -1, -1):
        given = await authorizer.prepare("GET", url)
        try:
            connection = await upgrade(given)
        except HttpError as exc:
            refused = exc.status in (401, 403) and left
            if not refused or not await authorizer.challenged(exc.status, exc.headers, given):
                raise
        else:
            if left < MAX_AUTHORIZATIONS:
                authorizer.accepted()
            return connection
    raise AssertionError("the last attempt returns or raises")


class _Connect(connect):
    """A `connect` of the library that follows only redirects which may receive the credentials."""

    def __init__(
        self, url: str, headers_for: Callable[[str], Mapping[str, str] | None], **options: Any
    ) -> None:
        super().__init__(url, **options)
        self._headers_for = headers_for

    def process_redirect(self, exc: Exception) -> Exception | str:
        before = urlsplit(self.uri)
        target = super().process_redirect(exc)
        if isinstance(target, str):
            after = urlsplit(target)
            if (before.scheme, before.netloc) != (after.scheme, after.netloc):
                return SecurityError(f"redirected to another origin ({after.netloc})")
            if (fresh := self._headers_for(target)) is None:
                return SecurityError(
                    f"redirected to {after.path}, to which its credentials are not sent"
                )
            self.additional_headers = fresh
        return target


class _LibraryConnection:
    """A `WebSocketConnection` on a connection of the library."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @property
    def open(self) -> bool:
        return self._connection.state is State.OPEN

    async def receive(self) -> str | bytes:
        try:
            return await self._connection.recv()
        except ConnectionClosed as exc:
            raise _gone(exc) from exc

    async def send(self, frame: bytes) -> None:
        try:
            await self._connection.send(frame, text=True)
        except ConnectionClosed as exc:
            raise _gone(exc) from exc

    async def close(self, code: int, reason: str) -> None:
        await self._connection.close(code, reason)

    def abort(self) -> None:
        # A transport that is losing its connection may raise.
        with contextlib.suppress(Exception):
            self._connection.transport.abort()


def _gone(exc: ConnectionClosed) -> WebSocketClosed:
    """Translate an exception of the library.

    The first close frame contains the reason; the second only repeats its code.
    """
    first = exc.rcvd if exc.rcvd is not None and exc.rcvd_then_sent is not False else exc.sent
    if first is None:
        return WebSocketClosed(1006, str(exc.__cause__ or ""))
    return WebSocketClosed(first.code, first.reason)


def _translate(exc: Exception, shown: str, seconds: float) -> NoReturn:
    if isinstance(exc, InvalidStatus):
        response = exc.response
        names = {name.lower() for name in response.headers}
        headers = {name: ", ".join(response.headers.get_all(name)) for name in names}
        body = bytes(response.body or b"")[:MAX_ERROR_BODY].decode("utf-8", "replace")
        raise HttpError(response.status_code, body, headers) from exc
    if isinstance(exc, TimeoutError):
        text = f"WebSocket open timeout after {seconds * 1000:.0f}ms: {shown} did not answer"
        raise ConnectFailed(text) from exc
    if isinstance(exc, InvalidURI):
        raise ConfigError(f"{shown} is not a WebSocket URL: {exc.msg}") from exc
    if isinstance(exc, InvalidHandshake):
        raise ConnectFailed(f"{shown} is not a WebSocket server: {exc}") from exc
    if isinstance(exc, OSError | WebSocketException | ImportError | ValueError):
        raise connect_error(f"Could not connect to {shown}: {exc}", exc) from exc
    raise exc


def _without_credentials(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without its credentials, and the header with them.

    The library would send them in addition to a configured `Authorization` header.
    """
    try:
        parts = urlsplit(url)
        value = basic_authorization(parts.username, parts.password)
    except ValueError:  # the library reports the mistake
        return url, {}
    if value is None:
        return url, {}
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return plain, {"Authorization": value}
