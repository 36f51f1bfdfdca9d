"""Threads for synchronous functions: few, and never the reason why a process stays alive."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..errors import MCPErrorCode, MCPToolError

__all__ = ["Workers"]

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Workers:
    """At most `limit` daemon threads, started when there is work for them.

    An executor would be joined when the interpreter ends: one stuck function would keep the
    process alive.
    """

    def __init__(self, limit: int = 32, queue: int = 1024) -> None:
        self._limit = limit
        self._queue_limit = queue
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads = 0
        self._busy = 0  # jobs handed in and not finished, abandoned ones included
        self._lock = threading.Lock()

    @property
    def busy(self) -> int:
        return self._busy

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a thread. Cancelling abandons it; its thread is free when it ends.

        Raises:
            MCPToolError: RATE_LIMITED, when too many are waiting already.
        """
        if self._busy >= self._limit + self._queue_limit:
            raise MCPToolError(
                f"{self._busy} synchronous calls are under way or waiting",
                code=MCPErrorCode.RATE_LIMITED,
                suggestion="Try again later",
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        with self._lock:
            self._busy += 1
            start = self._busy > self._threads and self._threads < self._limit
            self._threads += start
        if start:
            threading.Thread(target=self._work, name="fairlead-worker", daemon=True).start()
        self._jobs.put((lambda: context.run(function, *args), future, loop))
        return await future

    def _work(self) -> None:
        while True:
            job, future, loop = self._jobs.get()
            error: BaseException | None = None
            result = None
            if not future.cancelled():
                try:
                    result = job()
                except (
                    BaseException
                ) as exc:  # a thread has nobody above it; SystemExit is the tool's failure too
                    error = exc
            with self._lock:
                self._busy -= 1
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                pass  # the loop has closed meanwhile
            del job, future, result, error


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future refuses to carry this one
        future.set_exception(RuntimeError(f"StopIteration: {error}"))
    else:
        future.set_exception(error)
