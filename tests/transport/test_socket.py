"""Connecting that is broken off leaves no descriptors."""

import asyncio
import contextlib
import os
from pathlib import Path

from fairlead.transport.line_channel import LineChannel
from fairlead.transport.socket import connect_unix
from tests.support.line_sockets import listen_unix


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
