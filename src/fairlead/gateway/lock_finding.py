"""Whose tool something is, in a gateway: what a tool lock compares is what the server listed."""

from typing import TYPE_CHECKING

from msgspec import UnsetType

from ..errors import MCPToolError
from ..interceptor import Exchange
from .interceptors.toollock import Finder, Whose

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["finder_of"]


def finder_of(gateway: "Gateway") -> Finder:
    """Finds tools by the names that clients know, also inside a call of the search's tools."""

    def find(exchange: Exchange, name: str) -> Whose | None:
        view = gateway.view_of(exchange.caller)
        if gateway.settings.search and exchange.method == "tools/call":
            name = _meant(exchange, name)
        target = gateway.catalog.tool(name, view)
        if target is None:
            return None
        return Whose(target.server, target.name, gateway.catalog.definition(name, view))

    return find


def _meant(exchange: Exchange, name: str) -> str:
    from .search import Call, Describe, read_arguments

    arguments = exchange.head.arguments
    try:
        wanted = read_arguments(name, None if isinstance(arguments, UnsetType) else arguments)
    except MCPToolError:
        return name
    return wanted.name if isinstance(wanted, Call | Describe) else name
