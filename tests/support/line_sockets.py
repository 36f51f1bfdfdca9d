"""Line-based servers on Unix domain sockets and TCP ports, for tests of channels."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import cast

from fairlead.protocol.envelope import TransportContext
from fairlead.transport.line_channel import LineChannel, SocketProtocol
from fairlead.wire import MAX_MESSAGE

AcceptChannel = Callable[[LineChannel], None]  # called with each new channel


@contextlib.asynccontextmanager
async def listen_unix(
    path: str, accept: AcceptChannel, *, limit: int = MAX_MESSAGE
) -> AsyncIterator[asyncio.Server]:
    """Accept connections on a unix domain socket."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: _Accepted("unix", accept, limit), path)
    async with _closing(server):
        yield server
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


@contextlib.asynccontextmanager
async def listen_tcp(
    host: str, port: int, accept: AcceptChannel, *, limit: int = MAX_MESSAGE
) -> AsyncIterator[asyncio.Server]:
    """Accept connections on a TCP port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Accepted("tcp", accept, limit), host, port)
    async with _closing(server):
        yield server


@contextlib.asynccontextmanager
async def _closing(server: asyncio.Server) -> AsyncIterator[None]:
    try:
        yield
    finally:
        server.close()


class _Accepted(SocketProtocol):
    def __init__(self, kind: str, accept: AcceptChannel, limit: int) -> None:
        super().__init__(LineChannel(TransportContext(transport_type=kind), limit=limit))
        self._accept = accept

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        both = cast(asyncio.Transport, transport)
        self._channel.attach(both, both)
        self._accept(self._channel)
