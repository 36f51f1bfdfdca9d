"""The merged catalog: the lists of all servers, merged names, and a list for each view.

An item is decoded once to read its name, and encoded once per revision with its merged name. Its
other members stay bytes.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Raw

from ...client.api.list_budget import ListBudget, ListTooLarge
from ...limits import CATALOG_BYTES, CATALOG_VIEWS, SERVER_CATALOG_BYTES
from ...protocol.headers import ParamHeader
from ...protocol.revisions import Revision
from ...protocol.targets.list_kind import ListKind
from ...protocol.targets.name_forms import normalize_name
from ...protocol.targets.targets import Target
from ...protocol.targets.unique_names import Pair, full_name, merge_names
from ...wire.error_codes import INVALID_REQUEST
from ..gateway_settings import GatewaySettings
from .view_list import CatalogItem, ViewList, read_item
from .views import View

__all__ = ["MergedCatalog", "Selection"]

MAX_LISTS: Final = CATALOG_VIEWS.value

# The servers whose default lists a client does not see, each with the number of the variant
# that it sees instead. None means the union of all variants, which is used to look up names.
Selection: TypeAlias = tuple[tuple[str, int], ...] | None

log = logging.getLogger("fairlead.gateway")


class MergedCatalog:
    """The lists of all servers, which can be replaced one server at a time."""

    def __init__(self, settings: GatewaySettings | None = None) -> None:
        """`settings` contains the page size and the limits of lists; None means the defaults."""
        self._settings = settings or GatewaySettings()
        self._sizes: dict[str, dict[ListKind, int]] = {}
        # All servers, including removed ones, in the order of `expect` or `arrange`.
        # The first server that lists a URI owns it.
        self._servers: dict[str, dict[ListKind, dict[str, CatalogItem]]] = {}
        self._versions = dict.fromkeys(ListKind, 0)
        self.changes = 0  # number of changes of lists and views
        self._names: dict[ListKind, dict[Pair, str]] = {}
        self._spellings: dict[tuple[str, ListKind], dict[str, list[str]]] = {}
        self._view_lists: dict[tuple[ListKind, View, Selection], ViewList] = {}
        # Variants: lists that some clients see instead of the default ones, by server and number.
        self._variants: dict[str, dict[int, dict[ListKind, dict[str, CatalogItem]]]] = {}

    def expect(self, server: str) -> None:
        """Add a server before its lists are known, to fix its position in the order."""
        self._servers.setdefault(server, {})

    def arrange(self, servers: Iterable[str]) -> set[ListKind]:
        """Set the order of the servers; servers that are not named follow. The first server that
        lists a URI owns it.

        Returns the kinds of merged lists that may have changed.
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
        """Replace a list of a server; return True if the merged list has changed.

        Invalid items and items with the name of an earlier one are left out.

        Raises:
            ListTooLarge: The list exceeds a limit. The previous list stays.
        """
        self._make_room(server, kind, sum(map(len, items)))
        lists = self._servers.setdefault(server, {})
        old = lists.get(kind, {})
        new = _read_items(server, kind, items, old)
        if len(new) < len(items):
            log.warning(
                "%s: %d invalid or duplicate %s left out", server, len(items) - len(new), kind.value
            )
        lists[kind] = new
        # Compared by identity: `_read_items` reuses the objects of items that have not changed.
        if new.keys() == old.keys() and all(new[key] is old[key] for key in new):
            return False
        self._changed(kind)
        return True

    def put_variant(self, server: str, number: int, lists: Mapping[ListKind, list[Raw]]) -> None:
        """Add a variant: lists that some clients see instead of the default lists from `put`.

        Raises:
            ListTooLarge: The lists exceed a limit.
        """
        defaults = self._servers.setdefault(server, {})
        known = self._variants.setdefault(server, {})
        size = sum(len(item) for items in lists.values() for item in items)
        most = self._settings.max_server_bytes
        if size * (len(known.keys() - {number}) + 1) > most:
            SERVER_CATALOG_BYTES.hit()
            why = f"the lists of {server} for some clients have more than {most} bytes"
            raise ListTooLarge(why, code=INVALID_REQUEST)
        before = known.get(number, {})
        new = known[number] = {
            kind: _read_items(
                server, kind, items, {**defaults.get(kind, {}), **before.get(kind, {})}
            )
            for kind, items in lists.items()
        }
        for kind in ListKind:
            if list(new.get(kind, {}).values()) != list(before.get(kind, {}).values()):
                self._changed(kind)

    def drop_variant(self, server: str, number: int) -> None:
        """Remove a variant that `put_variant` added."""
        if self._variants.get(server, {}).pop(number, None) is not None:
            for kind in ListKind:
                self._changed(kind)

    @property
    def has_variants(self) -> bool:
        """True if some clients see lists that differ from the default lists."""
        return any(self._variants.values())

    def drop(self, server: str) -> set[ListKind]:
        """Remove the lists of a server; return the kinds of merged lists that have changed."""
        lists = self._servers.get(server, {})
        changed = {kind for kind, items in lists.items() if items}
        lists.clear()
        if self._variants.pop(server, None):
            changed = set(ListKind)
        self._sizes.pop(server, None)
        for kind in changed:
            self._changed(kind)
        return changed

    def page(
        self,
        kind: ListKind,
        view: View,
        revision: Revision,
        cursor: str | None = None,
        selection: Selection = None,
    ) -> bytes:
        """Return the members of a list result for a revision, without the braces.

        Raises:
            RpcError: -32602, the cursor is invalid.
        """
        found = self._view_list(kind, view, selection)
        page = found.pages.get((revision, cursor))
        return found.page(revision, cursor, self._settings.page_size) if page is None else page

    def tool(self, name: str, view: View) -> Target | None:
        """Return the tool with this name in a view, or None."""
        return self._view_list(ListKind.TOOLS, view).targets.get(name)

    def prompt(self, name: str, view: View) -> Target | None:
        """Return the prompt with this name in a view, or None."""
        return self._view_list(ListKind.PROMPTS, view).targets.get(name)

    def owner(self, uri: str, view: View) -> str | None:
        """Return the server that lists a resource or has the most specific template for it."""
        if not view.permits_uri(uri):
            return None
        item = self._view_list(ListKind.RESOURCES, view).items.get(uri)
        if item is None:
            templates = self._view_list(ListKind.TEMPLATES, view).templates
            item = next((item for item in templates if item.matches(uri)), None)
        return None if item is None else item.server

    def template_owner(self, template: str, view: View) -> str | None:
        """Return the server that has this template, or a resource with that URI."""
        item = self._view_list(ListKind.TEMPLATES, view).items.get(template)
        return self.owner(template, view) if item is None else item.server

    def merged_name(self, kind: ListKind, server: str, name: str) -> str | None:
        """Return the merged name of a tool or prompt, by the server's own name."""
        return self._merged(kind).get((server, name))

    def target(self, kind: ListKind, server: str, name: str, view: View) -> Target:
        """Look up a tool or prompt by the server's own name; return it with all its names.

        For an item that the server does not list, the names are those that it would get, and those
        of listed items that differ only in spelling.
        """
        merged = self.merged_name(kind, server, name)
        full = full_name(server, name)
        also = () if merged is None else (full,)
        if merged is None:
            merged = full
            # The server may accept the other spelling, so policies for the listed item must apply.
            for listed in self.listed_as(kind, server, name):
                other = self.target(kind, server, listed, view)
                also = (*also, *other.names)
        displayed = view.rename.get(merged, merged)
        return Target(kind.target_kind, name, displayed, server, merged, also)

    def listed_as(self, kind: ListKind, server: str, name: str) -> list[str]:
        """Return the names of a server's items that differ from `name` only in spelling."""
        spellings = self._spellings.get((server, kind))
        if spellings is None:
            spellings = self._spellings[server, kind] = {}
            for key in self._servers.get(server, {}).get(kind, ()):
                spellings.setdefault(normalize_name(key).casefold(), []).append(key)
        return spellings.get(normalize_name(name).casefold(), [])

    def has(self, kind: ListKind, server: str, name: str, view: View) -> bool:
        """Return True if a view has a tool or prompt of a server, by the server's own name."""
        return name in self._view_list(kind, view).own(server)

    def own_page(self, kind: ListKind, server: str, view: View, revision: Revision) -> bytes:
        """Return the members of a list of one server in a view, under the server's own names."""
        listed = self._view_list(kind, view).listed_of(server)
        texts = [item.written(revision, item.key) for item in listed]
        return b'"%b":[%b]' % (kind.value.encode(), b",".join(texts))

    def definition(self, name: str, view: View) -> Raw | None:
        """Return the definition of a tool as its server sent it, with its name in the view."""
        item = self._view_list(ListKind.TOOLS, view).items.get(name)
        return None if item is None else item.renamed(name)

    def param_headers(self, tool: str, view: View) -> tuple[ParamHeader, ...]:
        """Return the arguments that are also sent as headers; none for a tool outside the view."""
        item = self._view_list(ListKind.TOOLS, view).items.get(tool)
        if item is None:
            return ()
        known = item.param_headers
        return item.read_param_headers() if known is None else known

    def definitions(self, view: View, selection: Selection = None) -> Iterator[tuple[str, Raw]]:
        """Yield the name and definition of each tool that the view lists."""
        found = self._view_list(ListKind.TOOLS, view, selection)
        return ((name, found.items[name].renamed(name)) for name in found.listed)

    def names(self, kind: ListKind, view: View, selection: Selection = None) -> list[str]:
        """Return the names or URIs that the view lists, in order."""
        return list(self._view_list(kind, view, selection).listed)

    def own_listed_names(self, kind: ListKind, server: str, view: View) -> list[str]:
        """Return a server's own names or URIs of the items that the view lists."""
        return [item.key for item in self._view_list(kind, view).listed_of(server)]

    def own_names(self, kind: ListKind, server: str) -> list[str]:
        """Return the names or URIs that one server lists."""
        return list(self._servers.get(server, {}).get(kind, ()))

    def own_count(self, kind: ListKind, server: str, view: View) -> int:
        """Return the number of items of one server that a view lists."""
        return len(self._view_list(kind, view).listed_of(server))

    def version(self, kind: ListKind) -> int:
        """Return a number that changes whenever the merged list changes."""
        return self._versions[kind]

    def budget(self, kind: ListKind) -> ListBudget:
        """Return the limits for reading one list of a server."""
        settings = self._settings
        return ListBudget(kind.method, settings.max_list_bytes, settings.max_list_items)

    def _make_room(self, server: str, kind: ListKind, size: int) -> None:
        sizes = self._sizes.get(server, {})
        others = sum(much for one, much in sizes.items() if one is not kind)
        everywhere = sum(sum(one.values()) for one in self._sizes.values()) - sizes.get(kind, 0)
        for limit, most, used in (
            (SERVER_CATALOG_BYTES, self._settings.max_server_bytes, others),
            (CATALOG_BYTES, self._settings.max_catalog_bytes, everywhere),
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
        for key in [key for key in self._view_lists if key[0] is kind]:
            del self._view_lists[key]

    def _view_list(self, kind: ListKind, view: View, selection: Selection = None) -> ViewList:
        if selection is not None and not self.has_variants:
            # Without variants all clients see the same lists.
            selection = None
        found = self._view_lists.get((kind, view, selection))
        if found is None:
            if len(self._view_lists) >= MAX_LISTS:
                CATALOG_VIEWS.hit()
                # The oldest list is dropped: the dictionary is in order of insertion.
                del self._view_lists[next(iter(self._view_lists))]
            found = ViewList(kind)
            items = self._items(kind, view, selection)
            if kind.named:
                found.take_named(items, self._merged(kind), view)
            else:
                found.take_by_uri(items, view)
            self._view_lists[kind, view, selection] = found
        return found

    def _items(
        self, kind: ListKind, view: View, selection: Selection = None
    ) -> Iterator[CatalogItem]:
        """Yield the items of the servers in a view, in the order of the servers."""
        chosen = None if selection is None else dict(selection)
        for server, lists in self._servers.items():
            if not view.includes(server):
                continue
            variants = self._variants.get(server, {})
            if chosen is None:
                union = dict(lists.get(kind, {}))
                for variant in variants.values():
                    for key, item in variant.get(kind, {}).items():
                        union.setdefault(key, item)
                yield from union.values()
            else:
                seen = variants.get(chosen.get(server, 0), lists)
                yield from seen.get(kind, {}).values()

    def _merged(self, kind: ListKind) -> dict[Pair, str]:
        names = self._names.get(kind)
        if names is None:
            # Names are assigned over all variants, so that they do not depend on the client.
            everything = self._items(kind, View.everything())
            names = self._names[kind] = merge_names((item.server, item.key) for item in everything)
        return names


def _read_items(
    server: str, kind: ListKind, items: Sequence[Raw], old: Mapping[str, CatalogItem]
) -> dict[str, CatalogItem]:
    """Return the valid items by name, and reuse the objects of unchanged items."""
    new: dict[str, CatalogItem] = {}
    for raw in items:
        item = read_item(server, kind, raw)
        if item is not None and item.key not in new:
            known = old.get(item.key)
            new[item.key] = known if known is not None and known.text == item.text else item
    return new
