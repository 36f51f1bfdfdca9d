"""One server name of a gateway: its lists in the catalog, and its replicas."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct, field

from ...client.api.list_budget import ListTooLarge
from ...config.server_spec import ServerSpec
from ...errors import RpcError
from ...protocol.targets.list_kind import ListKind
from ...relay.replicas import Replicas
from ...transport import timeouts
from ...upstream.startup_wait import StillStarting, still_starting_error
from ...upstream.upstream import Upstream
from ...wire import to_json
from ..catalog.merged_catalog import MergedCatalog

__all__ = ["Member"]

log = logging.getLogger("fairlead.gateway")


class Member(Struct, eq=False):
    """A server name of a gateway, which one or more replicas share.

    `replicas` answers requests; the other fields concern the lists.

    `changed` is called with the kind of each list that has changed.
    """

    name: str
    replicas: Replicas
    catalog: MergedCatalog
    changed: Callable[[ListKind], None]
    # Set once the lists are known or could not be read.
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    # Like `listed`, but not set by lists that were cached in the last run.
    introduced: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = field(default_factory=time.monotonic)
    error: BaseException | None = None  # error of the last attempt to list items
    known: bool = False  # lists were received at least once
    _applied: dict[ListKind, list[Raw]] = {}
    _refused: dict[ListKind, ListTooLarge] = {}  # lists that exceed a limit
    _retired: bool = False

    @property
    def names(self) -> list[str]:
        """Names of the upstreams of all replicas."""
        return [relay.name for relay in self.replicas]

    @property
    def spec(self) -> ServerSpec:
        """The configuration of the first replica; its tool filters apply to all replicas."""
        return self.upstreams[0].spec

    @property
    def upstreams(self) -> list[Upstream]:
        """Upstreams of all replicas."""
        return [relay.upstream for relay in self.replicas if relay.upstream is not None]

    @property
    def awaits_introduction(self) -> bool:
        """True while the server is starting. An idle server starts when it is used."""
        return not self.introduced.is_set() and any(one.status != "idle" for one in self.upstreams)

    def remember(self, tools: list[dict[str, Any]]) -> None:
        """Offer the tools that the server listed in its last run until it lists its tools again."""
        shown = [Raw(to_json(tool)) for tool in self.spec.allowed(tools)]
        try:
            if self.catalog.put(self.name, ListKind.TOOLS, shown):
                self.changed(ListKind.TOOLS)
        except ListTooLarge as exc:
            log.warning("%s: the tools from the last run are not used: %s", self.name, exc)
        self.listed.set()

    def begins(self) -> None:
        """Handle the start of a server.

        Calls wait for its lists, unless the lists are known or a replica is connected.
        """
        if not self.known and self.replicas.none_connected:
            self.introduced.clear()

    async def introduction(self) -> RpcError | None:
        """Wait until the lists are known or failed; return an error if the server is still
        starting.
        """
        waits = [upstream.startup_wait for upstream in self.upstreams]
        longest = max(waits, key=lambda one: one.limit)
        try:
            async with timeouts.timeout(longest.seconds):
                await self.introduced.wait()
        except TimeoutError:
            return still_starting_error(self.name, StillStarting(longest))
        return None

    def update(self, upstream: Upstream) -> None:
        """Put the new lists of a server into the catalog."""
        if self._retired:
            return
        source = self.replicas.best.upstream
        # Replicas list the same items, so only the lists of one of them are used.
        if source is not upstream or source is None:
            return
        failure = source.lists.error
        for kind, items in source.lists.items.items():
            # An identity check is enough here: `put` compares the items.
            if self._applied.get(kind) is not items:
                self._applied[kind] = items
                self._put(kind, items)
        self.error = failure or next(iter(self._refused.values()), None)
        self.known = self.known or (self.error is None and bool(self._applied))
        if upstream.state == "connected":
            self.listed.set()
            self.introduced.set()

    def _put(self, kind: ListKind, items: list[Raw]) -> None:
        self._refused.pop(kind, None)
        try:
            shown = self.spec.permitted(items) if kind is ListKind.TOOLS else items
            if self.catalog.put(self.name, kind, shown):
                self.changed(kind)
        except ListTooLarge as exc:
            log.warning("%s: the new list is not used: %s", self.name, exc)
            self._refused[kind] = exc

    def refresh(self) -> None:
        """Fetch all lists again in the background. The current lists stay in use until then."""
        for upstream in self.upstreams:
            upstream.refresh_lists()

    def refresh_if_older(self, seconds: float) -> None:
        """Fetch the lists of connected servers again if they are at least this old."""
        for upstream in self.upstreams:
            age = time.monotonic() - upstream.lists.listed_at
            if upstream.state == "connected" and age >= seconds:
                upstream.refresh_lists()

    def failed(self) -> None:
        """Handle a failed connection attempt. If no replica is available, requests stop waiting."""
        if self.replicas.all_unavailable:
            self.listed.set()
            self.introduced.set()

    def retire(self) -> None:
        """Stop updating lists, and release all waiting requests, because the server is removed."""
        self._retired = True
        self.replicas.retire()
        self.listed.set()
        self.introduced.set()

    async def close(self) -> None:
        self.retire()
        await self.replicas.close()
