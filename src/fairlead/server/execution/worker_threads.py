"""A bounded pool of daemon threads for synchronous functions."""

import asyncio
import contextvars
import logging
import threading
from collections.abc import Awaitable, Callable
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
    """Daemon threads, started on demand: at most `limit`, and replacements for abandoned ones.

    A thread cannot be stopped. If a function continues after its caller was cancelled, its thread
    is abandoned. At most `limit` abandoned threads are replaced. An executor is not used, because
    the interpreter joins its threads at exit and one stuck function would keep the process alive.
    """

    def __init__(self, limit: int = 32, queue: int = 1024) -> None:
        self._limit = limit
        self._queue_limit = queue
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads = 0
        self._busy = 0  # submitted and unfinished jobs, including abandoned ones
        self._abandoned = 0  # jobs that still run although their caller was cancelled
        self._abandoned_ever = 0
        self._lock = threading.Lock()

    @property
    def metrics(self) -> dict[str, int]:
        """Numbers of threads, and of running, waiting and abandoned functions."""
        return {
            "threads": self._threads,
            "busy": self._busy,
            "abandoned": self._abandoned,
            "abandoned_ever": self._abandoned_ever,
        }

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a thread. Cancelling abandons it; its thread is reused when it returns.

        Raises:
            MCPToolError: RATE_LIMITED, too many functions are waiting or abandoned, or no thread
                can be started.
        """
        if self._busy >= self._limit + self._queue_limit or self._abandoned >= 2 * self._limit:
            raise self._overloaded()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        # Context variables such as the current trace have to be visible in the thread.
        context = contextvars.copy_context()
        job = _Job(lambda: context.run(function, *args), future, loop)
        with self._lock:
            self._busy += 1
        try:
            self._grow()
        except RuntimeError:  # The platform refused to start a thread, and the pool has none.
            with self._lock:
                self._busy -= 1
            raise self._overloaded() from None
        self._jobs.put(job)
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    async def call(self, function: Callable[..., Any], *args: Any, asynchronous: bool) -> Any:
        """Call a coroutine function on the event loop, any other function in a thread."""
        value = function(*args) if asynchronous else await self.run(function, *args)
        # A plain wrapper around a coroutine function returns an awaitable.
        return await value if isinstance(value, Awaitable) else value

    def _grow(self) -> None:
        """Start a thread if there are more jobs than threads and the limit allows one more."""
        with self._lock:
            start = self._busy > self._threads and self._threads < self._most
            self._threads += start
        # Started outside of the lock, because `start` waits until the thread runs.
        if start:
            try:
                threading.Thread(target=self._work, name="fairlead-worker", daemon=True).start()
            except RuntimeError:  # The platform allows no more threads; existing ones run the job.
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
                return  # the job has finished, or was not started and never will be
            job.abandoned = True
            self._abandoned += 1
            self._abandoned_ever += 1
        self._grow()

    def _overloaded(self) -> MCPToolError:
        stuck = self._abandoned >= 2 * self._limit
        if stuck:
            log.error(
                "%d abandoned synchronous calls still run; no thread is available", self._abandoned
            )
        return MCPToolError(
            f"{self._abandoned} abandoned synchronous calls still run"
            if stuck
            else f"{self._busy} synchronous calls are running or waiting",
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
                # Under the lock, so that `_abandon` sees either a running or a skipped job.
                job.running = not job.future.cancelled()
            if job.running:
                try:
                    result = job.call()
                # Threads have no caller that catches exceptions, and SystemExit is a tool failure.
                except BaseException as exc:
                    error = exc
            # Counted before the result is delivered: the caller may look at the metrics at once.
            needed = self._finished(job)
            try:
                job.loop.call_soon_threadsafe(_settle, job.future, result, error)
            except RuntimeError:
                pass  # The event loop was closed meanwhile.
            # An idle thread must not keep the last result alive.
            del job, result, error

    def _finished(self, job: _Job) -> bool:
        """Count a finished job. Return True if this thread is still needed."""
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
    elif isinstance(error, StopIteration):  # A future does not accept StopIteration.
        future.set_exception(RuntimeError(f"StopIteration: {error}"))
    else:
        future.set_exception(error)
