"""One merged list in one view: names, pages and cursors."""

import base64
import binascii
import logging
from bisect import bisect_right
from collections.abc import Iterable

from ...errors import RpcError
from ...limits import PAGE_BYTES, TEMPLATES
from ...protocol.revisions import Revision
from ...protocol.targets.list_kind import ListKind
from ...protocol.targets.targets import Target
from ...protocol.targets.unique_names import Pair, full_name
from ...wire import to_json
from ...wire.error_codes import INVALID_PARAMS
from .catalog_item import CatalogItem
from .views import View

__all__ = ["ViewList"]

log = logging.getLogger("fairlead.gateway")


class ViewList:
    """A merged list as one view has it."""

    def __init__(self, kind: ListKind) -> None:
        self.kind = kind
        self.items: dict[str, CatalogItem] = {}  # by displayed name, including hidden items
        self.listed: list[str] = []  # displayed names, in order
        self.templates: list[CatalogItem] = []  # most specific first
        self._targets: dict[str, Target] = {}  # targets of tools and prompts, by displayed name
        self.pages: dict[tuple[Revision, str | None], bytes] = {}
        self._by_server: dict[str, dict[str, tuple[CatalogItem, str]]] | None = None
        self._continues = False  # True if a page was full, so cursors were issued

    def take_named(self, items: Iterable[CatalogItem], names: dict[Pair, str], view: View) -> None:
        merged = {names[item.server, item.key]: item for item in items}
        hidden = set()
        # Renamed items first: a server must not take over a name that a view assigns.
        for name in sorted(merged, key=lambda name: name not in view.rename):
            item, shown = merged[name], view.rename.get(name, name)
            full = full_name(item.server, item.key)
            target = Target(self.kind.target_kind, item.key, shown, item.server, name, (full,))
            if not view.permits(target):
                continue
            if shown in self.items:
                log.warning(
                    "%s is left out: another item of the %s has the same name", shown, self.kind
                )
                continue
            self.items[shown] = item
            self._targets[shown] = target
            if view.hides(target):
                hidden.add(shown)
        self.listed = sorted(self.items.keys() - hidden)

    def take_by_uri(self, items: Iterable[CatalogItem], view: View) -> None:
        routes = []
        for item in items:
            if self.kind is ListKind.TEMPLATES and not view.denies_uri(item.key):
                routes.append(item)  # the view is applied to each URI that is read
            if view.permits_uri(item.key):
                self.items.setdefault(item.key, item)
        self.listed = sorted(
            uri for uri in self.items if not view.hides(Target("resource", uri, uri))
        )
        counts: dict[str, int] = {}
        matched = []
        # The number of templates per server is limited, because a URI that no server lists is
        # compared with all of them.
        for item in routes:
            counts[item.server] = counts.get(item.server, 0) + 1
            if counts[item.server] <= TEMPLATES.value:
                matched.append(item)
        if len(matched) < len(routes):
            TEMPLATES.hit()
        self.templates = sorted(matched, key=lambda item: item.specificity, reverse=True)

    def own(self, server: str) -> "dict[str, tuple[CatalogItem, str]]":
        """Return the items of one server by their own names, with the displayed names."""
        if self._by_server is None:
            self._by_server = {}
            for shown, item in self.items.items():
                self._by_server.setdefault(item.server, {})[item.key] = item, shown
        return self._by_server.get(server, {})

    def listed_of(self, server: str) -> list[CatalogItem]:
        """Return the items of one server that are listed."""
        listed = set(self.listed)
        return [item for item, shown in self.own(server).values() if shown in listed]

    def target(self, name: str) -> Target | None:
        return self._targets.get(name)

    def page(self, revision: Revision, cursor: str | None, size: int) -> bytes:
        start = 0 if cursor is None else self._after(cursor, size)
        stop = min(start + size if size else len(self.listed), len(self.listed))
        texts: list[bytes] = []
        room = PAGE_BYTES.value
        for name in self.listed[start:stop]:
            text = self.items[name].written(revision, name)
            room -= len(text) + 1
            # A larger page would not fit into a message.
            if room < 0 and texts:
                PAGE_BYTES.hit()
                self._continues = True
                break
            texts.append(text)
        stop = start + len(texts)
        page = b'"%b":[%b]' % (self.kind.value.encode(), b",".join(texts))
        if stop < len(self.listed):
            page += b',"nextCursor":' + to_json(self._cursor(self.listed[stop - 1]))
        # Only pages whose cursor this list has issued are kept: clients can send any cursor.
        if cursor is None or self._is_ours(cursor, start, size):
            self.pages[revision, cursor] = page
        return page

    def _is_ours(self, cursor: str, start: int, size: int) -> bool:
        """Return True for the cursor of a full page of this list."""
        whole = size > 0 and start > 0 and start % size == 0
        return whole and cursor == self._cursor(self.listed[start - 1])

    def _cursor(self, last: str) -> str:
        """Encode the last name of a page, so that paging continues correctly in a changed list."""
        text = f"{self.kind.value}:{last}".encode()
        return base64.urlsafe_b64encode(text).decode()

    def _after(self, cursor: str, size: int) -> int:
        try:
            text = base64.b64decode(cursor.encode(), b"-_", validate=True).decode()
        except (ValueError, binascii.Error):
            text = ""
        kind, found, last = text.partition(":")
        # Without pages no cursor was issued, so any cursor is invalid.
        handed_out = size > 0 or self._continues
        if not handed_out or not found or kind != self.kind.value:
            raise RpcError(
                INVALID_PARAMS, f"Unknown cursor {cursor[:100]!r}: list again from the start"
            )
        return bisect_right(self.listed, last)
