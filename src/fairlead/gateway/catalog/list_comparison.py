"""Comparison of a server's lists for different clients.

A server may list a tool only for clients that declare certain capabilities, or only in the session
that asked for it. The lists of such clients are compared with the default lists when their first
connection opens and when a connection announces a change. For clients that only list, a connection
is opened for the comparison, one at a time in the whole gateway.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from ...client.api.list_budget import ListBudget, ListTooLarge
from ...client.api.list_pages import read_pages
from ...errors import (
    FairleadError,
    LocalResourceError,
    RemoteProtocolError,
    RpcError,
    ServerBusy,
)
from ...limits import LIST_SECONDS, LIST_VARIANTS
from ...protocol.caller import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    VERSION_KEY,
    Caller,
    has_capability,
)
from ...protocol.json_edit import encoded
from ...protocol.revisions import NEWEST
from ...protocol.targets.list_kind import ListKind
from ...relay.client_session import ClientSession
from ...transport import timeouts
from ...transport.background_tasks import BackgroundTasks
from ...upstream.connection.upstream_connection import UpstreamConnection, declared_by
from ...upstream.connection_tasks import longer_pause
from ...upstream.list_variants import DEFAULT_VARIANT, Lists, VariantKey, variant_key
from ...upstream.server_lists import NEEDED_CAPABILITY
from ...upstream.upstream import Upstream
from ...wire.error_codes import INVALID_REQUEST
from .merged_catalog import MergedCatalog

__all__ = ["ListComparison", "VariantChanged", "read_lists"]

PAGE_LIMIT = 30.0  # seconds for one page


async def read_lists(
    connection: UpstreamConnection,
    budget: Callable[[ListKind], ListBudget],
    caller: Caller | None = None,
) -> Lists:
    """Return all lists of a server.

    On a stateless connection, each request describes `caller` as its client.

    Raises:
        FairleadError: A list could not be read.
    """
    declared = declared_by(connection)
    found: dict[ListKind, list[Raw]] = {}
    for kind, capability in NEEDED_CAPABILITY.items():
        found[kind] = []
        if not has_capability(declared, capability):
            continue
        try:
            async with timeouts.timeout(LIST_SECONDS.value):
                found[kind] = await _read(connection, kind, budget(kind), caller)
        except (RpcError, RemoteProtocolError):
            # many servers with resources do not implement `resources/templates/list`
            if kind is not ListKind.TEMPLATES:
                raise
    return found


async def _read(
    connection: UpstreamConnection, kind: ListKind, budget: ListBudget, caller: Caller | None
) -> list[Raw]:
    ask: Callable[[dict[str, str] | None], Awaitable[Raw]]
    ask = partial(connection.peer.request, kind.method, timeout=PAGE_LIMIT)
    if caller is not None and connection.stateless:
        ask = partial(_ask_as, connection, kind.method, caller)
    items: list[Raw] = []
    async for page in read_pages(ask, budget, stateless=connection.stateless):
        try:
            listed = msgspec.json.decode(page.get(kind.value, Raw(b"[]")), type=list[Raw])
        except (msgspec.DecodeError, RecursionError) as exc:
            why = f"A page of {kind.method} is malformed: {exc}"
            raise RemoteProtocolError(why, code=INVALID_REQUEST) from exc
        budget.items(len(listed))
        items += listed
    return items


async def _ask_as(
    connection: UpstreamConnection, method: str, caller: Caller, params: dict[str, str] | None
) -> Raw:
    meta = {
        VERSION_KEY: NEWEST.value,
        CAPABILITIES_KEY: Raw(caller.capabilities),
        CLIENT_INFO_KEY: {"name": "fairlead", "version": "0"}
        if caller.info is None
        else Raw(caller.info),
    }
    # `peer.request` would describe Fairlead as the client, so `_meta` is written here.
    whole = encoded({**(params or {}), "_meta": meta})
    return await connection.peer.outbound.forward(method, lambda _: whole, timeout=PAGE_LIMIT)


FIRST_PAUSE = 0.05  # seconds of the first pause between two listings on one connection
# seconds for opening a connection for a comparison, unless the server needed longer at its start
OPENING = 5.0

log = logging.getLogger("fairlead.gateway")

# Called with a server, the key or connection whose lists have changed, and the kinds of the lists.
VariantChanged: TypeAlias = Callable[
    [Upstream, VariantKey | UpstreamConnection, set[ListKind]], None
]


class ListComparison(Struct, eq=False):
    """The variants of all servers' lists, and the variant that each client sees."""

    catalog: MergedCatalog
    tasks: BackgroundTasks
    changed: VariantChanged
    # One comparison at a time limits the connections that are opened only for listing.
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _comparing: dict[tuple[Upstream, VariantKey], asyncio.Task[None]] = {}
    _relisting: dict[UpstreamConnection, asyncio.Task[None]] = {}
    # `_stale` and `_requested` contain events for list changes that a connection announced.
    # An event is set once the lists have been read again.
    _stale: dict[UpstreamConnection, asyncio.Event] = {}  # changed lists that are not requested yet
    _requested: dict[UpstreamConnection, asyncio.Event] = {}

    # Variants of clients

    def variant(self, upstream: Upstream, caller: Caller, session: ClientSession | None) -> int:
        """Return the number of the variant that a client sees."""
        if caller.stateless:
            # Clients with the same properties may share a process, whose lists their calls change.
            connection = upstream.pool.handshake_connection(caller)
        else:
            connection = None if session is None else session.connection
        if connection is not None and connection.variant is not None:
            upstream.variants.use(connection.variant)
            return connection.variant
        key = variant_key(caller)
        return DEFAULT_VARIANT if key is None else upstream.variants.of_key(key) or DEFAULT_VARIANT

    def sees_default(self, upstream: Upstream, caller: Caller) -> bool:
        """Return True if a client is known to see the default lists of a server."""
        key = variant_key(caller)
        return key is None or upstream.variants.of_key(key) == DEFAULT_VARIANT

    def request(
        self, upstream: Upstream, caller: Caller, introduction: Raw | None
    ) -> "asyncio.Task[None] | None":
        """Compare the lists for clients with the same capabilities, unless they are compared
        already.

        Returns the running task; None if no comparison is needed.
        """
        key = variant_key(caller)
        if key is None or not _is_comparable(upstream, caller, introduction):
            return None
        if upstream.variants.is_current(key, upstream.lists.version):
            return None
        place = upstream, key
        task = self._comparing.get(place)
        if task is None:
            task = self.tasks.start(self._compare(upstream, key, caller, introduction))
            self._comparing[place] = task
            task.add_done_callback(lambda _: self._comparing.pop(place, None))
        return task

    async def _compare(
        self, upstream: Upstream, key: VariantKey, caller: Caller, introduction: Raw | None
    ) -> None:
        async with self._one_at_a_time:
            # Another task may have compared the same key during the wait for the lock.
            is_current = upstream.variants.is_current(key, upstream.lists.version)
            if is_current or upstream.state != "connected":
                return
            # A server that hangs must not delay the comparisons of all others.
            limit = max(OPENING, 3 * (upstream.latency or 0.0))
            try:
                connection = await upstream.pool.for_comparison(caller, introduction, limit)
                connection.activate()
                await self._take_in(upstream, key, connection, caller)
            except (FairleadError, TimeoutError) as exc:
                _failed(upstream, key, exc)

    # Connections

    def connection_opened(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        """Compare the lists of a new connection if it is the first with its capabilities."""
        connection.listeners.append(
            lambda note: (
                self._announced(upstream, connection)
                if note.method.endswith("/list_changed")
                else None
            )
        )
        caller = connection.opened_for
        key = None if caller is None or connection.stateless else variant_key(caller)
        if key is None:
            return
        if not upstream.variants.is_current(key, upstream.lists.version, is_clients=True):
            self.tasks.start(self._first_of_key(upstream, key, connection))

    async def _first_of_key(
        self, upstream: Upstream, key: VariantKey, connection: UpstreamConnection
    ) -> None:
        if (upstream, key) in self._comparing:
            return
        with contextlib.suppress(TimeoutError):  # the client may have vanished
            async with timeouts.timeout(upstream.settings.connect_timeout or None):
                await connection.wait_until_active()
            try:
                await self._take_in(upstream, key, connection, connection.opened_for)
            except (FairleadError, TimeoutError) as exc:
                _failed(upstream, key, exc)

    def relisted(self, connection: UpstreamConnection | None) -> asyncio.Event | None:
        """Return an event that is set once the lists that the connection announced are read."""
        if connection is None:
            return None
        return self._stale.get(connection) or self._requested.get(connection)

    def _announced(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        """Fetch the lists of a connection again. Only its own sessions see the changes."""
        self._stale.setdefault(connection, asyncio.Event())
        if connection in self._relisting:
            return
        task = self.tasks.start(self._relist(upstream, connection))
        self._relisting[connection] = task
        task.add_done_callback(lambda _: self._relisting.pop(connection, None))

    async def _relist(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        pause = FIRST_PAUSE
        while connection.alive and (listed := self._stale.pop(connection, None)) is not None:
            self._requested[connection] = listed
            try:
                number = self._store(upstream, await read_lists(connection, self.catalog.budget))
                before, connection.variant = connection.variant, number
                self._report(upstream, connection, before or DEFAULT_VARIANT, number)
            except (FairleadError, TimeoutError) as exc:
                log.info("%s: listing on a connection failed: %s", upstream.name, exc)
            finally:
                del self._requested[connection]
                listed.set()
            # A server that announces changes continuously must not cause continuous listing.
            await asyncio.sleep(pause)
            if connection in self._stale:
                pause = longer_pause(pause, upstream.warn_once)
        # The connection is closed, so requests must not wait for its next listing.
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
        number = self._store(upstream, await read_lists(connection, self.catalog.budget, caller))
        # Read the lists twice: if the reads differ, the lists depend on more than the client.
        if number != DEFAULT_VARIANT:
            lists = await read_lists(connection, self.catalog.budget, caller)
            if self._store(upstream, lists) != number:
                log.info(
                    "%s: the lists change without notification and are not compared", upstream.name
                )
                number, version = DEFAULT_VARIANT, None
        upstream.variants.assign(key, number, version)
        self._report(upstream, key, before, number)
        if upstream.variants.of_key(key) == DEFAULT_VARIANT:
            upstream.pool.retire_unused(connection)

    def _report(
        self,
        upstream: Upstream,
        whose: VariantKey | UpstreamConnection,
        before: int,
        now: int,
    ) -> None:
        kinds = upstream.variants.differences(before, now, upstream.lists.items)
        if kinds:
            self.changed(upstream, whose, kinds)

    def _store(self, upstream: Upstream, lists: Lists) -> int:
        # Replicas share the name of their server.
        server = upstream.name.partition("#")[0]
        number, dropped = upstream.variants.add(lists, upstream.lists.items)
        if dropped is not None:
            self.catalog.drop_variant(server, dropped)
            upstream.warn_once(
                f"lists different items to more than {LIST_VARIANTS.value} kinds of clients; those "
                "of the longest unused kind were dropped"
            )
        if number != DEFAULT_VARIANT:
            tools = upstream.spec.permitted(lists.get(ListKind.TOOLS, []))
            try:
                self.catalog.put_variant(server, number, {**lists, ListKind.TOOLS: tools})
            except ListTooLarge:
                # The catalog does not contain the variant, so no client may be assigned to it.
                upstream.variants.discard(number)
                raise
        return number


def _failed(upstream: Upstream, key: VariantKey, error: Exception) -> None:
    """Record a failed comparison, so that further list requests do not repeat it."""
    log.info("%s: comparing the lists failed: %s", upstream.name, error)
    # The other errors are temporary: the next list request compares the lists again.
    if not isinstance(error, LocalResourceError | ServerBusy):
        known = upstream.variants.of_key(key) or DEFAULT_VARIANT
        upstream.variants.assign(key, known, upstream.lists.version, failed=True)


def _is_comparable(upstream: Upstream, caller: Caller, introduction: Raw | None) -> bool:
    """Return True if the lists for this client may differ and can be compared."""
    if upstream.state != "connected" or upstream.settings.share == "all":
        return False
    if upstream.spec.entry.lazy:
        # Only calls start a lazy server; comparing its lists must not.
        return False
    return caller.stateless or introduction is not None
