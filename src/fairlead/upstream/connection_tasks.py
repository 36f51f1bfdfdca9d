"""Tasks beside the calls on the default connection of a server: lists kept current, and pings."""

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ..client import MCPClient
from ..client.connection.listen_request import WatchedChanges
from ..config.upstream_settings import UpstreamSettings
from ..errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    LocalResourceError,
    RequestTimeout,
    RetriesExhausted,
)
from ..limits import LIST_SECONDS, RELISTING
from ..protocol.methods import has_capability
from ..protocol.targets.list_kind import ListKind
from .server_lists import NEEDED_CAPABILITY, ServerLists

__all__ = ["ConnectionTasks", "DesiredState", "TasksOwner"]

log = logging.getLogger("fairlead.manager")

MAX_MISSED_PINGS = 2
LISTEN_GRACE = 1.0  # seconds that listing waits until changes are told
PAUSE = 0.05  # seconds between two lists in a row, at first
LIST_GRACE = 2.0  # seconds for lists besides that of tools, until a server counts as connected
LONGEST_DELAY = 60.0  # seconds between attempts to list

_LISTS: tuple[WatchedChanges, ...] = ("tools", "prompts", "resources")
_KINDS_OF: dict[str, tuple[ListKind, ...]] = {
    "tools": (ListKind.TOOLS,),
    "prompts": (ListKind.PROMPTS,),
    "resources": (ListKind.RESOURCES, ListKind.TEMPLATES),
}


class DesiredState(Struct):
    """What a server was asked for, to be asked again after a reconnect."""

    uris: dict[str, None] = {}
    log_level: str | None = None


class TasksOwner(Protocol):
    """The owner of the connection."""

    name: str
    answered: float

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""

    def lose(self, client: MCPClient, why: BaseException | None) -> None:
        """Give the connection up."""


class ConnectionTasks:
    """The tasks of one connection. They end with it, and a failure of one of them ends it."""

    def __init__(
        self, owner: TasksOwner, client: MCPClient, lists: ServerLists, settings: UpstreamSettings
    ) -> None:
        self._owner = owner
        self._client = client
        self._lists = lists
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()
        self._stale: set[ListKind] = set()
        self._has_stale = asyncio.Event()
        self._tools_listed = asyncio.Event()
        self._begun = False
        self._numbers = dict.fromkeys(ListKind, 0)  # of the requests for each list
        declared = client.server.get("capabilities", {})
        self._declared: dict[str, Any] = declared if isinstance(declared, dict) else {}
        # All of them, also those that are not kept: programs listen to the notifications.
        self._followed = tuple(
            name for name in _LISTS if has_capability(self._declared, f"{name}.listChanged")
        )

    async def begin(self, wanted: DesiredState, limit: float) -> None:
        """Request the lists and the desired state, in at most `limit` seconds.

        Raises:
            ChannelClosed, ConnectFailed: The connection was lost.
        """
        if self._followed:
            # Before the lists, so that no change is missed in between.
            began = asyncio.get_running_loop().create_future()
            self._start(self._follow(began))
            await asyncio.wait((began,), timeout=LISTEN_GRACE)
        first = asyncio.get_running_loop().time()
        listing = self._start(self._list(self._lists.kinds))
        urgent = ListKind.TOOLS in self._lists.kinds
        try:
            async with asyncio.timeout(limit or None):
                await asyncio.shield(self._tools_listed.wait() if urgent else listing)
                # A server whose prompts hang is connected all the same.
                left = first + LIST_GRACE - asyncio.get_running_loop().time()
                await asyncio.wait((listing,), timeout=max(left, 0.0))
                if listing.done():
                    listing.result()
                await self._restore(wanted)
        except TimeoutError:
            if urgent and not self._tools_listed.is_set():
                self._lists.fail(ListKind.TOOLS, RequestTimeout(limit, ListKind.TOOLS.method))
            else:
                log.warning("%s: not everything could be restored in time", self._owner.name)
        self._begun = True
        self._watch_session()
        self._start(self._keep_listed())
        if self._settings.health_interval:
            self._start(self._ping())

    def heard(self, method: str) -> None:
        """Note a `list_changed` of the server; followed lists are reported by the stream."""
        name = method.split("/")[1] if method.endswith("/list_changed") else ""
        if name in _KINDS_OF and name not in self._followed:
            self.request(_KINDS_OF[name])

    def refresh(self) -> None:
        """Have all lists requested again, in the background."""
        self.request(self._lists.kinds)

    async def end(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def request(self, kinds: Iterable[ListKind]) -> None:
        """Have some lists requested again, in the background."""
        self._stale |= set(kinds) & set(self._lists.kinds)
        if self._stale:
            self._has_stale.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, ChannelClosed | ConnectFailed):
            self._owner.lose(self._client, error)
        else:
            log.error("%s: a task of its connection failed", self._owner.name, exc_info=error)
            self._owner.lose(self._client, error)

    # Lists

    async def _list(self, kinds: Iterable[ListKind]) -> None:
        """Request lists at the same time; what one of them lacks takes no other away.

        Raises:
            ChannelClosed, ConnectFailed: The connection was lost.
        """
        lost = [one for one in await asyncio.gather(*map(self._try, kinds)) if one is not None]
        if lost:
            raise lost[0]

    async def _try(self, kind: ListKind) -> ChannelClosed | ConnectFailed | None:
        """Request one list; return the error if the connection was lost."""
        try:
            await self._list_one(kind)
        except (FairleadError, OSError, msgspec.DecodeError) as exc:
            cause = exc.__cause__ if isinstance(exc, RetriesExhausted) else exc
            if isinstance(exc, ChannelClosed | ConnectFailed):
                self._lists.fail(kind, exc)
                return exc
            self._failed(kind, exc)
            if isinstance(cause, ConnectFailed) and self._begun:  # over HTTP nothing closes
                return cause
        finally:
            if kind is ListKind.TOOLS:
                self._tools_listed.set()
        return None

    async def _list_one(self, kind: ListKind) -> None:
        if not has_capability(self._declared, NEEDED_CAPABILITY[kind]):
            self._lists.put(kind, [])
            return
        self._numbers[kind] += 1
        number = self._numbers[kind]
        try:
            async with asyncio.timeout(LIST_SECONDS.value):
                items = await self._client.list_raw(kind.method, kind.value)
        except TimeoutError as exc:
            if isinstance(exc, FairleadError):
                raise
            LIST_SECONDS.hit()
            raise RequestTimeout(LIST_SECONDS.value, kind.method) from exc
        if number != self._numbers[kind]:
            return  # a late response must not replace a newer list
        self._lists.put(kind, items)
        if kind is ListKind.TOOLS and self._lists.for_client:
            self._client.learn_tools(self._lists.tools or ())

    def _failed(self, kind: ListKind, error: Exception) -> None:
        """Note a failed list: the server is connected all the same."""
        if kind is ListKind.TEMPLATES and kind not in self._lists.items:
            log.debug("%s: no templates: %s", self._owner.name, error)
            self._lists.put(kind, [])  # many servers with resources do not know the method
            return
        log.warning("%s: %s failed: %s", self._owner.name, kind.method, error)
        self._lists.fail(kind, error)
        self._has_stale.set()  # it is requested again after a while

    async def _follow(self, began: "asyncio.Future[None]") -> None:
        """Follow changes of lists, also those that were missed while a stream was interrupted."""
        try:
            async with self._client.changes(*self._followed) as changes:
                began.set_result(None)
                async for change in changes:
                    self.request(_KINDS_OF.get(change.kind, ()))
        except (FairleadError, OSError) as exc:
            log.warning("%s: does not tell of changes: %s", self._owner.name, exc)
            self._followed = ()  # so that what it announces of its own accord counts
        finally:
            if not began.done():
                began.set_result(None)

    async def _keep_listed(self) -> None:
        """Request lists when they have changed, and again when that failed."""
        first = self._settings.list_retry
        delay = first
        pause, listed_at = PAUSE, time.monotonic()
        while True:
            failed = bool(self._lists.errors)
            try:
                async with asyncio.timeout(delay if failed and delay else None):
                    await self._has_stale.wait()
            except TimeoutError:
                delay = min(delay * 2, LONGEST_DELAY)
                self._stale |= set(self._lists.errors)
            self._has_stale.clear()
            if not self._stale:
                continue  # a list has failed meanwhile
            # A server that announces changes all the time is asked ever less often.
            if time.monotonic() - listed_at < 2 * pause:
                RELISTING.hit()
                await asyncio.sleep(pause)
                pause = min(2 * pause, RELISTING.value)
            else:
                pause = PAUSE
            listed_at = time.monotonic()
            kinds = [kind for kind in self._lists.kinds if kind in self._stale]
            self._stale.clear()
            try:
                await self._list(kinds)
            except ConnectFailed as exc:
                self._owner.lose(self._client, exc)
            except ChannelClosed:
                pass  # the connection reports its end itself
            if not self._lists.errors:
                delay = first

    # Desired state

    async def _restore(self, wanted: DesiredState) -> None:
        """Request each part by itself: what the server refuses takes nothing else away."""
        client = self._client
        requests: list[Coroutine[Any, Any, None]] = []
        if wanted.log_level is not None:
            requests.append(client.set_log_level(wanted.log_level))
        requests += [client.subscribe(uri) for uri in wanted.uris]
        for outcome in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(outcome, ChannelClosed | ConnectFailed):
                raise outcome
            if isinstance(outcome, FairleadError | OSError):
                log.warning("%s: not restored: %s", self._owner.name, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    def _watch_session(self) -> None:
        """A server that forgot our session (HTTP) knows nothing of what we had asked it for."""
        channel = self._client.transport.peer.channel
        channel.on_renewed = self._session_renewed

    def _session_renewed(self) -> None:
        self._start(self._renewed())

    async def _renewed(self) -> None:
        log.info("%s: it began a new session", self._owner.name)
        self.refresh()  # it may have been started anew, with other lists
        try:
            await self._client.restore()
        except (FairleadError, OSError) as exc:
            log.warning("%s: not everything could be restored: %s", self._owner.name, exc)

    # Signs of life

    async def _ping(self) -> None:
        """Ping a connection that is not used: it may be gone without a word."""
        owner, interval = self._owner, self._settings.health_interval
        pace = interval * random.uniform(0.9, 1.1)  # servers that started together are spread
        missed, checked = 0, time.monotonic()
        while True:
            left = max(owner.answered, checked) + pace - time.monotonic()
            if left > 0:
                await asyncio.sleep(left)
                continue
            if owner.busy:  # it may do one thing at a time, and calls have limits of their own
                missed, checked = 0, time.monotonic()
                continue
            error: BaseException | None = None
            try:
                await self._client.ping()
            except (FairleadError, OSError) as exc:
                error = exc
            checked = time.monotonic()
            if error is None or owner.busy or isinstance(error, LocalResourceError):
                missed = 0
                continue
            missed += 1
            if missed >= MAX_MISSED_PINGS:
                owner.lose(self._client, ConnectFailed(f"it does not answer: {error}"))
                return
