"""Unix domain sockets and TCP with the same lines as stdio, both ends."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from typing import cast

from ..errors import ConnectFailed
from ..protocol.envelope import TransportContext
from ..wire import MAX_MESSAGE
from .line_channel import LineChannel, SocketProtocol

__all__ = ["connect_tcp", "connect_unix", "listen_tcp", "listen_unix"]

CONNECT_TIMEOUT = 30.0

AcceptChannel = Callable[[LineChannel], None]  # is handed each new channel; returns at once


async def connect_unix(path: str, *, limit: int = MAX_MESSAGE) -> LineChannel:
    """Connect to a unix domain socket.

    Raises:
        ConnectFailed: naming the path.
    """
    channel = LineChannel(TransportContext(transport_type="unix", peer_address=path), limit=limit)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await loop.create_unix_connection(lambda: _Socket(channel), path)
    except OSError as exc:
        raise ConnectFailed(f"Could not connect to the unix socket {path}: {_why(exc)}") from exc
    return channel


async def connect_tcp(host: str, port: int, *, limit: int = MAX_MESSAGE) -> LineChannel:
    """Connect to a TCP port.

    Raises:
        ConnectFailed: naming host and port.
    """
    address = f"{host}:{port}"
    channel = LineChannel(TransportContext(transport_type="tcp", peer_address=address), limit=limit)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            await loop.create_connection(lambda: _Socket(channel), host, port)
    except OSError as exc:
        raise ConnectFailed(f"Could not connect to {address}: {_why(exc)}") from exc
    return channel


@contextlib.asynccontextmanager
async def listen_unix(
    path: str, accept: AcceptChannel, *, limit: int = MAX_MESSAGE
) -> AsyncIterator[asyncio.Server]:
    """Accept connections on a unix domain socket that only its owner may open.

    A stale socket file is replaced; a path that is something else, or in use, is an `OSError`.
    """
    _remove_stale(path)

    def protocol() -> _Socket:
        return _Socket(LineChannel(TransportContext(transport_type="unix"), limit=limit), accept)

    sock = _bind_unix(path)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_unix_server(protocol, sock=sock, start_serving=False)
        async with _serving(server):
            yield server
    finally:
        sock.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


@contextlib.asynccontextmanager
async def listen_tcp(
    host: str, port: int, accept: AcceptChannel, *, limit: int = MAX_MESSAGE
) -> AsyncIterator[asyncio.Server]:
    """Accept connections on a TCP port. There is no authentication here: bind to loopback."""

    def protocol() -> _Socket:
        return _Socket(LineChannel(TransportContext(transport_type="tcp"), limit=limit), accept)

    loop = asyncio.get_running_loop()
    async with _serving(await loop.create_server(protocol, host, port, start_serving=False)) as it:
        yield it


@contextlib.asynccontextmanager
async def _serving(server: asyncio.Server) -> AsyncIterator[asyncio.Server]:
    """Not begun while it is made: whoever is cancelled then would have nothing to close."""
    try:
        await server.start_serving()
        yield server
    finally:
        server.close()


class _Socket(SocketProtocol):
    def __init__(self, channel: LineChannel, accept: AcceptChannel | None = None) -> None:
        super().__init__(channel)
        self._accept = accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        both = cast(asyncio.Transport, transport)
        if (sock := transport.get_extra_info("socket")) is not None:
            with contextlib.suppress(OSError):
                if sock.family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._channel.attach(both, both)
        if self._accept is not None:
            self._accept(self._channel)


def _why(exc: OSError) -> str:
    return str(exc) or f"no connection within {CONNECT_TIMEOUT:g} s"


def _bind_unix(path: str) -> socket.socket:
    """Bound under a narrow umask: there is no moment in which another user could connect."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(path)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    sock.setblocking(False)
    return sock


def _remove_stale(path: str) -> None:
    """Remove a socket file that nobody listens on any more."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"{path} exists and is no socket")
    except FileNotFoundError:
        return
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        probe.settimeout(1)
        probe.connect(path)
    except (ConnectionRefusedError, FileNotFoundError):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    else:
        raise FileExistsError(f"Somebody already listens on {path}")
    finally:
        probe.close()
