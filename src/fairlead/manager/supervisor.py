"""One server, looked after: connected, listed, replaced when lost, stopped when nobody uses it.

One task owns each server, so two connections to it never exist side by side, and whatever was
started before a stop can never come back after it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from ..client import MCPClient, MCPClientConfig
from ..client.api.tool_hints import is_harmless
from ..client.callbacks import Callbacks
from ..client.connection.retry import Retry
from ..client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ..errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    LocalResourceError,
    RequestTimeout,
    RetriesExhausted,
)
from ..protocol.public_reason import public_reason
from ..transport.backoff import Backoff
from ..upstream.liveness import LivenessProbe
from ..upstream.start_limiter import StartLimiter, StartPriority
from .connection_tasks import Attending
from .open_connection import connect_timeout_error, open_client

__all__ = ["END_LIMIT", "Rules", "State", "Supervisor", "Wants"]

log = logging.getLogger("fairlead.manager")

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds between attempts
MAX_LOSSES, LOSS_WINDOW = 5, 30.0  # more reconnects within so many seconds are a crash loop
END_LIMIT = 10.0  # seconds that are waited for the end of a connection

T = TypeVar("T")

State: TypeAlias = Literal[
    "idle",  # lazy, and nobody needs it now
    "connecting",
    "connected",
    "reconnecting",
    "suspended",  # it crashed too often; somebody has to ask for it
    "failed",
    "stopped",
]
Resolve = Callable[[], Awaitable[MCPServerEntry]]  # the entry with its variables filled in


class Rules(Struct, frozen=True, kw_only=True):
    """How servers are looked after. Durations are in seconds; 0 means never."""

    connect_timeout: float = 30.0
    health_interval: float = 60.0
    hang_timeout: float = 60.0  # of silence after a call was given up, until a process is replaced
    idle_stop: float = 300.0  # after which a lazy server that nobody uses is stopped
    tools_retry: float = 5.0  # until a failed `tools/list` is tried again; then ever later


class Wants(Struct):
    """What a server was asked for, to be asked again after a reconnect."""

    uris: dict[str, None] = {}
    log_level: str | None = None


class Supervisor:
    """Owns the connection to one server."""

    def __init__(
        self,
        name: str,
        resolve: Resolve,
        *,
        timeout: float | None = None,
        lazy: bool = False,
        slots: StartLimiter,
        rules: Rules,
        config: MCPClientConfig,
        callbacks: Callbacks,
        changed: Callable[["Supervisor"], None],
        told: Callable[[str, str, dict[str, Any]], None],
    ) -> None:
        """`changed` hears of every new state or list of tools, `told` of every notification."""
        self.name = name
        self.state: State = "idle"
        self.error: BaseException | None = None  # why it is not connected
        self.tools: list[dict[str, Any]] | None = None  # as it last listed them
        self.tools_error: BaseException | None = None
        self.loading = False  # there is a connection, and its tools are being listed
        self.client: MCPClient | None = None  # never None while the state is "connected"
        self.generation = 0  # how often it was connected
        self.latency: float | None = None  # seconds that connecting took
        self.settled = asyncio.Event()  # the first attempt has its outcome, tools included
        self._resolve = resolve
        self.timeout = rules.connect_timeout if timeout is None else timeout
        self._lazy = lazy
        self._slots = slots
        self._rules = rules
        self._config = config
        self._callbacks = callbacks
        self._changed = changed
        self._told = told
        self._wants = Wants()
        self._liveness = LivenessProbe(rules.hang_timeout)
        self._retry = Retry(1, 0.0)
        self.answered = time.monotonic()  # when it last did
        self._used = self.answered
        self._in_use = 0
        self._is_process = False
        self._losses: deque[float] = deque()
        self._lost = False  # the connection that there was
        self._wake = asyncio.Event()  # the owner has something to look at
        self._wanted = asyncio.Event()  # somebody needs it
        self._waiting: set[asyncio.Future[MCPClient]] = set()  # for the attempt under way, or next
        self._owner: asyncio.Task[None] | None = None
        self._attending: Attending | None = None  # what goes on beside the calls
        self._ending: set[asyncio.Task[Any]] = set()  # connections on their way out

    # Life

    def start(self, *, now: bool = True) -> None:
        """Begin to look after it; not `now` waits until somebody needs it."""
        if now:
            self.state = "connecting"
            self._wanted.set()
        else:
            self.settled.set()
        self._begin()

    def _begin(self) -> None:
        self._owner = asyncio.get_running_loop().create_task(self._own())
        self._owner.add_done_callback(self._owner_ended)

    async def stop(self) -> None:
        """End the connection, for good."""
        await asyncio.wait((self.halt(),), timeout=END_LIMIT)

    def halt(self) -> "asyncio.Task[None]":
        """The same, begun at once; who waits for it, or for an answer, hears so at once.

        In a task of its own: whoever wants it stopped may be cancelled, the server must end.
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
        await self._disconnect()
        if owner is not None:
            await asyncio.wait((owner,))
        if ending := self._ending - {asyncio.current_task()}:
            await asyncio.wait(ending, timeout=END_LIMIT)

    async def reconnect(self) -> None:
        """Connect anew, also after it was given up. Waits for the outcome.

        Raises:
            FairleadError: it did not work.
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
        """The connected client. Waits for an attempt under way; a server at rest is woken.

        Raises:
            FairleadError: it is not connected, and why.
        """
        self._used = time.monotonic()
        if self.client is not None and self.state == "connected":
            return self.client
        if self.state in ("failed", "suspended", "stopped"):
            raise self._why_not()
        return await self._next()

    async def _next(self) -> MCPClient:
        """What the next attempt brings."""
        outcome: asyncio.Future[MCPClient] = asyncio.get_running_loop().create_future()
        self._waiting.add(outcome)
        self._wanted.set()
        self._wake.set()  # does not wait for the end of a pause
        try:
            return await outcome
        finally:
            self._waiting.discard(outcome)

    # Using it

    @property
    def busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return self._in_use > 0

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Call a tool; once more after a reconnect, where that can do no harm.

        `timeout` is for everything together, also the wait for a server that is connecting.

        Raises:
            FairleadError: what went wrong in the end.
        """

        def work(client: MCPClient) -> Awaitable[dict[str, Any]]:
            return client.call_tool(tool, arguments, timeout, **options)

        harmless = self._is_harmless(tool)
        if not timeout:
            return await self._use("tools/call", work, harmless=harmless)
        try:
            async with asyncio.timeout(timeout) as limit:
                return await self._use("tools/call", work, harmless=harmless)
        except TimeoutError as exc:
            if not limit.expired():
                raise
            self.check_hang(self.client)
            raise RequestTimeout(timeout, "tools/call") from exc

    async def read(self, method: str, fetch: Callable[[MCPClient], Awaitable[T]]) -> T:
        """Ask for something that only reads, so it may be asked for once more after a reconnect.

        Raises:
            FairleadError: what went wrong in the end.
        """
        return await self._use(method, fetch)

    async def _use(
        self, method: str, work: Callable[[MCPClient], Awaitable[T]], *, harmless: bool = False
    ) -> T:
        again = False
        while True:
            client = await self.ready()
            self._in_use += 1
            try:
                result = await work(client)
                self.answered = time.monotonic()
                return result
            except (ChannelClosed, ConnectFailed, RetriesExhausted) as exc:
                failure = exc.__cause__ if isinstance(exc, RetriesExhausted) else exc
                if self.state == "stopped":
                    why = f'server "{self.name}" was disconnected'
                    raise ChannelClosed(
                        why, delivered=exc.delivered, public="was disconnected"
                    ) from exc
                if not isinstance(failure, ChannelClosed | ConnectFailed):
                    self.check_hang(client)
                    raise  # it is there, and slow
                if isinstance(failure, ConnectFailed) or not client.connected:
                    self.lose(client, failure)  # over HTTP each answer has its own way
                if again or not self._retry.allows(method, failure, harmless=harmless):
                    raise
                again = True
                log.info("%s: the connection was lost; %s is sent once more", self.name, method)
            except RequestTimeout:
                self.check_hang(client)
                raise
            finally:
                self._in_use -= 1
                self._used = time.monotonic()

    async def subscribe(self, uri: str) -> None:
        """Hear when a resource changes, also after a reconnect."""
        await self.read("resources/subscribe", lambda client: client.subscribe(uri))
        self._wants.uris[uri] = None

    async def unsubscribe(self, uri: str) -> None:
        self._wants.uris.pop(uri, None)
        if self.client is not None:
            await self.client.unsubscribe(uri)

    async def set_log_level(self, level: str) -> None:
        """Ask for log messages, also after a reconnect."""
        self._wants.log_level = level
        if self.client is not None:
            await self.client.set_log_level(level)

    async def refresh(self) -> None:
        """List its tools again.

        Raises:
            FairleadError: it did not work; the tools it had stay.
        """
        self.listed(await self.read("tools/list", lambda c: c.list_tools(cache=False)))

    # The owner

    async def _own(self) -> None:
        backoff = Backoff(FIRST_DELAY, LONGEST_DELAY)
        while True:
            await self._wanted.wait()
            first = self.generation == 0 or self.state == "idle"
            self._become("connecting" if first else "reconnecting")
            try:
                await self._connect()
            except Exception as exc:
                log.warning("%s: %s", self.name, exc)
                if (shortage := _shortage(exc)) is not None:
                    self._slots.shortage.report(shortage)
                    self._become("reconnecting", exc)
                    self.settled.set()
                    self._settle()
                elif not self._comes_back(exc):
                    self._rest("failed", exc)
                elif self._is_process and self._crashes():
                    self._give_up(exc)
                else:
                    self._become("reconnecting", exc)
                    self._settle()
                await self._disconnect()  # it may have come as far as a client
                # Attempts that somebody asks for do not make those in between rarer.
                if self.state == "reconnecting" and not await self._pause(backoff.next()):
                    backoff.undo()
                continue
            backoff.reset()
            if await self._is_idle():
                log.info("%s: nobody uses it; stopped", self.name)
                self._rest("idle")
            elif self._crashes():
                self._give_up(self.error)
            else:
                self._become("reconnecting", self.error)
            await self._disconnect()
            if self.state == "reconnecting":
                await self._pause(backoff.next())
                backoff.reset()

    def _owner_ended(self, owner: asyncio.Task[None]) -> None:
        """Only a stop ends the owner. Should it end otherwise, nobody must wait for it."""
        if self._owner is not owner:
            return
        self._owner = None
        error = None if owner.cancelled() else owner.exception()
        log.error("%s: nobody looks after it any more", self.name, exc_info=error)
        self._rest("failed", error or ConnectFailed("it was cancelled"))

    def _give_up(self, last: BaseException | None) -> None:
        why = f"it was lost more than {MAX_LOSSES} times within {LOSS_WINDOW:g} s"
        log.warning("%s: %s; reconnect it by hand", self.name, why)
        public = f"failed more than {MAX_LOSSES} times within {LOSS_WINDOW:g} s"
        if last is not None:
            public += f"; the last time it {public_reason(last)}"
        given_up = ConnectFailed(f"given up, {why}; the last time: {last}", public=public)
        self._rest("suspended", given_up)

    def _rest(self, state: State, error: BaseException | None = None) -> None:
        """Do nothing until somebody asks for it."""
        self._wanted.clear()
        self._become(state, error)
        self._settle()

    def _settle(self, client: MCPClient | None = None) -> None:
        """Tell everybody who waits for this attempt; no client means that it failed."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if future.done():
                continue
            if client is not None:
                future.set_result(client)
            else:
                future.set_exception(self._why_not())

    async def _connect(self) -> None:
        self._lost = False
        client = await self._open(await self._filled_in())
        self.client = client
        client.transport.on_close = partial(self.lose, client)
        client.transport.on_error = self._erred
        self._attending = Attending(self, client, self._rules)
        self.loading = True
        self._changed(self)
        try:
            await self._attending.begin(self._wants, self.timeout)
        finally:
            self.loading = False
        if self._lost or not client.connected:
            gone = "the server went away while its tools were listed"
            raise self.error if isinstance(self.error, FairleadError) else ChannelClosed(gone)
        self.generation += 1
        self._used = time.monotonic()
        self._become("connected")
        self._settle(client)

    async def _filled_in(self) -> MCPServerEntry:
        try:
            async with asyncio.timeout(self.timeout or None):
                return await self._resolve()
        except TimeoutError as exc:
            raise connect_timeout_error(self.name, self.timeout) from exc

    async def _open(self, entry: MCPServerEntry) -> MCPClient:
        self._is_process = isinstance(entry, MCPStdioServerConfig)
        if self._is_process:
            async with self._slots.starting(self._start_priority):
                return await self._open_in_time(entry)
        return await self._open_in_time(entry)

    def _start_priority(self) -> StartPriority:
        if self._waiting:
            return StartPriority.CALL
        return StartPriority.RECONNECT if self.generation else StartPriority.START_UP

    async def _open_in_time(self, entry: MCPServerEntry) -> MCPClient:
        """Connect; the limit counts from here, not from when a slot was asked for.

        To end a server that does not answer takes a while, which nobody has to wait for.
        """
        began = time.monotonic()
        opening = asyncio.get_running_loop().create_task(
            open_client(self.name, entry, 0, self._config, self._listeners())
        )
        try:
            await asyncio.wait((opening,), timeout=self.timeout or None)
            if opening.done():
                self.latency = time.monotonic() - began
                client = opening.result()
                self._slots.shortage.clear()
                return client
            raise connect_timeout_error(self.name, self.timeout)
        except BaseException:
            self._follow_to_its_end(asyncio.get_running_loop().create_task(_undo(opening)))
            raise

    def _listeners(self) -> Callbacks:
        mine = self._callbacks.get("on_notification")

        def on_notification(method: str, params: dict[str, Any]) -> Awaitable[None] | None:
            if self._attending is not None:
                self._attending.heard(method)
            self._told(self.name, method, params)
            return None if mine is None else mine(method, params)

        return {**self._callbacks, "on_notification": on_notification}

    def lose(self, client: MCPClient, why: BaseException | None) -> None:
        """A connection is gone, or is given up. Calls may hear of it before its owner does."""
        if self.client is not client or self._lost:
            return
        if client.connected and (shortage := _shortage(why)) is not None:
            self._slots.shortage.report(shortage)
            return  # the connection is as good as before
        self._lost = True
        self.error = why
        if self.state == "connected":
            self._become("reconnecting", why)
        self._wake.set()

    def check_hang(self, client: MCPClient | None) -> None:
        """Somebody gave up waiting for an answer: a process that hangs is replaced."""
        if client is not None and client is self.client and self._is_process and not self._lost:
            self._liveness.check_hang(client.transport.peer, partial(self._hangs, client))

    def _hangs(self, client: MCPClient, why: str) -> None:
        public = why.removeprefix("it ")
        self.lose(client, ConnectFailed(why, public=public))
        # Those who wait for it shall hear why it ends.
        closing = client.transport.peer.close(why, public=public)
        ending = asyncio.get_running_loop().create_task(closing)
        self._follow_to_its_end(ending)

    def _erred(self, error: Exception) -> None:
        """Something went wrong that costs no connection: those say so when they close."""
        log.info("%s: %s", self.name, error)

    def listed(self, tools: list[dict[str, Any]]) -> None:
        self.tools, self.tools_error = tools, None
        self._changed(self)

    def not_listed(self, why: BaseException) -> None:
        """A server that cannot list its tools is connected all the same."""
        log.warning("%s: its tools cannot be listed: %s", self.name, why)
        self.tools_error = why
        self._changed(self)

    async def _is_idle(self) -> bool:
        """Wait until the connection is lost; True if it was only not used any more."""
        rest = self._rules.idle_stop if self._lazy else 0
        while not self._lost:
            self._wake.clear()
            left = max(self._used + rest - time.monotonic(), 0.01) if rest else None
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                if self._in_use:
                    self._used = time.monotonic()
                elif time.monotonic() - self._used >= rest:
                    return True
        return False

    async def _disconnect(self) -> None:
        self._liveness.close()
        attending, self._attending = self._attending, None
        client, self.client = self.client, None
        if client is not None:
            client.transport.on_close = client.transport.on_error = None
            await self._end(_close(client, attending))
        if self._ending - {asyncio.current_task()}:  # two of a server never run side by side
            await asyncio.wait(self._ending - {asyncio.current_task()}, timeout=END_LIMIT)

    async def _end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for the end of something, not for ever; it goes on if nobody waits any more."""
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
        """Wait before the next attempt; False if somebody asked for it meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                while not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
            return False
        except TimeoutError:
            return True

    def _comes_back(self, exc: Exception) -> bool:
        """What was connected once may be back soon; what never was is for somebody to look at."""
        if isinstance(exc, ConfigError) or not isinstance(exc, FairleadError | OSError):
            return False
        if isinstance(exc, HttpError) and exc.status in (401, 403):
            return False
        return self.generation > 0

    def _crashes(self) -> bool:
        """Count a loss: were there too many?"""
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
        self._changed(self)

    def _is_harmless(self, tool: str) -> bool:
        return is_harmless(next((one for one in self.tools or () if one.get("name") == tool), {}))

    def _why_not(self) -> ConnectFailed:
        """Always a new one: an exception that is raised again and again grows."""
        reason = str(self.error) if self.error is not None else self.state
        failure = ConnectFailed(f'server "{self.name}" is not connected: {reason}')
        failure.__cause__ = self.error
        return failure


def _shortage(error: BaseException | None) -> LocalResourceError | None:
    """Return the shortage of this machine that an error reports, if it does."""
    cause = error.__cause__ if isinstance(error, RetriesExhausted) else error
    return cause if isinstance(cause, LocalResourceError) else None


async def _undo(opening: "asyncio.Task[MCPClient]") -> None:
    """End a connection that nobody waits for any more, however far it has come."""
    opening.cancel()
    await asyncio.wait((opening,))
    if not opening.cancelled() and opening.exception() is None:
        await opening.result().close()


async def _close(client: MCPClient, attending: Attending | None) -> None:
    try:
        if attending is not None:
            await attending.end()
    finally:
        await client.close()
