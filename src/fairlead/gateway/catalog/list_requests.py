"""Merged lists as clients ask for them: after a moment for servers that have just been started."""

import asyncio
import time
from math import inf
from typing import TYPE_CHECKING

from ...interceptor import Exchange
from ...relay.request_params import cursor_of, wants_all
from .list_kind import ListKind

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["MergedLists"]


class MergedLists:
    """Answers lists from memory, and has them fetched again before they are too old."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._looked = -inf  # when lists were last looked over

    async def ready(self) -> None:
        """Each server has until the deadline, once."""
        gateway = self._gateway
        for member in [m for m in gateway.members.values() if not m.listed.is_set()]:
            left = member.began + gateway.settings.deadline - time.monotonic()
            if left <= 0:
                continue
            try:
                async with asyncio.timeout(left):
                    await member.listed.wait()
            except TimeoutError:
                pass

    def page(self, kind: ListKind, exchange: Exchange) -> bytes:
        """The members of the result, without the braces. Raises `RpcError` for a wrong cursor."""
        gateway, caller = self._gateway, exchange.caller
        self._look_over()
        if kind is ListKind.TOOLS and gateway.settings.search and not wants_all(exchange):
            from ..search.search_index import search_page

            return search_page(caller.revision)
        cursor = cursor_of(exchange)
        return gateway.catalog.page(kind, gateway.view_of(caller), caller.revision, cursor)

    def _look_over(self) -> None:
        """Have lists that are old fetched again, behind the answer that they are still good for."""
        fresh, now = self._gateway.settings.fresh, time.monotonic()
        if not fresh or now - self._looked < min(fresh, 1.0):
            return
        self._looked = now
        for member in self._gateway.members.values():
            member.refresh_if_older(fresh)
