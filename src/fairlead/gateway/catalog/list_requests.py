"""Requests for merged lists, which wait briefly for servers that are starting."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from math import inf

from msgspec import Struct

from ...interceptor import Exchange
from ...protocol.caller import Caller
from ...protocol.targets.list_kind import ListKind
from ...relay.request_params import cursor_of, wants_all
from ...transport import timeouts
from ...upstream.list_variants import variant_key
from ..backends.backend import Member
from ..clients.client_sessions import ConnectedClient
from .list_comparison import ListComparison
from .merged_catalog import MergedCatalog, Selection
from .views import ClientViews

__all__ = ["MergedLists"]


class MergedLists(Struct, eq=False):
    """Merged lists for clients, answered from the catalog. Outdated lists are fetched again in the
    background.

    `deadline`, `fresh` and `search` are described in `GatewaySettings`.
    """

    catalog: MergedCatalog
    members: Mapping[str, Member]
    views: ClientViews
    comparison: ListComparison
    deadline: float
    fresh: float
    search: bool
    _checked: float = -inf  # time of the last check for outdated lists

    async def ready(self) -> None:
        """Wait for servers that have not listed their items yet, each until its deadline."""
        for member in [one for one in self.members.values() if not one.listed.is_set()]:
            left = member.began + self.deadline - time.monotonic()
            if left <= 0:
                continue
            with contextlib.suppress(TimeoutError):
                async with timeouts.timeout(left):
                    await member.listed.wait()

    def is_ready_for(self, exchange: Exchange, client: ConnectedClient | None) -> bool:
        """Return True if the lists for a client are known. Otherwise, start comparing them."""
        return not self._comparisons(exchange.caller, client) and not self._relisted(client)

    async def ready_for(self, exchange: Exchange, client: ConnectedClient | None) -> None:
        """Wait until all servers have listed their items, and the variants for this client are
        known.

        The wait ends at the deadline. Items that arrive later are announced to clients as a change.
        """
        await self.ready()
        if comparing := self._comparisons(exchange.caller, client):
            await asyncio.wait(comparing, timeout=self.deadline)
        with contextlib.suppress(TimeoutError):
            async with timeouts.timeout(self.deadline):
                for listed in self._relisted(client):
                    await listed.wait()

    def _relisted(self, client: ConnectedClient | None) -> list[asyncio.Event]:
        """Return events that are set once the changed lists of the client are read."""
        sessions = () if client is None else client.sessions.values()
        events = (self.comparison.relisted(session.connection) for session in sessions)
        return [event for event in events if event is not None]

    def _comparisons(
        self, caller: Caller, client: ConnectedClient | None
    ) -> "list[asyncio.Task[None]]":
        if variant_key(caller) is None:
            return []
        introduction = None if client is None else client.introduction
        view = self.views.view_of(caller)
        found = []
        for member in self.members.values():
            if view.includes(member.name):
                upstream = member.upstreams[0]
                task = self.comparison.request(upstream, caller, introduction)
                found += [] if task is None else [task]
        return found

    def sees_variant(self, client: ConnectedClient, server: str) -> bool:
        """Return True if a client sees a variant of a server's lists, not the default lists."""
        caller, member = client.peer.conversation.peer, self.members.get(server)
        return (
            caller is not None and member is not None and self._variant(member, caller, client) > 0
        )

    def _variant(self, member: Member, caller: Caller, client: ConnectedClient | None) -> int:
        session = None if client is None else client.sessions.get(member.replicas[0])
        return self.comparison.variant(member.upstreams[0], caller, session)

    def selection(self, caller: Caller, client: ConnectedClient | None) -> Selection:
        """Return the variants of lists that a client sees."""
        if not self.catalog.has_variants:
            return None
        chosen = []
        for member in self.members.values():
            number = self._variant(member, caller, client)
            if number:
                chosen.append((member.name, number))
        return tuple(chosen)

    def page(
        self, kind: ListKind, exchange: Exchange, client: ConnectedClient | None = None
    ) -> bytes:
        """Return the members of a list result, without the braces.

        Raises:
            RpcError: The cursor is invalid.
        """
        caller = exchange.caller
        self._refresh_old()
        if kind is ListKind.TOOLS and self.search and not wants_all(exchange):
            # Imported on demand, because most gateways do not use the search.
            from ..search.search_index import search_page

            return search_page(caller.revision)
        cursor = cursor_of(exchange)
        return self.catalog.page(
            kind,
            self.views.view_of(caller),
            caller.revision,
            cursor,
            self.selection(caller, client),
        )

    def _refresh_old(self) -> None:
        """Fetch outdated lists again in the background. The current request uses the old lists."""
        fresh, now = self.fresh, time.monotonic()
        # At most once a second, because this runs for every list request.
        if not fresh or now - self._checked < min(fresh, 1.0):
            return
        self._checked = now
        for member in self.members.values():
            member.refresh_if_older(fresh)
