"""Background tasks of a server's default connection: current lists and pings."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from ..client import MCPClient
from ..client.connection.listen_request import WatchedChanges
from ..errors import (
    ChannelClosed,
    ConnectFailed,
    FairleadError,
    LocalResourceError,
    RequestTimeout,
    RetriesExhausted,
)
from ..limits import LIST_SECONDS, RELISTING
from ..protocol.caller import has_capability
from ..protocol.targets.list_kind import ListKind
from ..transport import timeouts
from ..transport.background_tasks import BackgroundTasks
from .connection_keeper import ConnectionKeeper
from .server_lists import NEEDED_CAPABILITY, ServerLists

__all__ = ["ConnectionTasks", "DesiredState", "longer_pause"]

log = logging.getLogger("fairlead.manager")

MAX_MISSED_PINGS = 2  # number of unanswered pings after which a connection is lost
LISTEN_GRACE = 1.0  # seconds that listing waits for the change stream to open
PAUSE = 0.05  # seconds of the first pause between two rounds of listing
LONG_PAUSE = 1.0  # seconds; a server is reported when the pause has reached this length
LIST_GRACE = 2.0  # seconds for lists other than tools, before a server counts as connected
LONGEST_DELAY = 60.0  # seconds between attempts to list

_LISTS: tuple[WatchedChanges, ...] = ("tools", "prompts", "resources")


class DesiredState(Struct):
    """The subscriptions and log level of a program, which are restored after a reconnect."""

    uris: dict[str, None] = {}
    log_level: str | None = None


def longer_pause(pause: float, warn: Callable[[str], None]) -> float:
    """Return the next pause between two list requests to a server that announces changes all the
    time.
    """
    RELISTING.hit()
    if pause >= LONG_PAUSE:
        most = RELISTING.value
        warn(f"announces changes of its lists continuously, and is asked at most every {most} s")
    return min(2 * pause, RELISTING.value)


class ConnectionTasks:
    """The background tasks of one connection.

    The tasks end with the connection, and the failure of a task ends the connection.
    """

    def __init__(self, owner: ConnectionKeeper, client: MCPClient, lists: ServerLists) -> None:
        self._owner = owner
        self._client = client
        self._lists = lists
        self._tasks = BackgroundTasks()
        self._stale: set[ListKind] = set()
        self._has_stale = asyncio.Event()
        self._tools_listed = asyncio.Event()
        self._begun = False
        self._pinging: asyncio.Task[None] | None = None
        self._numbers = dict.fromkeys(ListKind, 0)  # number of the last request for each list
        declared = client.server.get("capabilities", {})
        self._declared: dict[str, Any] = declared if isinstance(declared, dict) else {}
        # Includes lists that are not kept, because programs may listen for changes of any list.
        self._followed = tuple(
            name for name in _LISTS if has_capability(self._declared, f"{name}.listChanged")
        )

    async def begin(self, wanted: DesiredState) -> None:
        """Request the lists and the desired state, within the time limit for connecting.

        Raises:
            ChannelClosed, ConnectFailed: The connection was lost.
        """
        limit = self._owner.settings.connect_timeout
        if self._followed:
            # Started before listing, so that no change is missed.
            began = asyncio.get_running_loop().create_future()
            self._start(self._follow(began))
            await asyncio.wait((began,), timeout=LISTEN_GRACE)
        first = asyncio.get_running_loop().time()
        listing = self._start(self._list(self._lists.kinds))
        urgent = ListKind.TOOLS in self._lists.kinds
        try:
            async with timeouts.timeout(limit or None):
                # Shielded, because listing continues after the time limit.
                await asyncio.shield(self._tools_listed.wait() if urgent else listing)
                # A server counts as connected even if its lists other than tools are late.
                left = first + LIST_GRACE - asyncio.get_running_loop().time()
                await asyncio.wait((listing,), timeout=max(left, 0.0))
                if listing.done():
                    listing.result()
                await self._restore(wanted)
        except TimeoutError:
            if urgent and not self._tools_listed.is_set():
                output = self._client.transport.peer.output_within(limit)
                error = RequestTimeout(limit, ListKind.TOOLS.method, output=output)
                self._lists.fail(ListKind.TOOLS, error)
            else:
                log.warning("%s: the desired state was not restored in time", self._owner.name)
        self._begun = True
        channel = self._client.transport.peer.channel
        channel.on_renewed = self._session_renewed
        self._start(self._keep_listed())
        self._ping_from_now()

    def settings_changed(self) -> None:
        """Apply a new interval of pings, and a new delay before failed lists are requested."""
        if self._begun:
            self._ping_from_now()
        self._has_stale.set()

    def heard(self, method: str) -> None:
        """Handle a `list_changed` notification that did not arrive on the stream of changes."""
        name = method.split("/")[1] if method.endswith("/list_changed") else ""
        if name not in self._followed:
            self._list_changed(name)

    def refresh(self) -> None:
        """Request all lists again, in the background."""
        self.request(self._lists.kinds)

    async def end(self) -> None:
        await self._tasks.close()

    def request(self, kinds: Iterable[ListKind]) -> None:
        """Request the lists of these kinds in the background, except those that are not kept."""
        self._stale |= set(kinds) & set(self._lists.kinds)
        if self._stale:
            self._has_stale.set()

    def _list_changed(self, name: str) -> None:
        self.request(kind for kind, needed in NEEDED_CAPABILITY.items() if needed == name)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._tasks.start(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, ChannelClosed | ConnectFailed):
            log.error("%s: a task of the connection failed", self._owner.name, exc_info=error)
        self._owner.lose(self._client, error)

    # Lists

    async def _list(self, kinds: Iterable[ListKind]) -> None:
        """Request several lists concurrently; the failure of one does not affect the others.

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
            # Over HTTP no channel closes, so the failed request is the only sign of a loss.
            if isinstance(cause, ConnectFailed) and self._begun:
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
            async with timeouts.timeout(LIST_SECONDS.value):
                items = await self._client.list_raw(kind.method, kind.value)
        except TimeoutError as exc:
            # The timeout of a single page is also a `TimeoutError`, but a `FairleadError` too.
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
        """Record a failed list; the server stays connected."""
        if kind is ListKind.TEMPLATES and kind not in self._lists.items:
            log.debug("%s: no templates: %s", self._owner.name, error)
            # Many servers with resources lack the method, so the list counts as empty.
            self._lists.put(kind, [])
            return
        log.warning("%s: %s failed: %s", self._owner.name, kind.method, error)
        self._lists.fail(kind, error)
        self._has_stale.set()  # wakes `_keep_listed`, which retries after a delay

    async def _follow(self, began: "asyncio.Future[None]") -> None:
        """Follow changes of lists, and request all lists again after the stream was interrupted."""
        try:
            async with self._client.changes(*self._followed) as changes:
                began.set_result(None)
                async for change in changes:
                    self._list_changed(change.kind)
        except (FairleadError, OSError) as exc:
            log.warning("%s: changes of lists cannot be followed: %s", self._owner.name, exc)
            self._followed = ()  # `heard` handles changes of lists from now on
        finally:
            if not began.done():
                began.set_result(None)

    async def _keep_listed(self) -> None:
        """Request lists after a change, and failed lists after a delay."""
        factor = 1  # multiplier of the delay before failed lists are requested again
        pause, listed_at = PAUSE, time.monotonic()
        while True:
            failed = bool(self._lists.errors)
            delay = min(self._owner.settings.list_retry * factor, LONGEST_DELAY)
            try:
                async with timeouts.timeout(delay if failed and delay else None):
                    await self._has_stale.wait()
            except TimeoutError:
                factor = factor * 2 if delay < LONGEST_DELAY else factor
                self._stale |= set(self._lists.errors)
            self._has_stale.clear()
            if not self._stale:
                continue  # a failed list or changed settings: wait for the new delay
            # The pause grows while a server announces changes continuously.
            if time.monotonic() - listed_at < 2 * pause:
                await asyncio.sleep(pause)
                pause = longer_pause(pause, self._owner.warn_once)
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
                pass  # the loss is reported when the channel closes
            if not self._lists.errors:
                factor = 1

    # Desired state

    async def _restore(self, wanted: DesiredState) -> None:
        """Restore the log level and each subscription in separate requests, any of which may
        fail.
        """
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

    def _session_renewed(self) -> None:
        self._start(self._renewed())

    async def _renewed(self) -> None:
        """Restore the desired state, which the server has lost in a new HTTP session."""
        log.info("%s: the server began a new session", self._owner.name)
        self.refresh()  # the server may have restarted with other lists
        try:
            await self._client.restore()
        except (FairleadError, OSError) as exc:
            log.warning("%s: the desired state was not restored: %s", self._owner.name, exc)

    # Pings

    def _ping_from_now(self) -> None:
        """Begin to ping at the current interval, instead of the previous one."""
        if self._pinging is not None:
            self._pinging.cancel()
        interval = self._owner.settings.health_interval
        self._pinging = self._start(self._ping(interval)) if interval else None

    async def _ping(self, interval: float) -> None:
        """Ping an idle connection to detect its loss."""
        owner = self._owner
        # Random, so that servers that started together are not pinged at the same time.
        pace = interval * random.uniform(0.9, 1.1)
        missed, checked = 0, time.monotonic()
        while True:
            left = max(owner.answered, checked) + pace - time.monotonic()
            if left > 0:
                await asyncio.sleep(left)
                continue
            # No ping: a server may process one request at a time, and calls have timeouts.
            if owner.busy:
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
                owner.lose(self._client, ConnectFailed(f"the server does not respond: {error}"))
                return
