"""Client connections over WebSocket, opened with the library `websockets`."""

import contextlib
import ssl as tls
from collections.abc import Mapping
from typing import Any, Literal, NoReturn
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
from ..local_resources import connect_error
from .toolcall_dialect import ToolCallClientChannel
from .websocket_channel import (
    LINGER,
    SUBPROTOCOL,
    WebSocketChannel,
    WebSocketClientChannel,
    WebSocketClosed,
)

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
) -> WebSocketChannel:
    """Open a WebSocket to a server and offer the subprotocol `mcp`.

    `open_timeout` defaults to 5 seconds; 0 means no limit. `proxy` is True for the proxies of the
    environment, the URL of a proxy, or None for a direct connection.

    Raises:
        ConfigError: The URL is not a `ws:` or `wss:` URL.
        ConnectFailed: The server did not answer in time, or not as a WebSocket server.
        HttpError: The server refused the connection; with its status and response body.
    """
    shown = _shown(url)
    seconds = OPEN_TIMEOUT if open_timeout is None else open_timeout
    options: dict[str, Any] = {} if ssl is None else {"ssl": ssl}
    try:
        connection = await _Connect(
            url,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            # Messages are small or secret, and without compression a server cannot send
            # decompression bombs.
            compression=None,
            additional_headers=dict(headers or {}),
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
    place = urlsplit(shown)
    context = TransportContext(
        transport_type="websocket", path=place.path, peer_address=place.netloc
    )
    kind = ToolCallClientChannel if dialect == "toolcall" else WebSocketClientChannel
    return kind(context, _LibraryConnection(connection))


class _Connect(connect):
    """A `connect` of the library that does not follow redirects to another origin.

    The headers contain credentials.
    """

    def process_redirect(self, exc: Exception) -> Exception | str:
        before = urlsplit(self.uri)
        target = super().process_redirect(exc)
        if isinstance(target, str):
            after = urlsplit(target)
            if (before.scheme, before.netloc) != (after.scheme, after.netloc):
                return SecurityError(f"redirected to another origin ({after.netloc})")
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
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
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


def _shown(url: str) -> str:
    """Return a URL without the parts that may contain secrets."""
    try:
        parts = urlsplit(url)
        return parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query="", fragment=""
        ).geturl()
    except ValueError:
        return "the URL"
