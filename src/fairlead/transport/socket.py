"""Client channels over unix domain sockets and TCP, with the line framing of stdio."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from ..protocol.envelope import TransportContext
from ..wire import MAX_MESSAGE
from . import timeouts
from .line_channel import LineChannel, SocketProtocol
from .local_resources import connect_error

__all__ = ["connect_tcp", "connect_unix"]

CONNECT_TIMEOUT = 30.0  # seconds for opening a connection


async def connect_unix(path: str, *, limit: int = MAX_MESSAGE) -> LineChannel:
    """Connect to a unix domain socket.

    Raises:
        ConnectFailed: The connection could not be opened; the message contains the path.
    """
    connect = asyncio.get_running_loop().create_unix_connection
    context = TransportContext(transport_type="unix", peer_address=path)
    return await _connect(
        context, limit, f"the unix socket {path}", lambda protocol: connect(protocol, path)
    )


async def connect_tcp(host: str, port: int, *, limit: int = MAX_MESSAGE) -> LineChannel:
    """Connect to a TCP port.

    Raises:
        ConnectFailed: The connection could not be opened; the message contains host and port.
    """
    connect = asyncio.get_running_loop().create_connection
    context = TransportContext(transport_type="tcp", peer_address=f"{host}:{port}")
    return await _connect(
        context, limit, f"{host}:{port}", lambda protocol: connect(protocol, host, port)
    )


async def _connect(
    context: TransportContext,
    limit: int,
    place: str,
    connect: Callable[[Callable[[], SocketProtocol]], Awaitable[Any]],
) -> LineChannel:
    channel = LineChannel(context, limit=limit)
    try:
        async with timeouts.timeout(CONNECT_TIMEOUT):
            await connect(lambda: _Socket(channel))
    except OSError as exc:
        # `TimeoutError` is an `OSError` without a text.
        why = str(exc) or f"no connection within {CONNECT_TIMEOUT:g} s"
        raise connect_error(f"Could not connect to {place}: {why}", exc) from exc
    return channel


class _Socket(SocketProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        both = cast(asyncio.Transport, transport)
        self._channel.attach(both, both)
