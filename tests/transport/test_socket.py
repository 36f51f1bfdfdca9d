"""Listening and connecting that is broken off leaves neither descriptors nor files."""

import asyncio
import contextlib
import os
from pathlib import Path

from fairlead.transport.line_channel import LineChannel
from fairlead.transport.socket import connect_unix, listen_tcp, listen_unix


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


async def test_listening_may_be_cancelled_at_any_step(tmp_path: Path, loop_kind: str) -> None:
    path = str(tmp_path / "socket")

    async def listen(port: int | None) -> None:
        if port is None:
            async with listen_unix(path, lambda _: None):
                await asyncio.Event().wait()
        else:
            async with listen_tcp("127.0.0.1", port, lambda _: None):
                await asyncio.Event().wait()

    async with listen_tcp("127.0.0.1", 0, lambda _: None):
        pass  # libuv keeps a spare descriptor from now on
    before = descriptors()
    for turns in range(1, 8):
        for port in (None, 0):
            assert await cancelled_after(turns, asyncio.create_task(listen(port)))
            await until_only(before)
            assert not os.path.exists(path)


async def test_connecting_may_be_cancelled_at_any_step(tmp_path: Path, loop_kind: str) -> None:
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
            for _ in range(3):  # the listener hears of it in its own time
                await asyncio.sleep(0.001)
            for channel in accepted:
                await channel.close()
            await until_only(before)
        assert finished < 11
