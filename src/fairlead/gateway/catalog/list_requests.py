"""Merged lists as clients request them, after a moment for servers that were just started."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from math import inf

from ...interceptor import Exchange
from ...protocol.caller import Caller
from ...protocol.targets.list_kind import ListKind
from ...relay.request_params import cursor_of, wants_all
from ...upstream.list_variants import variant_key
from ..backends.backend import Member
from ..clients.client_sessions import ConnectedClient
from ..clients.client_views import ClientViews
from .list_comparison import ListComparison
from .merged_catalog import MergedCatalog, Selection

__all__ = ["MergedLists"]


class MergedLists:
    """Answers lists from the catalog, and has old ones fetched again."""

    def __init__(
        self,
        catalog: MergedCatalog,
        members: Mapping[str, Member],
        views: ClientViews,
        comparison: ListComparison,
        *,
        deadline: float,
        fresh: float,
        search: bool,
    ) -> None:
        """`deadline`, `fresh` and `search` are those of `GatewaySettings`."""
        self._catalog = catalog
        self._members = members
        self._views = views
        self._comparison = comparison
        self._deadline = deadline
        self._fresh = fresh
        self._search = search
        self._checked = -inf  # when the age of lists was last checked

    async def ready(self) -> None:
        """Wait for servers that have not listed anything yet, each until its deadline."""
        for member in [one for one in self._members.values() if not one.listed.is_set()]:
            left = member.began + self._deadline - time.monotonic()
            if left <= 0:
                continue
            try:
                async with asyncio.timeout(left):
                    await member.listed.wait()
            except TimeoutError:
                pass

    def is_ready_for(self, exchange: Exchange, client: ConnectedClient | None) -> bool:
        """Return True if it is known which lists a client sees; False begins to find out."""
        return not self._comparisons(exchange.caller, client) and not self._relisted(client)

    async def ready_for(self, exchange: Exchange, client: ConnectedClient | None) -> None:
        """Wait for servers that have not listed anything yet, or not for such a client.

        Clients are notified later of what is not known by the deadline.
        """
        await self.ready()
        if comparing := self._comparisons(exchange.caller, client):
            await asyncio.wait(comparing, timeout=self._deadline)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deadline):
                for listed in self._relisted(client):
                    await listed.wait()

    def _relisted(self, client: ConnectedClient | None) -> list[asyncio.Event]:
        """Return what is set when the client's own connections have listed their changes."""
        sessions = () if client is None else client.sessions.values()
        events = (self._comparison.relisted(session.connection) for session in sessions)
        return [event for event in events if event is not None]

    def _comparisons(
        self, caller: Caller, client: ConnectedClient | None
    ) -> "list[asyncio.Task[None]]":
        if variant_key(caller) is None:
            return []
        introduction = None if client is None else client.introduction
        view = self._views.view_of(caller)
        found = []
        for member in self._members.values():
            if view.includes(member.name):
                upstream = member.upstreams[0]
                task = self._comparison.request(upstream, caller, introduction)
                found += [] if task is None else [task]
        return found

    def sees_variant(self, client: ConnectedClient, server: str) -> bool:
        """Return True if a client sees other lists of a server than the default ones."""
        caller, member = client.peer.conversation.peer, self._members.get(server)
        return (
            caller is not None and member is not None and self._variant(member, caller, client) > 0
        )

    def _variant(self, member: Member, caller: Caller, client: ConnectedClient | None) -> int:
        session = None if client is None else client.sessions.get(member.replicas[0])
        return self._comparison.variant(member.upstreams[0], caller, session)

    def selection(self, caller: Caller, client: ConnectedClient | None) -> Selection:
        """Return the variants of lists that a client sees."""
        if not self._catalog.has_variants:
            return None
        chosen = []
        for member in self._members.values():
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
        if kind is ListKind.TOOLS and self._search and not wants_all(exchange):
            from ..search.search_index import search_page

            return search_page(caller.revision)
        cursor = cursor_of(exchange)
        return self._catalog.page(
            kind,
            self._views.view_of(caller),
            caller.revision,
            cursor,
            self.selection(caller, client),
        )

    def _refresh_old(self) -> None:
        """Have old lists fetched again in the background; this answer still uses them."""
        fresh, now = self._fresh, time.monotonic()
        if not fresh or now - self._checked < min(fresh, 1.0):
            return
        self._checked = now
        for member in self._members.values():
            member.refresh_if_older(fresh)
