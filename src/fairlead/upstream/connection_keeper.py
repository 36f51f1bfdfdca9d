"""The owner of the connection to one server: opens it, replaces it when lost, stops it when idle.

One task owns the connection, so two of them never exist side by side, and what was started before a
stop cannot survive it.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeAlias

from ..client import MCPClient
from ..config.upstream_settings import UpstreamSettings
from ..errors import (
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    LocalResourceError,
    RetriesExhausted,
)
from ..protocol.public_reason import public_reason
from ..transport.backoff import Backoff
from .starts.liveness import LivenessProbe
from .starts.start_limiter import StartLimiter, StartPriority

__all__ = ["END_LIMIT", "ConnectionKeeper", "State"]

log = logging.getLogger("fairlead.manager")

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds between attempts
MAX_LOSSES, LOSS_WINDOW = 5, 30.0  # more reconnects within so many seconds are a crash loop
END_LIMIT = 10.0  # seconds that are waited for the end of a connection

State: TypeAlias = Literal[
    "idle",  # lazy, and not needed now
    "connecting",
    "connected",
    "reconnecting",
    "suspended",  # it crashed too often; it is connected again on request only
    "failed",
    "stopped",
]


class ConnectionKeeper(ABC):
    """Keeps one connection open, or opens it on demand."""

    def __init__(
        self,
        name: str,
        settings: UpstreamSettings,
        starts: StartLimiter,
        *,
        timeout: float,
        is_process: bool,
        lazy: bool,
    ) -> None:
        """`timeout` limits the seconds of an attempt. `lazy`: it is stopped when it is idle."""
        self.name = name
        self.settings = settings
        self.timeout = timeout
        self.is_process = is_process
        self.state: State = "idle"
        self.error: BaseException | None = None  # why it is not connected
        self.client: MCPClient | None = None  # never None while the state is "connected"
        self.generation = 0  # how often it was connected
        self.settled = asyncio.Event()  # the first attempt has its outcome, lists included
        self.answered = time.monotonic()  # when the server last did
        self.starts = starts
        self._lazy = lazy
        self._liveness = LivenessProbe(settings.hang_timeout)
        self._used = self.answered
        self._in_use = 0
        self._losses: deque[float] = deque()
        self._lost = False  # the connection that there was
        self._rest_now = False
        self._wake = asyncio.Event()  # the owner has something to look at
        self._needed = asyncio.Event()  # a connection is needed
        self._waiting: set[asyncio.Future[MCPClient]] = set()  # for the attempt under way, or next
        self._owner: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[Any]] = set()  # connections on their way out

    # What a subclass does

    @abstractmethod
    async def _connect(self) -> MCPClient:
        """Open the connection and prepare it for use.

        Raises:
            Exception: It cannot be opened, or was lost meanwhile.
        """

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close the connection."""

    @abstractmethod
    async def _closed_for_good(self) -> None:
        """Close what is beside the connection, when it is stopped."""

    @abstractmethod
    def _state_changed(self) -> None:
        """Report a new state."""

    # Life

    def start(self, *, now: bool = True) -> None:
        """Begin to supervise it; not `now` waits until a connection is needed."""
        if now:
            self.state = "connecting"
            self._needed.set()
        else:
            self.settled.set()
        self._begin()

    def _begin(self) -> None:
        self._owner = asyncio.get_running_loop().create_task(self._own())
        self._owner.add_done_callback(self._owner_ended)

    async def stop(self) -> None:
        """End all connections, for good."""
        await asyncio.wait((self.halt(),), timeout=END_LIMIT)

    def halt(self) -> "asyncio.Task[None]":
        """Begin to stop at once; pending requests fail at once.

        The end runs in a task of its own: the caller may be cancelled, the server must end.
        """
        owner, self._owner = self._owner, None
        why = ConnectFailed("it was disconnected", public="was disconnected")
        self._become("stopped", why)
        self._settle()
        if owner is not None:
            owner.cancel()
        ending = asyncio.get_running_loop().create_task(self._finish(owner))
        self._follow_to_its_end(ending)
        return ending

    async def _finish(self, owner: "asyncio.Task[None] | None") -> None:
        closing = asyncio.get_running_loop().create_task(self._closed_for_good())
        await self._disconnect()
        await closing
        if owner is not None:
            await asyncio.wait((owner,))
        if ending := self._ending - {asyncio.current_task()}:
            await asyncio.wait(ending, timeout=END_LIMIT)

    async def reconnect(self) -> None:
        """Connect anew, also after it was suspended, and wait for the outcome.

        Raises:
            FairleadError: It did not work.
        """
        if self.state == "stopped":
            raise self._why_not()
        self._losses.clear()
        if self._owner is None:
            self._begin()
        if self.client is not None and self.state == "connected":
            self.lose(self.client, None)
        await self._next()

    async def ready(self) -> MCPClient:
        """Return the connected client. Waits for an attempt under way; an idle server is started.

        Raises:
            FairleadError: It is not connected, and why.
        """
        self._used = time.monotonic()
        if self.client is not None and self.state == "connected":
            return self.client
        if self.state in ("failed", "suspended", "stopped"):
            raise self._why_not()
        return await self._next()

    async def _next(self) -> MCPClient:
        """Wait for the outcome of the next attempt."""
        outcome: asyncio.Future[MCPClient] = asyncio.get_running_loop().create_future()
        self._waiting.add(outcome)
        self._needed.set()
        self._wake.set()  # ends a pause between attempts
        try:
            return await outcome
        finally:
            self._waiting.discard(outcome)

    # Use

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return self._in_use > 0

    def _last_use(self) -> float:
        """Return when the connection was last used."""
        return self._used

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a request while it is under way, so that a lazy server is not stopped."""
        self._in_use += 1
        try:
            yield
            self.answered = time.monotonic()
        finally:
            self._in_use -= 1
            self._used = time.monotonic()

    # The owner

    async def _own(self) -> None:
        backoff = Backoff(FIRST_DELAY, LONGEST_DELAY)
        while True:
            await self._needed.wait()
            first = self.generation == 0 or self.state == "idle"
            self._become("connecting" if first else "reconnecting")
            try:
                self._connected(await self._connect())
            except Exception as exc:
                log.warning("%s: %s", self.name, exc)
                self._attempt_failed(exc)
                await self._disconnect()  # it may have come as far as a client
                # Attempts on request do not make those in between rarer.
                if self.state == "reconnecting" and not await self._pause(backoff.next()):
                    backoff.undo()
                continue
            backoff.reset()
            if await self._is_idle():
                log.info("%s: it is not used; stopped", self.name)
                self._rest("idle")
            elif self._crashes():
                self._suspend(self.error)
            else:
                self._become("reconnecting", self.error)
            await self._disconnect()
            if self.state == "reconnecting":
                await self._pause(backoff.next())
                backoff.reset()

    def _attempt_failed(self, exc: Exception) -> None:
        if (shortage := _shortage(exc)) is not None:
            self.starts.shortage.report(shortage)
            self._become("reconnecting", exc)
            self.settled.set()
            self._settle()
        elif not self._comes_back(exc):
            self._rest("failed", exc)
        elif self.is_process and self._crashes():
            self._suspend(exc)
        else:
            self._become("reconnecting", exc)
            self._settle()

    def _owner_ended(self, owner: asyncio.Task[None]) -> None:
        """Fail all waiters if the owner ends otherwise than by a stop."""
        if self._owner is not owner:
            return
        self._owner = None
        error = None if owner.cancelled() else owner.exception()
        log.error("%s: its owner task ended", self.name, exc_info=error)
        self._rest("failed", error or ConnectFailed("it was cancelled"))

    def _suspend(self, last: BaseException | None) -> None:
        why = f"it was lost more than {MAX_LOSSES} times within {LOSS_WINDOW:g} s"
        log.warning("%s: %s; reconnect it by hand", self.name, why)
        public = f"failed more than {MAX_LOSSES} times within {LOSS_WINDOW:g} s"
        if last is not None:
            public += f"; the last time it {public_reason(last)}"
        given_up = ConnectFailed(f"given up, {why}; the last time: {last}", public=public)
        self._rest("suspended", given_up)

    def _rest(self, state: State, error: BaseException | None = None) -> None:
        """Do nothing until a connection is needed."""
        self._needed.clear()
        self._become(state, error)
        self._settle()

    def _settle(self, client: MCPClient | None = None) -> None:
        """Report the outcome of an attempt to all waiters; without a client it failed."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if future.done():
                continue
            if client is not None:
                future.set_result(client)
            else:
                future.set_exception(self._why_not())

    def _connected(self, client: MCPClient) -> None:
        self.generation += 1
        self._used = time.monotonic()
        self._become("connected")
        self._settle(client)

    def _start_priority(self) -> StartPriority:
        if self._waiting:
            return StartPriority.CALL
        return StartPriority.RECONNECT if self.generation else StartPriority.START_UP

    def lose(self, client: MCPClient, why: BaseException | None) -> None:
        """Give up the connection. Calls may notice a loss before the owner does."""
        if self.client is not client or self._lost:
            return
        if client.connected and (shortage := _shortage(why)) is not None:
            self.starts.shortage.report(shortage)
            return  # the connection is as good as before
        self._lost = True
        self.error = why
        if self.state == "connected":
            self._become("reconnecting", why)
        self._wake.set()

    def check_hang(self, client: MCPClient | None) -> None:
        """Find out if the server is busy or hangs, after a caller gave up waiting."""
        if client is not None and client is self.client and self.is_process and not self._lost:
            self._liveness.check_hang(client.transport.peer, partial(self._hangs, client))

    def _hangs(self, client: MCPClient, why: str) -> None:
        public = why.removeprefix("it ")
        self.lose(client, ConnectFailed(why, public=public))
        # Pending calls get the reason.
        closing = client.transport.peer.close(why, public=public)
        self._follow_to_its_end(asyncio.get_running_loop().create_task(closing))

    def rest(self) -> None:
        """Close the connection until it is needed again."""
        self._rest_now = True
        self._wake.set()

    def _idle_limit(self) -> float:
        """Return after how many seconds without use the connection is closed; 0: never."""
        return self.settings.idle_close if self._lazy else 0

    async def _is_idle(self) -> bool:
        """Wait until the connection is lost; return True if it was only not used any more."""
        self._rest_now = False
        while not self._lost:
            if self._rest_now and not self.busy:
                return True
            self._wake.clear()
            limit = self._idle_limit()
            left = max(self._last_use() + limit - time.monotonic(), 0.01) if limit else None
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                if self.busy:
                    self._used = time.monotonic()
                elif time.monotonic() - self._last_use() >= limit:
                    return True
        return False

    async def _wait_for_ends(self) -> None:
        """Wait for connections on their way out: two of a server never run side by side."""
        if ending := self._ending - {asyncio.current_task()}:
            await asyncio.wait(ending, timeout=END_LIMIT)

    async def _end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for the end of something for a limited time; it goes on in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._follow_to_its_end(task)
        await asyncio.wait((task,), timeout=END_LIMIT)

    def _follow_to_its_end(self, task: "asyncio.Task[Any]") -> None:
        self._ending.add(task)
        task.add_done_callback(self._has_ended)

    def _has_ended(self, task: "asyncio.Task[Any]") -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s: it did not end well: %s", self.name, error)

    async def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt; return False if one was requested meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                while not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
            return False
        except TimeoutError:
            return True

    def _comes_back(self, exc: Exception) -> bool:
        """Whether to try again: a server that was never connected needs a person."""
        if isinstance(exc, ConfigError) or not isinstance(exc, FairleadError | OSError):
            return False
        if isinstance(exc, HttpError) and exc.status in (401, 403):
            return False
        return self.generation > 0

    def _crashes(self) -> bool:
        """Count a loss; return True if there were too many."""
        now = time.monotonic()
        self._losses.append(now)
        while now - self._losses[0] > LOSS_WINDOW:
            self._losses.popleft()
        return len(self._losses) > MAX_LOSSES

    def _become(self, state: State, error: BaseException | None = None) -> None:
        if self.state == "stopped":
            return  # for good
        self.state = state
        self.error = None if state == "connected" else (error or self.error)
        if state not in ("connecting", "reconnecting"):
            self.settled.set()
        self._state_changed()

    def _why_not(self) -> ConnectFailed:
        """Build a new error each time: an exception that is raised again and again grows."""
        reason = str(self.error) if self.error is not None else self.state
        failure = ConnectFailed(f'server "{self.name}" is not connected: {reason}')
        failure.__cause__ = self.error
        return failure


def _shortage(error: BaseException | None) -> LocalResourceError | None:
    """Return the shortage of this machine that an error reports, if it does."""
    cause = error.__cause__ if isinstance(error, RetriesExhausted) else error
    return cause if isinstance(cause, LocalResourceError) else None
