"""Tests of connections to unix domain sockets and TCP ports."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import ConnectFailed
from fairlead.transport.line_channel import LineChannel
from fairlead.transport.socket import connect_tcp, connect_unix
from fairlead.wire import Notification
from tests.support.line_sockets import listen_unix
from tests.support.virtual_time import VirtualTime


def descriptors() -> set[str]:
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


async def until_only(before: set[str]) -> None:
    async with asyncio.timeout(5):
        while descriptors() - before:
            await asyncio.sleep(0)


async def cancelled_after(turns: int, work: "asyncio.Task[None]") -> bool:
    for _ in range(turns):
        await asyncio.sleep(0)
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    return work.cancelled()


async def test_connecting_can_be_cancelled_at_any_step_without_leaking_descriptors(
    tmp_path: Path, loop_kind: str
) -> None:
    path = str(tmp_path / "socket")
    accepted: list[LineChannel] = []

    async def connect() -> None:
        await (await connect_unix(path)).close()

    async with listen_unix(path, accepted.append):
        await connect()
        before = descriptors()
        finished = 0
        for turns in range(1, 12):
            finished += not await cancelled_after(turns, asyncio.create_task(connect()))
            for _ in range(3):  # the listener detects a closed connection with a delay
                await asyncio.sleep(0.001)
            for channel in accepted:
                await channel.close()
            await until_only(before)
        assert finished < 11


# Connecting


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def test_the_error_for_an_address_without_a_listener_contains_the_address(
    tmp_path: Path,
) -> None:
    path, port = str(tmp_path / "none"), free_port()
    with pytest.raises(ConnectFailed, match=f"Could not connect to the unix socket {path}: ") as no:
        await connect_unix(path)
    assert isinstance(no.value.__cause__, FileNotFoundError)
    with pytest.raises(ConnectFailed, match=rf"Could not connect to 127\.0\.0\.1:{port}: .+"):
        await connect_tcp("127.0.0.1", port)


async def test_connecting_to_a_socket_takes_at_most_thirty_seconds(
    virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*args: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    begun = virtual_time.now
    with pytest.raises(ConnectFailed, match=r"connect to a\.example:1: no connection within 30 s$"):
        await connect_tcp("a.example", 1)
    assert virtual_time.now - begun == 30.0


async def test_a_socket_connection_exchanges_lines_and_has_its_address_as_context() -> None:
    got: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(5):
        channel = await connect_tcp("127.0.0.1", port, limit=100)
        assert channel.context.transport_type == "tcp"
        assert channel.context.peer_address == f"127.0.0.1:{port}"
        running = asyncio.create_task(channel.run(got.put_nowait))
        channel.send(Notification("n"))
        assert await got.get() == Notification("n")
        await running
        await channel.close()
        server.close()
