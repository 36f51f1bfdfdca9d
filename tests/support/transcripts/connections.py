"""Connections to the transcript server; each yields an end that sends and receives lines."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.line_channel import LineChannel
from fairlead.transport.memory import memory_pair
from fairlead.wire import Batch, encode
from tests.support.line_sockets import listen_tcp, listen_unix
from tests.support.transcripts.transcript_server import make_server

__all__ = ["WIRES", "Wire"]

LINE_LIMIT = 1 << 20


class Wire(Protocol):
    def send(self, line: str) -> None: ...
    async def receive(self) -> str: ...


class Streams:
    """Lines over a pair of asyncio streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, line: str) -> None:
        self._writer.write(line.encode() + b"\n")

    async def receive(self) -> str:
        line = await self._reader.readuntil(b"\n")
        return line.decode()


class Memory:
    """Lines over one end of a pair of memory channels."""

    def __init__(self, channel: LineChannel) -> None:
        self._channel = channel
        self._received: asyncio.Queue[object] = asyncio.Queue()

    def send(self, line: str) -> None:
        self._channel.write(line.encode() + b"\n")

    async def receive(self) -> str:
        item = await self._received.get()
        if isinstance(item, Exception):
            raise item
        assert not isinstance(item, Batch)
        return encode(item).decode()  # type: ignore[arg-type]

    async def run(self) -> None:
        await self._channel.run(self._received.put_nowait)


@contextlib.asynccontextmanager
async def over_memory(_: Path) -> AsyncIterator[Wire]:
    ours, theirs = memory_pair()
    peer = make_server().attach(theirs, ANONYMOUS)
    wire = Memory(ours)
    reading = asyncio.create_task(wire.run())
    try:
        yield wire
    finally:
        await ours.close()
        await peer.close()
        await reading


@contextlib.asynccontextmanager
async def over_stdio(_: Path) -> AsyncIterator[Wire]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).parent / "transcript_server.py"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Streams(process.stdout, process.stdin)
        process.stdin.close()
        assert await process.stdout.read() == b""
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def over_unix(folder: Path) -> AsyncIterator[Wire]:
    path = str(folder / "server.sock")
    accept, accepted = _acceptor()
    async with listen_unix(path, accept):
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT)
        async with _closing(reader, writer, accepted) as wire:
            yield wire


@contextlib.asynccontextmanager
async def over_tcp(_: Path) -> AsyncIterator[Wire]:
    accept, accepted = _acceptor()
    async with listen_tcp("127.0.0.1", 0, accept) as listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LINE_LIMIT)
        async with _closing(reader, writer, accepted) as wire:
            yield wire


def _acceptor() -> tuple[Callable[[LineChannel], None], list[Peer]]:
    server = make_server()
    accepted: list[Peer] = []
    return lambda channel: accepted.append(server.attach(channel, ANONYMOUS)), accepted


@contextlib.asynccontextmanager
async def _closing(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, accepted: list[Peer]
) -> AsyncIterator[Wire]:
    try:
        yield Streams(reader, writer)
        writer.write_eof()
        # The server closes its side without sending another message.
        assert await reader.read() == b""
    finally:
        writer.close()
        await writer.wait_closed()
        for peer in accepted:
            await peer.close()


WIRES = {"memory": over_memory, "stdio": over_stdio, "unix": over_unix, "tcp": over_tcp}
