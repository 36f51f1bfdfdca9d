"""What goes on beside the calls on one connection: lists kept current, and signs of life."""

import asyncio
import logging
import random
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ..client import MCPClient
from ..client.connection.listen_request import WatchedChanges
from ..errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    LocalResourceError,
    RequestTimeout,
)
from ..limits import RELISTING

if TYPE_CHECKING:
    from .supervisor import Rules, Supervisor, Wants

__all__ = ["Attending"]

log = logging.getLogger("fairlead.manager")

MAX_MISSED_PINGS = 2
LISTEN_GRACE = 1.0  # seconds that listing waits until changes are told
PAUSE = 0.05  # seconds between two lists in a row, at first
LONGEST_DELAY = 60.0  # seconds between attempts to list tools
LIST_LIMIT = 60.0  # seconds for one such attempt, all pages together

_LISTS: tuple[WatchedChanges, ...] = ("tools", "prompts", "resources")


class Attending:
    """The tasks of one connection. They end with it, and what one of them misses ends it."""

    def __init__(self, supervisor: "Supervisor", client: MCPClient, rules: "Rules") -> None:
        self._supervisor = supervisor
        self._client = client
        self._rules = rules
        self._tasks: set[asyncio.Task[None]] = set()
        self._stale = asyncio.Event()  # the tools are not what they were
        declared = client.server.get("capabilities", {})
        self._lists = tuple(name for name in _LISTS if _tells(declared.get(name)))

    async def begin(self, wants: "Wants", limit: float) -> None:
        """List the tools and ask for what was asked for before; `limit` seconds at most.

        Raises:
            ChannelClosed, ConnectFailed: the server is gone.
        """
        if self._lists:
            # First, so that no change falls in between.
            began = asyncio.get_running_loop().create_future()
            self._start(self._follow(began))
            await asyncio.wait((began,), timeout=LISTEN_GRACE)
        try:
            async with asyncio.timeout(limit or None):
                await self._list()
                await self._restore(wants)
        except TimeoutError:
            if self._supervisor.tools_error is None:
                log.warning("%s: not everything could be restored in time", self._supervisor.name)
        self._watch_session()
        self._start(self._keep_listed())
        if self._rules.health_interval:
            self._start(self._ping())

    def heard(self, method: str) -> None:
        """The server told something; changes that we follow are heard of otherwise."""
        if method == "notifications/tools/list_changed" and "tools" not in self._lists:
            self._stale.set()

    async def end(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s: looking after it failed", self._supervisor.name, exc_info=error)
            self._supervisor.lose(self._client, error)

    async def _list(self) -> None:
        supervisor, name = self._supervisor, "tools/list"
        try:
            supervisor.listed(await self._client.list_tools(cache=False))
        except (ChannelClosed, ConnectFailed):
            raise
        except (FairleadError, OSError) as exc:
            supervisor.not_listed(exc)
        except asyncio.CancelledError:
            supervisor.tools_error = RequestTimeout(supervisor.timeout, name)
            raise

    async def _restore(self, wants: "Wants") -> None:
        """Each by itself: what the server refuses now takes nothing else away."""
        client = self._client
        wanted: list[Coroutine[Any, Any, None]] = []
        if wants.log_level is not None:
            wanted.append(client.set_log_level(wants.log_level))
        wanted += [client.subscribe(uri) for uri in wants.uris]
        for outcome in await asyncio.gather(*wanted, return_exceptions=True):
            if isinstance(outcome, ChannelClosed | ConnectFailed):
                raise outcome
            if isinstance(outcome, FairleadError | OSError):
                log.warning("%s: not restored: %s", self._supervisor.name, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    async def _follow(self, began: "asyncio.Future[None]") -> None:
        """Hear of changed lists, also of those that nobody told while a stream was interrupted."""
        try:
            async with self._client.changes(*self._lists) as changes:
                began.set_result(None)
                async for change in changes:
                    if change.kind == "tools":
                        self._stale.set()
        except (FairleadError, OSError) as exc:
            log.warning("%s: does not tell of changes: %s", self._supervisor.name, exc)
        finally:
            if not began.done():
                began.set_result(None)

    async def _keep_listed(self) -> None:
        """List the tools whenever they have changed, and again when that failed."""
        supervisor, first = self._supervisor, self._rules.tools_retry
        delay = first
        pause, listed_at = PAUSE, time.monotonic()
        while True:
            failed = supervisor.tools_error is not None
            try:
                async with asyncio.timeout(delay if failed and delay else None):
                    await self._stale.wait()
            except TimeoutError:
                delay = min(delay * 2, LONGEST_DELAY)
            # A server that tells of changes all the time is asked ever less often.
            if time.monotonic() - listed_at < 2 * pause:
                RELISTING.hit()
                await asyncio.sleep(pause)
                pause = min(2 * pause, RELISTING.value)
            else:
                pause = PAUSE
            listed_at = time.monotonic()
            self._stale.clear()
            try:
                async with asyncio.timeout(LIST_LIMIT):
                    tools = await self._client.list_tools(cache=False)
            except TimeoutError:
                supervisor.not_listed(RequestTimeout(LIST_LIMIT, "tools/list"))
            except (FairleadError, OSError) as exc:
                supervisor.not_listed(exc)
                if isinstance(exc.__cause__ or exc, ConnectFailed):  # over HTTP nothing closes
                    supervisor.lose(self._client, exc)
            else:
                supervisor.listed(tools)
                delay = first

    async def _ping(self) -> None:
        """A connection that nobody uses may be gone without a word."""
        supervisor, interval = self._supervisor, self._rules.health_interval
        pace = interval * random.uniform(
            0.9, 1.1
        )  # those that began together shall not ask together
        missed, checked = 0, time.monotonic()
        while True:
            left = max(supervisor.answered, checked) + pace - time.monotonic()
            if left > 0:
                await asyncio.sleep(left)
                continue
            if supervisor.busy:  # it may do one thing at a time, and calls have limits of their own
                missed, checked = 0, time.monotonic()
                continue
            error: BaseException | None = None
            try:
                await self._client.ping()
            except (FairleadError, OSError) as exc:
                error = exc
            checked = time.monotonic()
            if error is None or supervisor.busy or isinstance(error, LocalResourceError):
                missed = 0
                continue
            missed += 1
            if missed >= MAX_MISSED_PINGS:
                supervisor.lose(self._client, ConnectFailed(f"it does not answer: {error}"))
                return

    def _watch_session(self) -> None:
        """A server that forgot our session (HTTP) knows nothing of what we had asked it for."""
        channel = self._client.transport.peer.channel
        channel.on_renewed = lambda: self._start(self._renewed())

    async def _renewed(self) -> None:
        log.info("%s: it began a new session", self._supervisor.name)
        self._stale.set()  # it may have been started anew, with other tools
        try:
            await self._client.restore()
        except (FairleadError, OSError) as exc:
            log.warning("%s: not everything could be restored: %s", self._supervisor.name, exc)


def _tells(capability: Any) -> bool:
    return isinstance(capability, dict) and capability.get("listChanged") is True
