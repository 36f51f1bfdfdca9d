"""A program that serves HTTP, so that tests can measure its memory from outside."""

import asyncio
import gc
import os
import sys

from fairlead import Context, MCPServer

server = MCPServer("served", rate_limit_rate=0)


@server.tool()
async def add(a: int, b: int) -> int:
    return a + b


@server.tool()
async def big(size: int) -> str:
    return "x" * size


@server.tool()
async def chatter(ctx: Context, n: int) -> str:
    for i in range(n):
        await ctx.progress(i + 1, n, "x" * 10_000)
    return "done"


@server.tool()
async def alive() -> list[int]:
    """Return the numbers of tasks, open files and allocated memory blocks."""
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    return [len(asyncio.all_tasks()), files, sys.getallocatedblocks()]


def told(url: str) -> None:
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(server.run_http(port=0, started=told, max_sessions=100))
