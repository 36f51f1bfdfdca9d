"""One server name of a gateway: its lists in the catalog, and the relays that answer for it."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from ...client.api.list_budget import ListTooLarge
from ...config.server_spec import ServerSpec
from ...errors import RpcError
from ...protocol.targets.list_kind import ListKind
from ...relay.replicas import Replicas
from ...upstream.startup_wait import StillStarting, still_starting_error
from ...upstream.upstream import Upstream
from ...wire import to_json
from ..catalog.merged_catalog import MergedCatalog

__all__ = ["Member"]

log = logging.getLogger("fairlead.gateway")


class Member:
    """One server name of a gateway; several equal servers may share it.

    `replicas` answers requests; everything here is about lists.
    """

    def __init__(
        self,
        name: str,
        replicas: Replicas,
        catalog: MergedCatalog,
        changed: Callable[[ListKind], None],
    ) -> None:
        """`replicas` answer its requests. `changed` is called for every list that has changed."""
        self.name = name
        self.replicas = replicas
        self.listed = asyncio.Event()  # its lists are known, or why they are not
        self.introduced = asyncio.Event()  # and it said so itself; they are not from last time
        self.began = time.monotonic()
        self.error: BaseException | None = None  # of the last listing
        self._catalog = catalog
        self._changed = changed
        self._known = False  # its lists were received at least once
        self._applied: dict[ListKind, list[Raw]] = {}
        self._refused: dict[ListKind, ListTooLarge] = {}  # lists that are too large
        self._retired = False

    @property
    def names(self) -> list[str]:
        """The names of its upstreams."""
        return [relay.name for relay in self.replicas]

    def has_tool(self, name: str) -> bool:
        """Whether the configuration lets a tool through."""
        return self._spec.has_tool(name)

    @property
    def filtered(self) -> bool:
        return self._spec.filters_tools

    @property
    def _spec(self) -> ServerSpec:
        return self.upstreams[0].spec

    @property
    def upstreams(self) -> list[Upstream]:
        """The equal servers of this name."""
        return [relay.upstream for relay in self.replicas if relay.upstream is not None]

    def remember(self, tools: list[dict[str, Any]]) -> None:
        """List tools from last time, until the server has listed its tools."""
        shown = [Raw(to_json(tool)) for tool in tools if self.has_tool(str(tool.get("name")))]
        try:
            if self._catalog.put(self.name, ListKind.TOOLS, shown):
                self._changed(ListKind.TOOLS)
        except ListTooLarge as exc:
            log.warning("%s: what it listed last time is not used: %s", self.name, exc)
        self.listed.set()

    def begins(self) -> None:
        """Take note that a server starts; if none is connected, it may be about to list."""
        if not self._known and self.replicas.none_connected:
            self.introduced.clear()

    async def introduction(self) -> RpcError | None:
        """Wait until its lists are known or failed; return an error if it is still starting."""
        waits = [upstream.startup_wait for upstream in self.upstreams]
        longest = max(waits, key=lambda one: one.limit)
        try:
            async with asyncio.timeout(longest.seconds):
                await self.introduced.wait()
        except TimeoutError:
            return still_starting_error(self.name, StillStarting(longest))
        return None

    def update(self, upstream: Upstream) -> None:
        """Put the new lists of a server into the catalog."""
        if self._retired:
            return
        source = self.replicas.best.upstream
        if source is not upstream or source is None:
            return
        failure = source.lists.error
        for kind, items in source.lists.items.items():
            if self._applied.get(kind) is not items:
                self._applied[kind] = items
                self._put(kind, items)
        self.error = failure or next(iter(self._refused.values()), None)
        self._known = self._known or (self.error is None and bool(self._applied))
        if upstream.state == "connected":
            self.listed.set()
            self.introduced.set()

    def _put(self, kind: ListKind, items: list[Raw]) -> None:
        self._refused.pop(kind, None)
        try:
            shown = self._spec.permitted(items) if kind is ListKind.TOOLS else items
            if self._catalog.put(self.name, kind, shown):
                self._changed(kind)
        except ListTooLarge as exc:
            log.warning("%s: what it offers cannot be listed: %s", self.name, exc)
            self._refused[kind] = exc

    def refresh(self) -> None:
        """List everything again, in the background; what is known stays until then."""
        for upstream in self.upstreams:
            upstream.refresh_lists()

    def refresh_if_older(self, seconds: float) -> None:
        """Do the same, if it is connected and its lists are that old."""
        for upstream in self.upstreams:
            age = time.monotonic() - upstream.lists.listed_at
            if upstream.state == "connected" and age >= seconds:
                upstream.refresh_lists()

    def failed(self) -> None:
        """Take note that a server could not be connected; if none can, nothing waits for it."""
        if self.replicas.all_unavailable:
            self.listed.set()
            self.introduced.set()

    def retire(self) -> None:
        """Remove it from the gateway: it lists nothing, and nothing waits for it."""
        self._retired = True
        self.replicas.retire()
        self.listed.set()
        self.introduced.set()

    async def close(self) -> None:
        self.retire()
        await self.replicas.close()
