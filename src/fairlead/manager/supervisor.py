"""One server, looked after: connected, listed, replaced when lost, stopped when nobody uses it.

One task owns each server, so two connections to it never exist side by side, and whatever was
started before a stop can never come back after it.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..client import MCPClient, MCPClientConfig
from ..client.callbacks import Callbacks
from ..client.entries import MCPServerEntry, MCPStdioServerConfig
from ..client.retry import Retry
from ..errors import ChannelClosed, ConfigError, ConnectFailed, FairleadError, HttpError
from .connecting import open_client
from .slots import StartSlots

__all__ = ["Rules", "State", "Supervisor", "Wants"]

log = logging.getLogger("fairlead.manager")

FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds between attempts
MAX_LOSSES, LOSS_WINDOW = 5, 30.0  # more reconnects within so many seconds are a crash loop
MAX_MISSED_PINGS = 2

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
    idle_stop: float = 300.0  # after which a lazy server that nobody uses is stopped
    tools_retry: float = 5.0  # until a failed `tools/list` is tried again


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
        slots: StartSlots,
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
        self.client: MCPClient | None = None
        self.generation = 0
        self.latency: float | None = None  # seconds that connecting took
        self.settled = asyncio.Event()  # the first attempt has its outcome, tools included
        self._resolve = resolve
        self._timeout = rules.connect_timeout if timeout is None else timeout
        self._lazy = lazy
        self._slots = slots
        self._rules = rules
        self._config = config
        self._callbacks = callbacks
        self._changed = changed
        self._told = told
        self._wants = Wants()
        self._retry = Retry(1, 0.0)
        self._used = time.monotonic()
        self._in_use = 0
        self._losses: deque[float] = deque()
        self._lost = asyncio.Event()
        self._wanted = asyncio.Event()  # somebody needs it
        self._waiting: set[asyncio.Future[MCPClient]] = set()  # for the attempt under way, or next
        self._owner: asyncio.Task[None] | None = None
        self._relisting: asyncio.Task[None] | None = None

    # Life

    def start(self, *, now: bool = True) -> None:
        """Begin to look after it; not `now` waits until somebody needs it."""
        if now:
            self.state = "connecting"
            self._wanted.set()
        else:
            self.settled.set()
        self._owner = asyncio.get_running_loop().create_task(self._own())

    async def stop(self) -> None:
        """End the connection, for good."""
        self.generation += 1
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.cancel()
            await asyncio.wait((owner,))
        await self._disconnect()
        self._become("stopped", ConnectFailed(f"{self.name} was disconnected"))
        self._settle(self._why_not())

    async def reconnect(self) -> None:
        """Connect anew, also after it was given up. Waits for the outcome.

        Raises:
            FairleadError: it did not work.
        """
        self._losses.clear()
        if self.state == "connected":
            self._become("reconnecting")
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
        if self._owner is None:
            raise self._why_not()
        outcome: asyncio.Future[MCPClient] = asyncio.get_running_loop().create_future()
        self._waiting.add(outcome)
        self._wanted.set()
        if self.state != "connecting":
            self._lost.set()  # does not wait for the end of a pause
        try:
            return await outcome
        finally:
            self._waiting.discard(outcome)

    # Using it

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Call a tool; once more after a reconnect, where that can do no harm.

        Raises:
            FairleadError: what went wrong in the end.
        """
        client = await self.ready()
        self._in_use += 1
        try:
            return await client.call_tool(tool, arguments, timeout, **options)
        except (ChannelClosed, ConnectFailed) as exc:
            if not self._retry.allows("tools/call", exc, harmless=self._is_harmless(tool)):
                raise
            log.info("%s: the connection was lost; %s is called once more", self.name, tool)
            self._notice(client)
            client = await self.ready()
            return await client.call_tool(tool, arguments, timeout, **options)
        finally:
            self._in_use -= 1
            self._used = time.monotonic()

    async def subscribe(self, uri: str) -> None:
        """Hear when a resource changes, also after a reconnect."""
        client = await self.ready()
        await client.subscribe(uri)
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
        client = await self.ready()
        self.tools = await client.list_tools(cache=False)
        self.tools_error = None
        self._changed(self)

    # The owner

    async def _own(self) -> None:
        delay = FIRST_DELAY
        while True:
            await self._wanted.wait()
            self._become("reconnecting" if self.generation else "connecting")
            try:
                await self._connect()
            except Exception as exc:
                log.warning("%s: %s", self.name, exc)
                await self._disconnect()  # it may have come as far as a client
                if self._comes_back(exc) and not self._crashes():
                    self._become("reconnecting", exc)
                    self._settle(exc)
                    await self._pause(delay)
                    delay = min(delay * 2, LONGEST_DELAY)
                else:
                    self._rest("failed", exc)
                    delay = FIRST_DELAY
                continue
            delay = FIRST_DELAY
            idle = await self._look_after()
            await self._disconnect()
            if idle and self._waiting:
                continue  # somebody came while it was being stopped
            if idle:
                log.info("%s: nobody uses it; stopped", self.name)
                self._rest("idle")
            elif self._crashes():
                why = f"it was lost more than {MAX_LOSSES} times within {LOSS_WINDOW:g} s"
                log.warning("%s: %s; reconnect it by hand", self.name, why)
                self._rest("suspended", ConnectFailed(f"{self.name} is given up: {why}"))
            else:
                self._become("reconnecting", self.error)
                await self._pause(delay)

    def _rest(self, state: State, error: BaseException | None = None) -> None:
        """Do nothing until somebody asks for it."""
        self._wanted.clear()
        self._become(state, error)
        self._settle(self._why_not())

    def _settle(self, outcome: MCPClient | BaseException) -> None:
        """Tell everybody who waits for this attempt."""
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if future.done():
                continue
            if isinstance(outcome, MCPClient):
                future.set_result(outcome)
            else:
                future.set_exception(self._why_not())

    async def _connect(self) -> None:
        self._lost.clear()
        entry = await self._resolve()
        if isinstance(entry, MCPStdioServerConfig):
            async with self._slots.starting():
                client = await self._open(entry)
        else:
            client = await self._open(entry)
        self.client = client
        self.generation += 1
        await self._list(client)
        await self._restore(client)
        self._used = time.monotonic()
        self._become("connected")
        self._settle(client)

    async def _open(self, entry: MCPServerEntry) -> MCPClient:
        """Connect; the limit counts from here, not from when a slot was asked for."""
        began = time.monotonic()
        client = await open_client(self.name, entry, self._timeout, self._config, self._listeners())
        self.latency = time.monotonic() - began
        client.transport.on_close = self._closed
        return client

    def _listeners(self) -> Callbacks:
        mine = self._callbacks.get("on_notification")

        def on_notification(method: str, params: dict[str, Any]) -> Awaitable[None] | None:
            if method == "notifications/tools/list_changed" and self._relisting is None:
                self._relisting = asyncio.get_running_loop().create_task(self._relist())
            self._told(self.name, method, params)
            return None if mine is None else mine(method, params)

        return {**self._callbacks, "on_notification": on_notification}

    def _closed(self, end: ChannelClosed) -> None:
        self.error = end
        self._lost.set()

    async def _list(self, client: MCPClient) -> None:
        """A server that cannot list its tools is connected all the same."""
        try:
            self.tools = await client.list_tools()
            self.tools_error = None
            if client.server.get("capabilities", {}).get("tools", {}).get("listChanged"):
                await client.listen("tools")
        except (ChannelClosed, ConnectFailed):
            await client.close()
            raise
        except FairleadError as exc:
            log.warning("%s: connected, but its tools cannot be listed: %s", self.name, exc)
            self.tools_error = exc

    async def _restore(self, client: MCPClient) -> None:
        try:
            if self._wants.log_level is not None:
                await client.set_log_level(self._wants.log_level)
            for uri in self._wants.uris:
                await client.subscribe(uri)
        except FairleadError as exc:
            log.warning("%s: not everything could be restored: %s", self.name, exc)

    async def _look_after(self) -> bool:
        """Until the connection is lost; True if it was only not used any more."""
        rules, missed = self._rules, 0
        while True:
            wait = self._next_look()
            try:
                async with asyncio.timeout(wait):
                    await self._lost.wait()
                return False
            except TimeoutError:
                pass
            idle = time.monotonic() - self._used
            if self._lazy and rules.idle_stop and not self._in_use and idle >= rules.idle_stop:
                return True
            client = self.client
            if client is None:
                return False
            if self.tools_error is not None:
                await self._relist()
            elif rules.health_interval and idle >= rules.health_interval:
                health = await client.health_check()
                missed = 0 if health["ok"] else missed + 1
                if missed >= MAX_MISSED_PINGS:
                    self.error = ConnectFailed(
                        f"{self.name} does not answer: {health.get('error')}"
                    )
                    return False

    def _next_look(self) -> float | None:
        """Seconds until something has to be looked at; None if nothing has."""
        rules, waits = self._rules, []
        if self.tools_error is not None and rules.tools_retry:
            waits.append(rules.tools_retry)
        if rules.health_interval:
            waits.append(rules.health_interval)
        if self._lazy and rules.idle_stop:
            waits.append(rules.idle_stop)
        return min(waits) * random.uniform(0.9, 1.1) if waits else None

    async def _relist(self) -> None:
        try:
            await self.refresh()
        except FairleadError as exc:
            self.tools_error = exc
            log.warning("%s: its tools cannot be listed: %s", self.name, exc)
        finally:
            self._relisting = None

    async def _disconnect(self) -> None:
        if self._relisting is not None:
            self._relisting.cancel()
            self._relisting = None
        client, self.client = self.client, None
        if client is not None:
            client.transport.on_close = None
            await client.close()

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt; somebody who asks for it does not."""
        self._lost.clear()
        try:
            async with asyncio.timeout(seconds * random.uniform(0.75, 1.0)):
                await self._lost.wait()
        except TimeoutError:
            pass

    def _notice(self, client: MCPClient) -> None:
        """A call may hear of a lost connection before its owner does."""
        if self.client is client and self.state == "connected":
            self._become("reconnecting")
            self._lost.set()

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
        self.state = state
        self.error = None if state == "connected" else (error or self.error)
        if state not in ("connecting", "reconnecting"):
            self.settled.set()
        self._changed(self)

    def _is_harmless(self, tool: str) -> bool:
        for definition in self.tools or ():
            if definition.get("name") == tool:
                hints = definition.get("annotations")
                return isinstance(hints, dict) and (
                    hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
                )
        return False

    def _why_not(self) -> FairleadError:
        if isinstance(self.error, FairleadError):
            return self.error
        return ConnectFailed(f"{self.name} is not connected: {self.error or self.state}")
