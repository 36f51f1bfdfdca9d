"""Merged lists as clients request them, after a moment for servers that were just started."""

import asyncio
import time
from collections.abc import Mapping
from math import inf

from ...interceptor import Exchange
from ...relay.request_params import cursor_of, wants_all
from ..backends.backend import Member
from ..clients.client_views import ClientViews
from .list_kind import ListKind
from .merged_catalog import MergedCatalog

__all__ = ["MergedLists"]


class MergedLists:
    """Answers lists from the catalog, and has old ones fetched again."""

    def __init__(
        self,
        catalog: MergedCatalog,
        members: Mapping[str, Member],
        views: ClientViews,
        *,
        deadline: float,
        fresh: float,
        search: bool,
    ) -> None:
        """`deadline`, `fresh` and `search` are those of `GatewaySettings`."""
        self._catalog = catalog
        self._members = members
        self._views = views
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

    def page(self, kind: ListKind, exchange: Exchange) -> bytes:
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
        return self._catalog.page(kind, self._views.view_of(caller), caller.revision, cursor)

    def _refresh_old(self) -> None:
        """Have old lists fetched again in the background; this answer still uses them."""
        fresh, now = self._fresh, time.monotonic()
        if not fresh or now - self._checked < min(fresh, 1.0):
            return
        self._checked = now
        for member in self._members.values():
            member.refresh_if_older(fresh)
