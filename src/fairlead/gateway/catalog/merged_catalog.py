"""The lists of many servers as one: merged names, whose each thing is, pages ready to be sent.

An item is opened once, to see what it is called, and written once per revision with its merged
name; everything else in it stays the text that its server sent.
"""

import base64
import binascii
import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Raw

from ...client.api.list_budget import ListBudget, ListTooLarge
from ...errors import ConfigError, RpcError
from ...limits import (
    CATALOG_BYTES,
    CATALOG_VIEWS,
    ITEM_BYTES,
    LIST_BYTES,
    LIST_ITEMS,
    PAGE_BYTES,
    SERVER_CATALOG_BYTES,
    TEMPLATES,
)
from ...protocol.downgrade.results import downgrade_result
from ...protocol.headers import ParamHeader
from ...protocol.json_edit import encoded, members_of, string_of
from ...protocol.param_headers import read_param_headers
from ...protocol.revisions import Revision
from ...protocol.targets.name_forms import normalize_name
from ...protocol.targets.targets import Target, TargetKind
from ...protocol.targets.unique_names import Pair, full_name, merge_names
from ...protocol.uri_templates.template import UriTemplate
from ...wire import single_line, to_json
from ...wire.error_codes import INVALID_PARAMS, INVALID_REQUEST
from .views import View

__all__ = ["ListKind", "MergedCatalog"]

MAX_SHELVES: Final = CATALOG_VIEWS.value

log = logging.getLogger("fairlead.gateway")


class ListKind(StrEnum):
    """What servers list; the value is the member of the result that holds the items."""

    TOOLS = "tools"
    PROMPTS = "prompts"
    RESOURCES = "resources"
    TEMPLATES = "resourceTemplates"

    @property
    def method(self) -> str:
        return "resources/templates/list" if self is ListKind.TEMPLATES else f"{self.value}/list"

    @property
    def key(self) -> str:
        """The member by which an item is known."""
        return _KEYS.get(self, "name")

    @property
    def named(self) -> bool:
        """Whether items have merged names; the others are known by their URI everywhere."""
        return self not in _KEYS


_KEYS: Final = {ListKind.RESOURCES: "uri", ListKind.TEMPLATES: "uriTemplate"}
_TARGETS: Final[dict[ListKind, TargetKind]] = {ListKind.TOOLS: "tool", ListKind.PROMPTS: "prompt"}


class MergedCatalog:
    """What all servers offer, kept as they come, change and go."""

    def __init__(
        self,
        page_size: int = 0,
        *,
        list_bytes: int = LIST_BYTES.value,
        list_items: int = LIST_ITEMS.value,
        server_bytes: int = SERVER_CATALOG_BYTES.value,
        total_bytes: int = CATALOG_BYTES.value,
    ) -> None:
        """`page_size` is how many items a page has; 0 puts everything on one.

        The others limit what is kept: of one list, of one server, and of all servers.
        """
        self._page_size = page_size
        self._bounds = list_bytes, list_items
        self._server_bytes = server_bytes
        self._total_bytes = total_bytes
        self._sizes: dict[str, dict[ListKind, int]] = {}
        # All servers that ever were, in the order in which they came, until somebody says another
        # one: who was first stays first.
        self._servers: dict[str, dict[ListKind, dict[str, _Item]]] = {}
        self._left_out: dict[tuple[str, ListKind], int] = {}
        self._versions = dict.fromkeys(ListKind, 0)
        self.changes = 0  # of all kinds together, and of what views call them
        self._names: dict[ListKind, dict[Pair, str]] = {}
        self._spellings: dict[tuple[str, ListKind], dict[str, list[str]]] = {}
        self._shelves: dict[tuple[ListKind, View], _Shelf] = {}

    def expect(self, server: str) -> None:
        """A server will list something: what others have too is its own if it was named first."""
        self._servers.setdefault(server, {})

    def arrange(self, servers: Iterable[str]) -> set[ListKind]:
        """Servers in this order own what several have; others come behind them.

        Returns which merged lists may be others now.
        """
        order = [*dict.fromkeys(servers), *self._servers]
        if [name for name in dict.fromkeys(order) if name in self._servers] == [*self._servers]:
            return set()
        self._servers = {name: self._servers.get(name, {}) for name in order}
        changed = {kind for lists in self._servers.values() for kind in lists}
        for kind in changed:
            self._changed(kind)
        return changed

    def put(self, server: str, kind: ListKind, items: Sequence[Raw]) -> bool:
        """Take in a server's whole list, and say whether the merged list is another now.

        An item that cannot be read, or that has the name of one before it, is left out.

        Raises:
            ListTooLarge: There is no room for the list; the one before stays.
        """
        self._make_room(server, kind, sum(map(len, items)))
        lists = self._servers.setdefault(server, {})
        old = lists.get(kind, {})
        new: dict[str, _Item] = {}
        for raw in items:
            item = _read(server, kind, raw)
            if item is not None and item.key not in new:
                known = old.get(item.key)
                new[item.key] = known if known is not None and known.text == item.text else item
        self._left_out[server, kind] = len(items) - len(new)
        if len(new) < len(items):
            log.warning("%s: %d %s cannot be listed", server, len(items) - len(new), kind.value)
        lists[kind] = new
        if new.keys() == old.keys() and all(new[key] is old[key] for key in new):
            return False
        self._changed(kind)
        return True

    def drop(self, server: str) -> set[ListKind]:
        """Forget what a server listed, and say which merged lists are others now."""
        lists = self._servers.get(server, {})
        changed = {kind for kind, items in lists.items() if items}
        lists.clear()
        self._sizes.pop(server, None)
        for kind in ListKind:
            self._left_out.pop((server, kind), None)
        for kind in changed:
            self._changed(kind)
        return changed

    def page(
        self, kind: ListKind, view: View, revision: Revision, cursor: str | None = None
    ) -> bytes:
        """The members of a list result, without the braces, as that revision knows them.

        Raises:
            RpcError: -32602 for a cursor that we did not hand out.
        """
        shelf = self._shelf(kind, view)
        page = shelf.pages.get((revision, cursor))
        return shelf.page(revision, cursor, self._page_size) if page is None else page

    def tool(self, name: str, view: View) -> Target | None:
        """Whose tool this is, if the view has it."""
        return self._shelf(ListKind.TOOLS, view).target(name)

    def prompt(self, name: str, view: View) -> Target | None:
        """Whose prompt this is, if the view has it."""
        return self._shelf(ListKind.PROMPTS, view).target(name)

    def owner(self, uri: str, view: View) -> str | None:
        """The server that has this resource: who lists it, else who has the closest template."""
        if not view.permits_uri(uri):
            return None
        item = self._shelf(ListKind.RESOURCES, view).items.get(uri)
        if item is None:
            templates = self._shelf(ListKind.TEMPLATES, view).templates
            item = next((item for item in templates if item.matches(uri)), None)
        return None if item is None else item.server

    def template_owner(self, template: str, view: View) -> str | None:
        """The server that has this template, or a resource of that URI."""
        item = self._shelf(ListKind.TEMPLATES, view).items.get(template)
        return self.owner(template, view) if item is None else item.server

    def merged_name(self, kind: ListKind, server: str, name: str) -> str | None:
        """What a tool or prompt of a server is called in the merged list."""
        return self._merged(kind).get((server, name))

    def target(self, kind: ListKind, server: str, name: str, view: View) -> Target:
        """Return a tool or prompt of a server, by the server's own name, with all its names.

        One that the server does not list has the names that it would have, and those of listed
        items of which it is another spelling.
        """
        merged = self.merged_name(kind, server, name)
        full = full_name(server, name)
        also = () if merged is None else (full,)
        if merged is None:
            merged = full
            for listed in self.listed_as(kind, server, name):
                other = self.target(kind, server, listed, view)
                also = (*also, *other.names)
        displayed = view.rename.get(merged, merged)
        return Target(_TARGETS[kind], name, displayed, server, merged, also)

    def listed_as(self, kind: ListKind, server: str, name: str) -> list[str]:
        """Return the own names of a server's items that differ only in spelling from this one."""
        spellings = self._spellings.get((server, kind))
        if spellings is None:
            spellings = self._spellings[server, kind] = {}
            for key in self._servers.get(server, {}).get(kind, ()):
                spellings.setdefault(normalize_name(key).casefold(), []).append(key)
        return spellings.get(normalize_name(name).casefold(), [])

    def has(self, kind: ListKind, server: str, name: str, view: View) -> bool:
        """Whether a view has a server's tool or prompt, by the server's own name."""
        return name in self._shelf(kind, view).own(server)

    def own_page(self, kind: ListKind, server: str, view: View, revision: Revision) -> bytes:
        """What a view lists of one server, under the server's own names."""
        shelf = self._shelf(kind, view)
        listed = set(shelf.listed)
        texts = [
            item.written(revision, item.key)
            for item, shown in shelf.own(server).values()
            if shown in listed
        ]
        return b'"%b":[%b]' % (kind.value.encode(), b",".join(texts))

    def definition(self, name: str, view: View) -> Raw | None:
        """A tool's definition as its server sent it, with the name that the view gives it."""
        item = self._shelf(ListKind.TOOLS, view).items.get(name)
        return None if item is None else item.renamed(name)

    def param_headers(self, tool: str, view: View) -> tuple[ParamHeader, ...]:
        """Return the arguments of a tool that travel as headers too, if the view has the tool."""
        item = self._shelf(ListKind.TOOLS, view).items.get(tool)
        return () if item is None else item.param_headers

    def definitions(self, view: View) -> Iterator[tuple[str, Raw]]:
        """The same for all tools that the view lists."""
        shelf = self._shelf(ListKind.TOOLS, view)
        return ((name, shelf.items[name].renamed(name)) for name in shelf.listed)

    def names(self, kind: ListKind, view: View) -> list[str]:
        """What the view lists, by name or URI, in the order of the list."""
        return list(self._shelf(kind, view).listed)

    def own_names(self, kind: ListKind, server: str) -> list[str]:
        """What one server lists, by its own names."""
        return list(self._servers.get(server, {}).get(kind, ()))

    def own_count(self, kind: ListKind, server: str, view: View) -> int:
        """How many things of one server a view lists."""
        shelf = self._shelf(kind, view)
        listed = set(shelf.listed)
        return sum(shown in listed for _, shown in shelf.own(server).values())

    def count(self, kind: ListKind) -> int:
        """How many there are in the merged list."""
        return len(self._shelf(kind, View.everything()).items)

    def version(self, kind: ListKind) -> int:
        """A number that is another whenever the merged list has changed."""
        return self._versions[kind]

    @property
    def left_out(self) -> dict[str, int]:
        """How many items of each server could not be listed, if any."""
        counts: dict[str, int] = {}
        for (server, _), count in self._left_out.items():
            if count:
                counts[server] = counts.get(server, 0) + count
        return counts

    @property
    def contested(self) -> int:
        """How many URIs are listed by several servers; the first of them is asked."""
        everything = View.everything()
        return sum(
            len(self._shelf(kind, everything).contested)
            for kind in (ListKind.RESOURCES, ListKind.TEMPLATES)
        )

    def check(self, view: View) -> None:
        """See that what the view renames has its name to itself, as things are now.

        Later, and without this, the renamed one has the name, and the other is not there.

        Raises:
            ConfigError: with the names.
        """
        for kind in (ListKind.TOOLS, ListKind.PROMPTS):
            if names := sorted(self._shelf(kind, view).contested):
                listed = ", ".join(map(repr, names))
                raise ConfigError(f"a new name is taken already among the {kind.value}: {listed}")

    def budget(self, kind: ListKind) -> ListBudget:
        """Return what may be read of one list of a server."""
        return ListBudget(kind.method, *self._bounds)

    def _make_room(self, server: str, kind: ListKind, size: int) -> None:
        sizes = self._sizes.get(server, {})
        others = sum(much for one, much in sizes.items() if one is not kind)
        everywhere = sum(sum(one.values()) for one in self._sizes.values()) - sizes.get(kind, 0)
        for limit, most, used in (
            (SERVER_CATALOG_BYTES, self._server_bytes, others),
            (CATALOG_BYTES, self._total_bytes, everywhere),
        ):
            if used + size > most:
                limit.hit()
                whose = "its lists" if limit is SERVER_CATALOG_BYTES else "the lists of all servers"
                why = f"with the {size} bytes of {kind.method}, {whose} have more than {most} bytes"
                raise ListTooLarge(why, code=INVALID_REQUEST)
        self._sizes.setdefault(server, {})[kind] = size

    def _changed(self, kind: ListKind) -> None:
        self._versions[kind] += 1
        self.changes += 1
        self._names.pop(kind, None)
        for place in [place for place in self._spellings if place[1] is kind]:
            del self._spellings[place]
        for key in [key for key in self._shelves if key[0] is kind]:
            del self._shelves[key]

    def _shelf(self, kind: ListKind, view: View) -> "_Shelf":
        shelf = self._shelves.get((kind, view))
        if shelf is None:
            if len(self._shelves) >= MAX_SHELVES:
                CATALOG_VIEWS.hit()
                del self._shelves[next(iter(self._shelves))]
            shelf = _Shelf(kind)
            if kind.named:
                shelf.take_named(self._items(kind, view), self._merged(kind), view)
            else:
                shelf.take_by_uri(self._items(kind, view), view)
            self._shelves[kind, view] = shelf
        return shelf

    def _items(self, kind: ListKind, view: View) -> "Iterator[_Item]":
        """The items of the servers in a view, in the order of the servers."""
        for server, lists in self._servers.items():
            if view.includes(server):
                yield from lists.get(kind, {}).values()

    def _merged(self, kind: ListKind) -> dict[Pair, str]:
        names = self._names.get(kind)
        if names is None:
            everything = self._items(kind, View.everything())
            names = self._names[kind] = merge_names((item.server, item.key) for item in everything)
        return names


class _Item:
    """One thing that a server lists."""

    __slots__ = ("_param_headers", "_template", "_written", "key", "kind", "server", "text")

    def __init__(self, server: str, kind: ListKind, key: str, text: bytes) -> None:
        self.server = server
        self.kind = kind
        self.key = key  # the server's own name, or the URI
        self.text = text
        self._written: dict[tuple[Revision, str], bytes] = {}
        self._template: UriTemplate | str | None = None
        self._param_headers: tuple[ParamHeader, ...] | None = None

    def written(self, revision: Revision, shown: str) -> bytes:
        """As it stands in a list for that revision."""
        text = self._written.get((revision, shown))
        if text is None:
            if len(self._written) >= 4 * len(Revision):  # names that views gave it long ago
                self._written.clear()
            start = b'{"%b":[' % self.kind.value.encode()
            alone = start + bytes(self.renamed(shown)) + b"]}"
            text = downgrade_result(self.kind.method, alone, revision)[len(start) : -2]
            self._written[revision, shown] = text
        return text

    def renamed(self, shown: str) -> Raw:
        if shown == self.key:
            return Raw(self.text)
        members = members_of(self.text)
        assert members is not None  # it was read before
        members["name"] = encoded(shown)
        return encoded(members)

    @property
    def param_headers(self) -> tuple[ParamHeader, ...]:
        """The arguments of a tool that travel as headers too; none if its marks break the rules."""
        if self._param_headers is None:
            try:
                self._param_headers = read_param_headers(self.text)
            except (ValueError, RecursionError):
                self._param_headers = ()
        return self._param_headers

    @property
    def specificity(self) -> tuple[int, ...]:
        """Of a template: the more it says itself, the more; one that we cannot read, least."""
        template = self.template
        if isinstance(template, UriTemplate):
            return (1, *template.specificity)
        return (0, len(template))

    def matches(self, uri: str) -> bool:
        """Whether a template could have made this URI."""
        template = self.template
        if isinstance(template, UriTemplate):
            return template.match(uri) is not None
        return bool(template) and uri.startswith(template)

    @property
    def template(self) -> UriTemplate | str:
        """What to match with; only how it begins, if its expressions are not ours to read."""
        if self._template is None:
            try:
                self._template = UriTemplate(self.key)
            except ValueError:
                self._template = self.key.partition("{")[0]
        return self._template


class _Shelf:
    """One merged list as one view has it."""

    def __init__(self, kind: ListKind) -> None:
        self.kind = kind
        self.items: dict[str, _Item] = {}  # by the name that is shown, hidden ones too
        self.listed: list[str] = []  # in order
        self.templates: list[_Item] = []  # the most specific first
        self.contested: set[str] = set()  # names and URIs that another wanted too
        self._targets: dict[str, Target] = {}  # of tools and prompts, like `items`
        self.pages: dict[tuple[Revision, str | None], bytes] = {}
        self._by_server: dict[str, dict[str, tuple[_Item, str]]] | None = None
        self._continues = False  # on further pages, although they have no size

    def take_named(self, items: Iterable[_Item], names: dict[Pair, str], view: View) -> None:
        merged = {names[item.server, item.key]: item for item in items}
        hidden = set()
        # Who was given a name has it, whatever a server comes along with later.
        for name in sorted(merged, key=lambda name: name not in view.rename):
            item, shown = merged[name], view.rename.get(name, name)
            full = full_name(item.server, item.key)
            target = Target(_TARGETS[self.kind], item.key, shown, item.server, name, (full,))
            if not view.permits(target):
                continue
            if shown in self.items:
                self.contested.add(shown)
                log.warning("%s cannot be seen: another of the %s has its name", shown, self.kind)
                continue
            self.items[shown] = item
            self._targets[shown] = target
            if view.hides(target):
                hidden.add(shown)
        self.listed = sorted(self.items.keys() - hidden)

    def take_by_uri(self, items: Iterable[_Item], view: View) -> None:
        routes = []
        for item in items:
            if self.kind is ListKind.TEMPLATES and not view.denies_uri(item.key):
                routes.append(item)  # what it makes is judged when it is read
            if not view.permits_uri(item.key):
                continue
            if self.items.setdefault(item.key, item) is not item:
                self.contested.add(item.key)
        self.listed = sorted(
            uri for uri in self.items if not view.hides(Target("resource", uri, uri))
        )
        counts: dict[str, int] = {}
        matched = []
        for item in routes:  # each is tried for a URI that no server lists
            counts[item.server] = counts.get(item.server, 0) + 1
            if counts[item.server] <= TEMPLATES.value:
                matched.append(item)
        if len(matched) < len(routes):
            TEMPLATES.hit()
        self.templates = sorted(matched, key=lambda item: item.specificity, reverse=True)

    def own(self, server: str) -> "dict[str, tuple[_Item, str]]":
        """The things of one server, by its own names, with the names that are shown."""
        if self._by_server is None:
            self._by_server = {}
            for shown, item in self.items.items():
                self._by_server.setdefault(item.server, {})[item.key] = item, shown
        return self._by_server.get(server, {})

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
            if room < 0 and texts:  # more would not fit into a message
                PAGE_BYTES.hit()
                self._continues = True
                break
            texts.append(text)
        stop = start + len(texts)
        page = b'"%b":[%b]' % (self.kind.value.encode(), b",".join(texts))
        if stop < len(self.listed):
            page += b',"nextCursor":' + to_json(self._cursor(self.listed[stop - 1]))
        if cursor is None or self._is_ours(cursor, start, size):
            self.pages[revision, cursor] = page
        return page

    def _is_ours(self, cursor: str, start: int, size: int) -> bool:
        """Whether it stands on a page of this list; an old or made-up one is not worth keeping."""
        whole = size > 0 and start > 0 and start % size == 0
        return whole and cursor == self._cursor(self.listed[start - 1])

    def _cursor(self, last: str) -> str:
        """Says what came last, so that nothing is skipped or repeated if the list changes."""
        text = f"{self.kind.value}:{last}".encode()
        return base64.urlsafe_b64encode(text).decode()

    def _after(self, cursor: str, size: int) -> int:
        try:
            text = base64.b64decode(cursor.encode(), b"-_", validate=True).decode()
        except (ValueError, binascii.Error):
            text = ""
        kind, found, last = text.partition(":")
        handed_out = size > 0 or self._continues
        if not handed_out or not found or kind != self.kind.value:
            raise RpcError(INVALID_PARAMS, f"Unknown cursor {cursor[:100]!r}: list from the start")
        return bisect_right(self.listed, last)


def _read(server: str, kind: ListKind, raw: Raw) -> _Item | None:
    """An item, or None if it is no object, has no name, or would break the list it stands in."""
    text = bytes(raw)
    if len(text) > ITEM_BYTES.value:
        ITEM_BYTES.hit()
        return None
    members = members_of(text)
    key = None if members is None else string_of(members.get(kind.key))
    if not key:
        return None
    try:
        text.decode()  # nobody else looks into the members
    except UnicodeDecodeError:
        return None
    return _Item(server, kind, key, single_line(text).strip())
