"""Pagination: reading the pages of a list from the first to the last."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from msgspec import Raw

from ...errors import RpcError
from ...protocol.types.base import decode_or_raise
from ...wire.quote_text import quoted
from .list_budget import ListBudget

__all__ = ["read_pages"]

log = logging.getLogger("fairlead.client")


async def read_pages(
    ask: Callable[[dict[str, str] | None], Awaitable[Raw]], budget: ListBudget, *, stateless: bool
) -> AsyncIterator[dict[str, Raw]]:
    """Yield the members of each page until the cursor is missing or repeated.

    An empty cursor is valid. However, some handshake-era servers send an empty cursor with the last
    page, and then reject it or return the first page again. In both cases the list ends there.

    Raises:
        RemoteProtocolError: A page is not an object, its cursor is not a string, or the list is too
            large.
        FairleadError: `ask` raised it.
    """
    cursor: str | None = None
    seen: set[str] = set()
    first: bytes | None = None
    while True:
        doubtful = cursor == "" and not stateless
        try:
            raw = await ask(None if cursor is None else {"cursor": cursor})
        except RpcError:
            if doubtful:
                return
            raise
        budget.page(bytes(raw))
        if doubtful and bytes(raw) == first:
            return
        if first is None and not stateless:
            first = bytes(raw)
        page, cursor = _page(budget.method, raw)
        yield page
        if cursor is None:
            return
        if cursor in seen:
            log.warning(
                "%s repeats the cursor %s; further pages are not read",
                budget.method,
                quoted(cursor),
            )
            return
        seen.add(cursor)


def _page(method: str, raw: Raw) -> tuple[dict[str, Raw], str | None]:
    """Return the members of a page, and the cursor of the next page or None."""
    what = f"A page of {method}"
    page = decode_or_raise(raw, dict[str, Raw], what)
    cursor = page.get("nextCursor")
    if cursor is None or bytes(cursor) == b"null":
        return page, None
    return page, decode_or_raise(cursor, str, what)
