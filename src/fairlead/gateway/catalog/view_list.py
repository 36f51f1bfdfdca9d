"""One merged list in one view: items, names, pages and cursors."""

import base64
import binascii
import logging
from bisect import bisect_right
from collections.abc import Iterable

from msgspec import Raw, Struct

from ...errors import RpcError
from ...limits import ITEM_BYTES, PAGE_BYTES, TEMPLATES
from ...protocol.downgrade.results import downgrade_result
from ...protocol.headers import ParamHeader
from ...protocol.json_edit import encoded, members_of, string_of
from ...protocol.param_headers import read_param_headers
from ...protocol.revisions import Revision
from ...protocol.targets.list_kind import ListKind
from ...protocol.targets.targets import Target
from ...protocol.targets.unique_names import Pair, full_name
from ...protocol.uri_templates.template import UriTemplate
from ...wire import single_line, to_json
from ...wire.error_codes import INVALID_PARAMS
from .views import View

__all__ = ["CatalogItem", "ViewList", "read_item"]


class CatalogItem(Struct, eq=False):
    """An item of a list, as one server sent it."""

    server: str
    kind: ListKind
    key: str  # the server's own name, or the URI
    text: bytes
    _written: dict[tuple[Revision, str], bytes] = {}
    _template: UriTemplate | str | None = None
    param_headers: tuple[ParamHeader, ...] | None = None  # None: not read yet

    def written(self, revision: Revision, shown: str) -> bytes:
        """Return the encoded item for a revision, under its displayed name."""
        text = self._written.get((revision, shown))
        if text is None:
            # Cleared at a limit, because entries for removed views are never deleted one by one.
            if len(self._written) >= 4 * len(Revision):
                self._written.clear()
            start = b'{"%b":[' % self.kind.value.encode()
            alone = start + bytes(self.renamed(shown)) + b"]}"
            text = downgrade_result(self.kind.method, alone, revision)[len(start) : -2]
            self._written[revision, shown] = text
        return text

    def renamed(self, shown: str) -> Raw:
        """Return the item with another name."""
        if shown == self.key:
            return Raw(self.text)
        members = members_of(self.text)
        assert members is not None
        members["name"] = encoded(shown)
        return encoded(members)

    def read_param_headers(self) -> tuple[ParamHeader, ...]:
        """Read the arguments of a tool that are also sent as headers; none if the schema is
        invalid.
        """
        try:
            self.param_headers = read_param_headers(self.text)
        except (ValueError, RecursionError):
            self.param_headers = ()
        return self.param_headers

    @property
    def specificity(self) -> tuple[int, ...]:
        """A sort key for templates: more literal text first, invalid templates last."""
        template = self.template
        if isinstance(template, UriTemplate):
            return (1, *template.specificity)
        return (0, len(template))

    def matches(self, uri: str) -> bool:
        """Return True if a URI matches this template."""
        template = self.template
        if isinstance(template, UriTemplate):
            return template.match(uri) is not None
        return bool(template) and uri.startswith(template)

    @property
    def template(self) -> UriTemplate | str:
        """The parsed template; only its literal beginning if its expressions are not supported."""
        if self._template is None:
            try:
                self._template = UriTemplate(self.key)
            except ValueError:
                self._template = self.key.partition("{")[0]
        return self._template


def read_item(server: str, kind: ListKind, raw: Raw) -> CatalogItem | None:
    """Decode an item; return None if it is too large, not an object, unnamed, or not UTF-8."""
    text = bytes(raw)
    if len(text) > ITEM_BYTES.value:
        ITEM_BYTES.hit()
        return None
    members = members_of(text)
    key = None if members is None else string_of(members.get(kind.key))
    if not key:
        return None
    try:
        # Checked here, because members other than the name are never decoded.
        text.decode()
    except UnicodeDecodeError:
        return None
    return CatalogItem(server, kind, key, single_line(text).strip())


log = logging.getLogger("fairlead.gateway")


class ViewList:
    """A merged list as clients with one view see it."""

    def __init__(self, kind: ListKind) -> None:
        self.kind = kind
        self.items: dict[str, CatalogItem] = {}  # by displayed name, including hidden items
        self.listed: list[str] = []  # displayed names, in order
        self.templates: list[CatalogItem] = []  # most specific first
        self.targets: dict[str, Target] = {}  # targets of tools and prompts, by displayed name
        self.pages: dict[tuple[Revision, str | None], bytes] = {}
        self._by_server: dict[str, dict[str, tuple[CatalogItem, str]]] | None = None
        self._continues = False  # True if the list has several pages, so cursors were issued

    def take_named(self, items: Iterable[CatalogItem], names: dict[Pair, str], view: View) -> None:
        merged = {names[item.server, item.key]: item for item in items}
        hidden = set()
        # Renamed items come first, so that no other item can take a name that the view assigns.
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
            self.targets[shown] = target
            if view.hides(target):
                hidden.add(shown)
        self.listed = sorted(self.items.keys() - hidden)

    def take_by_uri(self, items: Iterable[CatalogItem], view: View) -> None:
        routes = []
        for item in items:
            if self.kind is ListKind.TEMPLATES and not view.denies_uri(item.key):
                routes.append(item)  # the view is checked for each URI that a client reads
            if view.permits_uri(item.key):
                self.items.setdefault(item.key, item)
        self.listed = sorted(
            uri for uri in self.items if not view.hides(Target("resource", uri, uri))
        )
        counts: dict[str, int] = {}
        matched = []
        # Templates per server are limited: a URI that no server lists is compared with all.
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

    def page(self, revision: Revision, cursor: str | None, size: int) -> bytes:
        start = 0 if cursor is None else self._after(cursor, size)
        stop = min(start + size if size else len(self.listed), len(self.listed))
        texts: list[bytes] = []
        room = PAGE_BYTES.value
        for name in self.listed[start:stop]:
            text = self.items[name].written(revision, name)
            room -= len(text) + 1
            # One more item would make the page larger than a message may be.
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
        """Return True if this list issued the cursor at the end of a full page."""
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
        # If all items fit on one page, no cursor was issued, and any cursor is invalid.
        handed_out = size > 0 or self._continues
        if not handed_out or not found or kind != self.kind.value:
            raise RpcError(
                INVALID_PARAMS, f"Unknown cursor {cursor[:100]!r}: list again from the start"
            )
        return bisect_right(self.listed, last)
