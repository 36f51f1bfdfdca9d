"""The owner of a server's default connection: opens it, restores it, and closes it when idle.

One task owns the connection, so two connections never exist at the same time, and an attempt cannot
continue after `stop`.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from shlex import quote
from typing import Any, Literal, TypeAlias

from ..client import MCPClient
from ..config.upstream_settings import UpstreamSettings
from ..errors import (
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    LocalResourceError,
    LoginRequired,
    RetriesExhausted,
)
from ..observe.timestamps import Timestamp
from ..protocol.public_reason import public_reason
from ..transport import timeouts
from ..transport.background_tasks import BackgroundTasks
from ..transport.backoff import Backoff
from .connection.loss_counter import LOSS_WINDOW, MAX_LOSSES
from .starts.liveness import LivenessProbe
from .starts.start_limiter import StartLimiter, StartPriority

__all__ = ["END_LIMIT", "ConnectionKeeper", "State"]

log = logging.getLogger("fairlead.manager")

# seconds of the first and the longest delay between attempts to reconnect
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0
# seconds of the first and the longest delay, if the server was never connected
FIRST_START_DELAY, LONGEST_START_DELAY = 2.0, 60.0
END_LIMIT = 10.0  # seconds to wait for a connection to close

State: TypeAlias = Literal[
    "idle",  # not connected until a request needs a connection
    "connecting",
    "connected",
    "reconnecting",
    "suspended",  # lost too often; reconnects only on request
    "failed",
    "stopped",
]


class ConnectionKeeper(ABC):
    """Keeps one connection open, or opens it on demand."""

    def __init__(
        self,
        name: str,
        starts: StartLimiter,
        *,
        is_process: bool,
        lazy: bool,
        retries_start: bool = False,
    ) -> None:
        """A `lazy` connection is closed when idle. With `retries_start`, a server that could not be
        connected is tried again from time to time; otherwise only on request.
        """
        self.name = name
        self.is_process = is_process
        self.state: State = "idle"
        self.since = Timestamp(time.monotonic(), time.time())  # time of the last change of `state`
        self.error: BaseException | None = None  # the reason why the server is not connected
        self.client: MCPClient | None = None  # never None while the state is "connected"
        self.generation = 0  # number of successful attempts
        self.reconnects = 0  # number of successful attempts after a loss
        self.settled = asyncio.Event()  # set after the first attempt, including its lists
        self.answered = time.monotonic()  # time of the last response
        self.starts = starts
        self._lazy = lazy
        self._retries_start = retries_start
        self._liveness = LivenessProbe(lambda: self.settings.hang_timeout)
        self._used = self.answered
        self._in_use = 0
        self._losses: deque[float] = deque()
        self._lost = False  # the current connection was lost
        self._was_lost = False  # a connection was lost since the last successful attempt
        self._rest_now = False
        self._wake = asyncio.Event()  # set when the owner task has to check the state
        self._needed = asyncio.Event()  # set when a connection is needed
        self._waiting: set[asyncio.Future[MCPClient]] = set()  # callers that wait for an attempt
        self._owner: asyncio.Task[None] | None = None
        self._warned: set[str] = set()
        self._ending = BackgroundTasks()  # connections that are being closed

    # Hooks of the subclass

    @property
    @abstractmethod
    def settings(self) -> UpstreamSettings:
        """The current settings, which may change at any time."""

    @abstractmethod
    async def _connect(self) -> MCPClient:
        """Open the connection and prepare it for use.

        Raises:
            Exception: The connection could not be opened, or was lost during preparation.
        """

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connection."""

    @abstractmethod
    async def _closed_for_good(self) -> None:
        """Release all resources other than the connection, after a stop."""

    @abstractmethod
    def _state_changed(self) -> None:
        """Report a new state."""

    def warn_once(self, reason: str) -> None:
        """Log a warning about the server, unless the same warning was logged before."""
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("%s %s", self.name, reason)

    # Start and stop

    def start(self, *, now: bool = True) -> None:
        """Start the owner task. Without `now`, it waits until a connection is needed."""
        if now:
            self._enter("connecting")
            self._needed.set()
        else:
            self.settled.set()
        self._begin()

    def _begin(self) -> None:
        self._owner = asyncio.get_running_loop().create_task(self._own())
        self._owner.add_done_callback(self._owner_ended)

    async def stop(self) -> None:
        """Close all connections permanently."""
        await asyncio.wait((self.halt(),), timeout=END_LIMIT)

    def halt(self) -> "asyncio.Task[None]":
        """Begin to stop, and fail all callers that wait for a connection.

        The returned task closes the connections. It is separate from the caller, so that a
        cancelled caller does not leave the server running.
        """
        owner, self._owner = self._owner, None
        why = ConnectFailed("the server was disconnected", public="was disconnected")
        self._become("stopped", why)
        self._settle()
        if owner is not None:
            owner.cancel()
        return self._follow_to_its_end(self._finish(owner))

    async def _finish(self, owner: "asyncio.Task[None] | None") -> None:
        # Both closings run concurrently, because each may wait for processes to exit.
        closing = asyncio.get_running_loop().create_task(self._closed_for_good())
        await self._disconnect()
        await closing
        if owner is not None:
            await asyncio.wait((owner,))
        await self._wait_for_ends()

    async def reconnect(self) -> None:
        """Connect again, also after a suspension, and wait for the outcome.

        Raises:
            FairleadError: The server could not be connected.
        """
        if self.state == "stopped":
            raise self._why_not()
        # A manual reconnect resets the count of losses.
        self._losses.clear()
        if self._owner is None:
            self._begin()
        if self.client is not None and self.state == "connected":
            self.lose(self.client, None)
            self._was_lost = False
        await self._next()

    async def ready(self) -> MCPClient:
        """Return the connected client. Wait for a running attempt; start an idle server.

        Raises:
            FairleadError: The server is not connected; the message contains the reason.
        """
        self._used = time.monotonic()
        if self.client is not None and self.state == "connected":
            return self.client
        if self.state in ("failed", "suspended", "stopped"):
            raise self._why_not()
        return await self._next()

    async def _next(self) -> MCPClient:
        """Wait for the outcome of the current or next attempt."""
        outcome: asyncio.Future[MCPClient] = asyncio.get_running_loop().create_future()
        self._waiting.add(outcome)
        self._needed.set()
        self._wake.set()  # end a pause between attempts
        try:
            return await outcome
        finally:
            self._waiting.discard(outcome)

    # Use of the connection

    @property
    def busy(self) -> bool:
        """True while a request is in progress."""
        return self._in_use > 0

    def _last_use(self) -> float:
        """Return the time of the last use of the connection."""
        return self._used

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a request while it is in progress, so that a lazy server is not stopped."""
        self._in_use += 1
        try:
            yield
            # Not in `finally`, because only a successful request proves that the server responds.
            self.answered = time.monotonic()
        finally:
            self._in_use -= 1
            self._used = time.monotonic()

    # Owner task

    async def _own(self) -> None:
        backoff = Backoff(FIRST_DELAY, LONGEST_DELAY)
        start_backoff = Backoff(FIRST_START_DELAY, LONGEST_START_DELAY)
        while True:
            if await self._wait_until_needed(start_backoff):
                first = self.generation == 0 or self.state == "idle"
                self._become("connecting" if first else "reconnecting")
            try:
                self._connected(await self._connect())
            # All exceptions are caught, because the owner task must survive them.
            except Exception as exc:
                again = self.state == "failed" and str(exc) == str(self.error)
                log.log(logging.DEBUG if again else logging.WARNING, "%s: %s", self.name, exc)
                self._attempt_failed(exc)
                await self._disconnect()  # the attempt may have created a client before it failed
                # Attempts requested by callers do not change the delay between other attempts.
                if self.state == "reconnecting" and not await self._pause(backoff.next()):
                    backoff.undo()
                continue
            backoff.reset()
            if await self._is_idle():
                log.info("%s: stopped because it was idle", self.name)
                self._rest("idle")
            elif self._crashes():
                self._suspend(self.error)
            else:
                self._become("reconnecting", self.error)
            await self._disconnect()
            if self.state == "reconnecting":
                await self._pause(backoff.next())
                # The delay grows only with failed attempts, not with losses of connections.
                backoff.reset()

    async def _wait_until_needed(self, start_backoff: Backoff) -> bool:
        """Wait until a connection is needed. Return False if it is only time to try a failed server
        again, which remains in the state "failed" meanwhile, so that its callers need not wait.
        """
        retries = (
            self._retries_start
            and self.state == "failed"
            and self.error is not None
            and _is_temporary(self.error)
        )
        try:
            async with timeouts.timeout(start_backoff.next() if retries else None):
                await self._needed.wait()
            return True
        except TimeoutError:
            self._needed.set()
            return False

    def _attempt_failed(self, exc: Exception) -> None:
        if (shortage := _shortage(exc)) is not None:
            # This machine lacks a resource. The server has not failed: do not count a loss.
            self.starts.shortage.report(shortage)
            self._become("reconnecting", exc)
            # Start-up must not wait for the resource, and `_become` does not set `settled`.
            self.settled.set()
            self._settle()
        elif not self._comes_back(exc):
            self._rest("failed", exc)
        # A remote server may be unreachable for a long time, so failed attempts do not suspend it.
        elif self.is_process and self._crashes():
            self._suspend(exc)
        else:
            self._become("reconnecting", exc)
            self._settle()

    def _owner_ended(self, owner: asyncio.Task[None]) -> None:
        """Fail all waiters if the owner task ends without a stop."""
        if self._owner is not owner:
            return
        self._owner = None
        error = None if owner.cancelled() else owner.exception()
        log.error("%s: the owner task ended unexpectedly", self.name, exc_info=error)
        self._rest("failed", error or ConnectFailed("the owner task was cancelled"))

    def _suspend(self, last: BaseException | None) -> None:
        why = f"suspended after more than {MAX_LOSSES} losses within {LOSS_WINDOW:g} s"
        command = f"run `fairlead mcp reconnect {quote(self.name)}`"
        remedy = command if self._retries_start else "reconnect it manually"
        log.warning("%s: %s; %s", self.name, why, remedy)
        public = f"failed more than {MAX_LOSSES} times within {LOSS_WINDOW:g} s"
        if last is not None:
            public += f"; the last time it {public_reason(last)}"
        given_up = ConnectFailed(f"{why}; last error: {last}", public=public)
        self._rest("suspended", given_up)

    def _rest(self, state: State, error: BaseException | None = None) -> None:
        """Enter a state in which no attempt is made until a connection is needed."""
        self._needed.clear()
        self._become(state, error)
        self._settle()

    def _settle(self, client: MCPClient | None = None) -> None:
        """Resolve all waiters with the client.

        Without a client, fail them with the current error.
        """
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if future.done():
                continue
            if client is not None:
                future.set_result(client)
            else:
                future.set_exception(self._why_not())

    def _connected(self, client: MCPClient) -> None:
        self.reconnects += self._was_lost and self.generation > 0
        self._was_lost = False
        self.generation += 1
        self._used = time.monotonic()
        self._become("connected")
        self._settle(client)

    def _start_priority(self) -> StartPriority:
        if self._waiting:
            return StartPriority.CALL
        return StartPriority.RECONNECT if self.generation else StartPriority.START_UP

    def lose(self, client: MCPClient, why: BaseException | None) -> None:
        """Mark the connection as lost. A call may detect the loss before the owner task does."""
        if self.client is not client or self._lost:
            return
        if client.connected and (shortage := _shortage(why)) is not None:
            self.starts.shortage.report(shortage)
            return  # the machine is short of a resource, but the connection works
        self._lost = self._was_lost = True
        self.error = why
        if self.state == "connected":
            self._become("reconnecting", why)
        self._wake.set()

    def check_hang(self, client: MCPClient | None) -> None:
        """Check whether the server is busy or hangs after a caller stopped waiting for it."""
        if client is not None and client is self.client and self.is_process and not self._lost:
            self._liveness.check_hang(client.transport.peer, partial(self._hangs, client))

    def _hangs(self, client: MCPClient, public: str) -> None:
        why = f"the server {public}"
        self.lose(client, ConnectFailed(why, public=public))
        # Pending calls fail with this reason.
        self._follow_to_its_end(client.transport.peer.close(why, public=public))

    def rest(self) -> None:
        """Close the connection until it is needed again."""
        self._rest_now = True
        self._wake.set()

    def _idle_limit(self) -> float:
        """Return the seconds without use after which the connection is closed; 0 means never."""
        return self.settings.idle_close if self._lazy else 0

    async def _is_idle(self) -> bool:
        """Wait until the connection is lost or idle; return True if it is idle."""
        self._rest_now = False
        while not self._lost:
            if self._rest_now and not self.busy:
                return True
            self._wake.clear()
            limit = self._idle_limit()
            # At least 10 ms, so that the loop does not spin when the limit has just passed.
            left = max(self._last_use() + limit - time.monotonic(), 0.01) if limit else None
            try:
                async with timeouts.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                if self.busy:
                    # The idle time begins at the end of the request.
                    self._used = time.monotonic()
                elif time.monotonic() - self._last_use() >= limit:
                    return True
        return False

    async def _wait_for_ends(self) -> None:
        """Wait until closing connections are closed, so that the server never runs twice."""
        # The current task may itself be closing a connection, and cannot wait for itself.
        if ending := self._ending - {asyncio.current_task()}:
            await asyncio.wait(ending, timeout=END_LIMIT)

    async def _end(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a closing coroutine in a task, and wait for it at most `END_LIMIT` seconds."""
        await asyncio.wait((self._follow_to_its_end(work),), timeout=END_LIMIT)

    def _follow_to_its_end(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._ending.start(work)
        task.add_done_callback(self._has_ended)
        return task

    def _has_ended(self, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: closing the connection failed: %s", self.name, error)

    async def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt; return False if a caller requested it meanwhile."""
        try:
            async with timeouts.timeout(seconds):
                # `_wake` is also set for other reasons, but only a waiting caller ends the pause.
                while not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
            return False
        except TimeoutError:
            return True

    def _comes_back(self, exc: Exception) -> bool:
        """Return True if another attempt should follow soon: it may succeed, and the server was
        connected before.
        """
        return self.generation > 0 and _is_temporary(exc)

    def _crashes(self) -> bool:
        """Record a loss and return True if there were too many."""
        now = time.monotonic()
        self._losses.append(now)
        while now - self._losses[0] > LOSS_WINDOW:
            self._losses.popleft()
        return len(self._losses) > MAX_LOSSES

    def _become(self, state: State, error: BaseException | None = None) -> None:
        if self.state == "stopped":
            return  # a stopped connection does not change its state again
        self._enter(state)
        self.error = None if state == "connected" else (error or self.error)
        if state not in ("connecting", "reconnecting"):
            self.settled.set()
        self._state_changed()

    def _enter(self, state: State) -> None:
        if state != self.state:
            self.state, self.since = state, Timestamp(time.monotonic(), time.time())

    def _why_not(self) -> ConnectFailed:
        """Build the error for callers that need a connection."""
        reason = str(self.error) if self.error is not None else self.state
        # Always a new exception: each `raise` of the same one would make its traceback longer.
        failure = ConnectFailed(f'server "{self.name}" is not connected: {reason}')
        failure.__cause__ = self.error
        return failure


def _is_temporary(exc: BaseException) -> bool:
    """Return True if another attempt to connect may succeed."""
    if isinstance(exc, ConfigError) or not isinstance(exc, FairleadError | OSError):
        return False
    # Another attempt would fail too: with the same credentials, or without a login.
    if isinstance(exc, LoginRequired):
        return False
    return not (isinstance(exc, HttpError) and exc.status in (401, 403))


def _shortage(error: BaseException | None) -> LocalResourceError | None:
    """Return the resource shortage of this machine that caused an error, or None."""
    cause = error.__cause__ if isinstance(error, RetriesExhausted) else error
    return cause if isinstance(cause, LocalResourceError) else None
