"""The part every Python client shares: bursts of `echo` on command, timed inside this process.

    client.py asyncio|uvloop COMMAND...
    client.py asyncio|uvloop URL

starts COMMAND as its server, or connects to the one at URL, and prints `{"ready": true}`. Then for
each line `CALLS WINDOW` on stdin it makes that many calls, WINDOW of them in flight, and prints
`{"seconds": ...}`. It stays up between bursts, so that the runtimes can take turns while warm.
Every answer is checked, after the clock has stopped.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import count
from typing import Any

__all__ = ["drive", "url_of"]

_SIZE = 50

Connect = Callable[[list[str]], AbstractAsyncContextManager[Any]]
TextOf = Callable[[Any], str]


def drive(connect: Connect, text_of: TextOf) -> None:
    """Run bursts until stdin ends; `connect` opens a client with `call_tool(name, args)`."""
    loop, *command = sys.argv[1:]
    if loop == "uvloop":
        import uvloop

        uvloop.run(_serve(connect, text_of, command))
    else:
        asyncio.run(_serve(connect, text_of, command))


def url_of(server: list[str]) -> str | None:
    """Return the URL argument; None if a command was given."""
    return server[0] if server[0].startswith("http://") else None


async def _serve(connect: Connect, text_of: TextOf, command: list[str]) -> None:
    numbers = count()
    async with connect(command) as client:
        _say(ready=True)
        # In a thread, so that the timers of the runtime run between bursts.
        while line := await asyncio.to_thread(sys.stdin.readline):
            calls, window = map(int, line.split())
            texts = [f"{next(numbers):010d}".ljust(_SIZE, "x") for _ in range(calls)]
            gc.collect()
            start = time.perf_counter()
            results = await (
                _in_flight(client, texts, window) if window > 1 else _one(client, texts)
            )
            seconds = time.perf_counter() - start
            for text, result in zip(texts, results, strict=True):
                if text_of(result) != text:
                    raise SystemExit(f"asked to echo {text!r}, got {result!r}")
            _say(seconds=seconds)


async def _one(client: Any, texts: list[str]) -> list[Any]:
    return [await client.call_tool("echo", {"text": text}) for text in texts]


async def _in_flight(client: Any, texts: list[str], window: int) -> list[Any]:
    results: list[Any] = [None] * len(texts)

    async def work(todo: Iterator[tuple[int, str]]) -> None:
        for index, text in todo:
            results[index] = await client.call_tool("echo", {"text": text})

    todo = iter(enumerate(texts))
    await asyncio.gather(*(work(todo) for _ in range(window)))
    return results


def _say(**fact: object) -> None:
    print(json.dumps(fact), flush=True)
