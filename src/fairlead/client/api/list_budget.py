"""Limits for a server's lists: pages, items and bytes, summed over all pages."""

from msgspec import Struct

from ...errors import RemoteProtocolError
from ...limits import LIST_BYTES, LIST_ITEMS, LIST_PAGES, Limit
from ...wire.error_codes import INVALID_REQUEST

__all__ = ["ListBudget", "ListTooLarge"]

SPARSE = 6  # minimum number of bytes per comma in a list of objects with names


class ListTooLarge(RemoteProtocolError):
    """A server's list exceeds a limit."""


class ListBudget(Struct):
    """Counter of the pages, bytes and items of one list.

    Raises (from all methods):
        ListTooLarge: The list exceeds a limit; the message names the list and the limit.
    """

    method: str
    max_bytes: int = LIST_BYTES.value
    max_items: int = LIST_ITEMS.value
    _pages: int = 0
    _bytes: int = 0
    _items: int = 0

    def page(self, page: bytes) -> None:
        """Count a page before it is decoded."""
        self._pages += 1
        self._bytes += len(page)
        if self._pages > LIST_PAGES.value:
            raise self._too_large(LIST_PAGES, f"{LIST_PAGES.value} pages")
        if self._bytes > self.max_bytes:
            raise self._too_large(LIST_BYTES, f"{self.max_bytes} bytes")
        # Many commas in few bytes mean that the items are not objects. Decoding such items would
        # take forty times their size in memory.
        if page.count(b",") * SPARSE > len(page) + SPARSE * self.max_items:
            raise self._too_large(LIST_ITEMS, f"{self.max_items} items")

    def items(self, count: int) -> None:
        """Count the items of a page."""
        self._items += count
        if self._items > self.max_items:
            raise self._too_large(LIST_ITEMS, f"{self.max_items} items")

    def _too_large(self, limit: Limit, most: str) -> ListTooLarge:
        limit.hit()
        return ListTooLarge(f"{self.method} has more than {most}", code=INVALID_REQUEST)
