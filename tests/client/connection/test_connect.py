"""Tests of closing a client while it connects, and of connection errors."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.connection.connect import _is_refusal, _lost
from fairlead.client.mcp_transport.channel_transport import ChannelTransport
from fairlead.errors import ChannelClosed, HttpError, RemoteProtocolError, RpcError
from fairlead.transport.channel import Channel
from fairlead.transport.socket import connect_tcp

LIMIT = 10.0
CONFIG = MCPClientConfig(protocol_version="2025-11-25", timeout_seconds=LIMIT)


class Guestbook:
    """A server that answers `initialize` and records connections."""

    def __init__(self) -> None:
        self.came, self.left = asyncio.Event(), asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.set()
        answer = (
            b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25",'
            b'"capabilities":{},"serverInfo":{"name":"raw","version":"1"}}}\n'
        )
        while line := await reader.readline():
            if b'"initialize"' in line:
                writer.write(answer)
        writer.close()
        self.left.set()


@contextlib.asynccontextmanager
async def guestbook() -> AsyncIterator[Guestbook]:
    book = Guestbook()
    server = await asyncio.start_server(book.serve, "127.0.0.1", 0)
    book.port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(LIMIT), server:
        yield book


async def test_closing_a_client_while_it_connects_closes_the_connection() -> None:
    async with guestbook() as book:
        go_on = asyncio.Event()

        async def slow() -> Channel:
            channel = await connect_tcp("127.0.0.1", book.port)
            await go_on.wait()
            return channel

        client = MCPClient(ChannelTransport(slow), CONFIG)
        opening = asyncio.ensure_future(client.initialize())
        await book.came.wait()
        await client.close()
        go_on.set()
        with pytest.raises(ChannelClosed):
            await opening
        await book.left.wait()


async def test_a_cancelled_close_still_closes_the_connection() -> None:
    config = MCPClientConfig(protocol_version="2025-11-25", health_check_interval=LIMIT)
    async with guestbook() as book:
        client = await MCPClient.connect_tcp("127.0.0.1", book.port, config)
        closing = asyncio.ensure_future(client.close())
        await asyncio.sleep(0)  # `close` now waits for the health check task
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not client.connected
        await book.left.wait()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (HttpError(400), True),
        (HttpError(499), True),
        (HttpError(500), False),
        (RpcError(-1, "no"), True),
        (RemoteProtocolError("odd", code=-32700), True),
        (ChannelClosed(), False),
        (None, False),
    ],
    ids=["400", "499", "500", "rpc", "unreadable", "closed", "none"],
)
def test_errors_that_may_indicate_another_era_are_recognized(
    error: BaseException | None, expected: bool
) -> None:
    assert _is_refusal(error) is expected


def test_the_error_for_a_lost_server_has_its_exit_code_and_stderr() -> None:
    lost = _lost(ChannelClosed("it crashed", exit_code=3, stderr=("a",), public="crashed"))
    assert str(lost).startswith("Could not connect: it crashed before the handshake was complete")
    assert (lost.exit_code, lost.stderr, lost.public) == (3, ("a",), "crashed")
    assert "the connection closed" in str(_lost(ChannelClosed()))


def test_the_error_for_a_script_that_does_not_run_its_server_has_the_remedy() -> None:
    remedy = "a server must run until its stdin closes: check that it calls `server.run()`"
    assert _lost(ChannelClosed("it exited", exit_code=0)).hint == remedy
    assert not _lost(ChannelClosed("it exited", exit_code=0, stderr=("bye",))).hint
    assert not _lost(ChannelClosed("it exited", exit_code=1)).hint
