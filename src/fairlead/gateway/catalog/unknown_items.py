"""Errors for names and URIs that no item in a client's view has."""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.own_errors import own_error
from ...protocol.targets.list_kind import ListKind
from ...protocol.targets.unique_names import full_name
from ...suggestions import close_matches, hint_for_unknown
from ...wire.error_codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from ..clients.client_sessions import ConnectedClient
from .list_requests import MergedLists
from .views import View

__all__ = ["UnknownItems"]

_MESSAGES: Final = {
    ListKind.TOOLS: "Unknown tool",
    ListKind.PROMPTS: "Unknown prompt",
    ListKind.RESOURCES: "Resource not found",
    ListKind.TEMPLATES: "Unknown resource template",
}
_MEMBERS: Final = {
    ListKind.TOOLS: "name is required: the name of a tool",
    ListKind.PROMPTS: "name is required: the name of a prompt",
    ListKind.RESOURCES: "uri is required: the URI of a resource",
    ListKind.TEMPLATES: "uri is required: the URI of a resource template",
}
_ITEMS: Final = {ListKind.TEMPLATES: "resource templates"}
_MOST: Final = 3  # maximum number of suggested names


class UnknownItems(Struct, eq=False):
    """Errors with the closest names that the client sees, or the list that contains all names.

    `clients` are the clients of the merged endpoint. Without `suggests`, no name is suggested,
    because interceptors may hide items.
    """

    lists: MergedLists
    clients: Mapping[object, ConnectedClient]
    suggests: bool

    def error(
        self,
        kind: ListKind,
        name: str | None,
        exchange: Exchange,
        view: View,
        *,
        server: str | None = None,
        reason: str = "",
    ) -> RpcError:
        """Build the error for a name or URI. `server` is set at the endpoint of one server.

        `reason` explains why the item is unknown, and replaces the suggestion.
        """
        if not name:
            place = "params.ref" if exchange.method == "completion/complete" else "params"
            return own_error(INVALID_PARAMS, f"{place}.{_MEMBERS[kind]}")
        hint = reason or self._hint(kind, name, exchange, view, server)
        message = f"{_MESSAGES[kind]}: {name}{hint}"
        if kind is not ListKind.RESOURCES:
            return own_error(INVALID_PARAMS, message)
        code = INVALID_PARAMS if exchange.caller.stateless else RESOURCE_NOT_FOUND
        return own_error(code, message, uri=name)

    def _hint(
        self, kind: ListKind, name: str, exchange: Exchange, view: View, server: str | None
    ) -> str:
        similar: list[str] = []
        if self.suggests and server is not None:
            similar = close_matches(name, self.lists.catalog.own_listed_names(kind, server, view))
        elif self.suggests:
            similar = self._similar(kind, name, exchange, view)
        place = kind.method
        if kind is ListKind.RESOURCES:
            place += f" or {ListKind.TEMPLATES.method}"
        elif kind is ListKind.TOOLS and self.lists.search and server is None:
            place = "search_tools"
        return hint_for_unknown(similar, place, _ITEMS.get(kind, kind.value))

    def _similar(self, kind: ListKind, name: str, exchange: Exchange, view: View) -> list[str]:
        """Return similar names or URIs that are listed for a client of the merged endpoint."""
        selection = self.lists.selection(exchange.caller, self.clients.get(exchange.edge))
        known = self.lists.catalog.names(kind, view, selection)
        if not name or not kind.named:
            return close_matches(name, known)
        # Clients often use the name that the server itself uses.
        if merged := list(islice((one for one in known if one.endswith(f"_{name}")), _MOST)):
            return merged
        # Without the server's name, which would make all names of one server similar.
        servers = (full_name(one, "") for one in self.lists.members if view.includes(one))
        start = max((one for one in servers if name.startswith(one)), key=len, default="")
        rest = [one.removeprefix(start) for one in known if one.startswith(start)]
        return [start + one for one in close_matches(name.removeprefix(start), rest)]
