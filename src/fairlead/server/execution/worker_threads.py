"""Threads for synchronous functions: few, and never the reason why a process stays alive."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from msgspec import Struct

from ...errors import MCPErrorCode, MCPToolError

__all__ = ["WorkerThreads"]

log = logging.getLogger("fairlead.server")


class _Job(Struct, eq=False):
    call: Callable[[], Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop
    running: bool = False
    abandoned: bool = False


class WorkerThreads:
    """At most `limit` daemon threads, started when there is work for them.

    A thread cannot be stopped: one whose function goes on after its caller has gone is abandoned,
    and another may be started in its place, for at most `limit` of them. An executor would be
    joined when the interpreter ends: one stuck function would keep the process alive.
    """

    def __init__(self, limit: int = 32, queue: int = 1024) -> None:
        self._limit = limit
        self._queue_limit = queue
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads = 0
        self._busy = 0  # jobs handed in and not finished, abandoned ones included
        self._abandoned = 0  # those that still run although nobody waits for them
        self._abandoned_ever = 0
        self._lock = threading.Lock()

    @property
    def busy(self) -> int:
        return self._busy

    @property
    def metrics(self) -> dict[str, int]:
        """How many threads there are, how many functions run or wait, and who was abandoned."""
        return {
            "threads": self._threads,
            "busy": self._busy,
            "abandoned": self._abandoned,
            "abandoned_ever": self._abandoned_ever,
        }

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a thread. Cancelling abandons it; its thread is free when it ends.

        Raises:
            MCPToolError: RATE_LIMITED, when too many are waiting, or every thread was abandoned.
        """
        if self._busy >= self._limit + self._queue_limit or self._abandoned >= 2 * self._limit:
            raise self._overloaded()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(function, *args), future, loop)
        with self._lock:
            self._busy += 1
        try:
            self._grow()
        except RuntimeError:  # there is no thread that could do it
            with self._lock:
                self._busy -= 1
            raise self._overloaded() from None
        self._jobs.put(job)
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    def _grow(self) -> None:
        """Start a thread, if there is more to do than threads to do it, and one more may be."""
        with self._lock:
            start = self._busy > self._threads and self._threads < self._most
            self._threads += start
        if start:
            try:
                threading.Thread(target=self._work, name="fairlead-worker", daemon=True).start()
            except RuntimeError:  # there can be no more; those that are there do it, if there are
                with self._lock:
                    self._threads -= 1
                if not self._threads:
                    raise

    @property
    def _most(self) -> int:
        return self._limit + min(self._abandoned, self._limit)

    def _abandon(self, job: _Job) -> None:
        with self._lock:
            if not job.running:
                return  # it has not begun, and will not; or it has ended
            job.abandoned = True
            self._abandoned += 1
            self._abandoned_ever += 1
        self._grow()

    def _overloaded(self) -> MCPToolError:
        stuck = self._abandoned >= 2 * self._limit
        if stuck:
            log.error("%d synchronous calls do not end; no thread is left", self._abandoned)
        return MCPToolError(
            f"{self._abandoned} synchronous calls were given up and still run"
            if stuck
            else f"{self._busy} synchronous calls are under way or waiting",
            code=MCPErrorCode.RATE_LIMITED,
            suggestion="Try again later",
        )

    def _work(self) -> None:
        needed = True
        while needed:
            job = self._jobs.get()
            error: BaseException | None = None
            result = None
            with self._lock:
                job.running = not job.future.cancelled()
            if job.running:
                try:
                    result = job.call()
                except (
                    BaseException
                ) as exc:  # a thread has nobody above it; SystemExit is the tool's failure too
                    error = exc
            needed = self._finished(job)
            try:
                job.loop.call_soon_threadsafe(_settle, job.future, result, error)
            except RuntimeError:
                pass  # the loop has closed meanwhile
            del job, result, error

    def _finished(self, job: _Job) -> bool:
        """Count it; is this thread still needed?"""
        with self._lock:
            self._busy -= 1
            self._abandoned -= job.abandoned
            job.running = False
            needed = self._threads <= self._most
            self._threads -= not needed
        return needed


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):  # a future refuses to carry this one
        future.set_exception(RuntimeError(f"StopIteration: {error}"))
    else:
        future.set_exception(error)
