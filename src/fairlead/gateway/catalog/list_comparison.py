"""Which clients see other lists of a server than the default ones.

A server may list a tool only for clients that declare certain capabilities, or add one in the
session that asked for it. The lists of such clients are compared with the default ones: when their
first connection opens, when a connection announces a change, and, for clients that only list, on a
connection that is opened for the comparison, one at a time in the whole gateway.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from msgspec import Raw

from ...client.api.list_budget import ListTooLarge
from ...errors import FairleadError
from ...limits import RELISTING
from ...protocol.caller import Caller
from ...protocol.targets.list_kind import ListKind
from ...relay.client_session import ClientSession
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...upstream.connection_lists import read_lists
from ...upstream.list_variants import DEFAULT_VARIANT, Lists, VariantKey, variant_key
from ...upstream.upstream import Upstream
from ..background_tasks import BackgroundTasks
from .merged_catalog import MergedCatalog

__all__ = ["ListComparison", "VariantChanged"]

FIRST_PAUSE = 0.05  # seconds between two listings of one connection in a row, at first

log = logging.getLogger("fairlead.gateway")

# Called with the key or connection whose clients see other lists now, and the kinds of those.
VariantChanged: TypeAlias = Callable[[VariantKey | UpstreamConnection, set[ListKind]], None]


class ListComparison:
    """Keeps the variants of all servers' lists, and finds out which clients see which."""

    def __init__(
        self, catalog: MergedCatalog, tasks: BackgroundTasks, changed: VariantChanged
    ) -> None:
        self._catalog = catalog
        self._tasks = tasks
        self._changed = changed
        self._one_at_a_time = asyncio.Lock()
        self._comparing: dict[tuple[Upstream, VariantKey], asyncio.Task[None]] = {}
        self._relisting: dict[UpstreamConnection, asyncio.Task[None]] = {}
        # Set once lists were read that were requested after the announcement of a change.
        self._stale: dict[UpstreamConnection, asyncio.Event] = {}  # not requested yet
        self._requested: dict[UpstreamConnection, asyncio.Event] = {}

    # What a client sees

    def variant(self, upstream: Upstream, caller: Caller, session: ClientSession | None) -> int:
        """Return the number of the lists that a client sees of a server."""
        connection = None if session is None else session.connection
        if connection is not None and connection.variant is not None:
            return connection.variant
        key = variant_key(caller)
        return DEFAULT_VARIANT if key is None else upstream.variants.of_key(key) or DEFAULT_VARIANT

    def sees_default(self, upstream: Upstream, caller: Caller) -> bool:
        """Return True if it is known that a client sees the default lists of a server."""
        key = variant_key(caller)
        return key is None or upstream.variants.of_key(key) == DEFAULT_VARIANT

    def request(
        self, upstream: Upstream, caller: Caller, introduction: Raw | None
    ) -> "asyncio.Task[None] | None":
        """Compare the lists for clients like this one, if that was never done.

        Returns the task that does it, while it runs.
        """
        key = variant_key(caller)
        if key is None or not _is_comparable(upstream, caller, introduction):
            return None
        if upstream.variants.is_current(key, upstream.lists.version):
            return None
        place = upstream, key
        task = self._comparing.get(place)
        if task is None:
            task = self._tasks.start(self._compare(upstream, key, caller, introduction))
            self._comparing[place] = task
            task.add_done_callback(lambda _: self._comparing.pop(place, None))
        return task

    async def _compare(
        self, upstream: Upstream, key: VariantKey, caller: Caller, introduction: Raw | None
    ) -> None:
        async with self._one_at_a_time:
            is_current = upstream.variants.is_current(key, upstream.lists.version)
            if is_current or upstream.state != "connected":
                return
            try:
                connection = await upstream.pool.for_comparison(caller, introduction)
                connection.activate()
                await self._take_in(upstream, key, connection, caller)
            except (FairleadError, TimeoutError) as exc:
                log.info("%s: its lists were not compared: %s", upstream.name, exc)
                known = upstream.variants.of_key(key) or DEFAULT_VARIANT
                upstream.variants.assign(key, known, upstream.lists.version)
                return
            if upstream.variants.of_key(key) == DEFAULT_VARIANT:
                upstream.pool.retire_unused(connection)

    # Connections

    def connection_opened(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        """Compare the lists of a new connection, if it is the first of its kind."""
        connection.listeners.append(
            lambda note: (
                self._announced(upstream, connection)
                if note.method.endswith("/list_changed")
                else None
            )
        )
        caller = connection.opened_for
        key = None if caller is None or connection.stateless else variant_key(caller)
        if key is not None and not upstream.variants.is_current(key, upstream.lists.version):
            self._tasks.start(self._first_of_key(upstream, key, connection))

    async def _first_of_key(
        self, upstream: Upstream, key: VariantKey, connection: UpstreamConnection
    ) -> None:
        if (upstream, key) in self._comparing:
            return
        try:
            async with asyncio.timeout(upstream.settings.connect_timeout or None):
                await connection.wait_until_active()
            await self._take_in(upstream, key, connection, connection.opened_for)
        except (FairleadError, TimeoutError) as exc:
            log.info("%s: its lists were not compared: %s", upstream.name, exc)
            return
        if upstream.variants.of_key(key) == DEFAULT_VARIANT:
            upstream.pool.retire_unused(connection)

    def relisted(self, connection: UpstreamConnection | None) -> asyncio.Event | None:
        """Return what is set when a connection has listed a change that it announced."""
        if connection is None:
            return None
        return self._stale.get(connection) or self._requested.get(connection)

    def _announced(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        """Request the lists of a connection again; what it lists belongs to its own sessions."""
        self._stale.setdefault(connection, asyncio.Event())
        if connection in self._relisting:
            return
        task = self._tasks.start(self._relist(upstream, connection))
        self._relisting[connection] = task
        task.add_done_callback(lambda _: self._relisting.pop(connection, None))

    async def _relist(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        pause = FIRST_PAUSE
        while connection.alive and (listed := self._stale.pop(connection, None)) is not None:
            self._requested[connection] = listed
            try:
                number = self._store(upstream, await read_lists(connection, self._catalog.budget))
                before, connection.variant = connection.variant, number
                self._report(upstream, connection, before or DEFAULT_VARIANT, number)
            except (FairleadError, TimeoutError) as exc:
                log.info("%s: the lists of a connection failed: %s", upstream.name, exc)
            finally:
                del self._requested[connection]
                listed.set()
            await asyncio.sleep(pause)  # a server that announces changes all the time
            if connection in self._stale:
                RELISTING.hit()
                pause = min(2 * pause, RELISTING.value)
        if (left := self._stale.pop(connection, None)) is not None:
            left.set()

    # Variants

    async def _take_in(
        self,
        upstream: Upstream,
        key: VariantKey,
        connection: UpstreamConnection,
        caller: Caller | None,
    ) -> None:
        version: int | None = upstream.lists.version
        before = upstream.variants.of_key(key) or DEFAULT_VARIANT
        number = self._store(upstream, await read_lists(connection, self._catalog.budget, caller))
        if number != DEFAULT_VARIANT:
            lists = await read_lists(connection, self._catalog.budget, caller)
            if self._store(upstream, lists) != number:
                log.info("%s: its lists change without notice; not compared", upstream.name)
                number, version = DEFAULT_VARIANT, None
        upstream.variants.assign(key, number, version)
        self._report(upstream, key, before, number)

    def _report(
        self,
        upstream: Upstream,
        whose: VariantKey | UpstreamConnection,
        before: int,
        now: int,
    ) -> None:
        kinds = upstream.variants.differences(before, now, upstream.lists.items)
        if kinds:
            self._changed(whose, kinds)

    def _store(self, upstream: Upstream, lists: Lists) -> int:
        server = upstream.name.partition("#")[0]  # replicas have one name
        number, dropped = upstream.variants.add(lists, upstream.lists.items)
        if dropped is not None:
            self._catalog.drop_variant(server, dropped)
        if number != DEFAULT_VARIANT:
            tools = upstream.spec.permitted(lists.get(ListKind.TOOLS, []))
            try:
                self._catalog.put_variant(server, number, {**lists, ListKind.TOOLS: tools})
            except ListTooLarge:
                upstream.variants.discard(number)
                raise
        return number


def _is_comparable(upstream: Upstream, caller: Caller, introduction: Raw | None) -> bool:
    """Whether clients of this kind may see other lists, and that can be found out."""
    if upstream.state != "connected" or upstream.settings.share == "all":
        return False
    if upstream.spec.entry.lazy:
        return False  # it is started for calls only
    return caller.stateless or introduction is not None
