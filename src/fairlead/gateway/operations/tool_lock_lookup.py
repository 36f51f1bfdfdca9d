"""Whose tool something is, in a gateway: what a tool lock compares is what the server listed."""

from typing import TYPE_CHECKING

from msgspec import UnsetType

from ...errors import MCPToolError
from ...interceptor import Exchange
from ...policy.actions.tool_lock import Finder, Whose
from ..backends.startup_calls import until_found
from ..catalog.merged_catalog import Kind
from ..catalog.views import View

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["finder_of", "until_found_at"]


def finder_of(gateway: "Gateway") -> Finder:
    """Finds tools by the names that clients know, also inside a call of the search's tools."""

    def find(exchange: Exchange, name: str) -> Whose | None:
        if exchange.server is not None:
            return _at_door(gateway, exchange.server, exchange, name)
        view = gateway.view_of(exchange.caller)
        described = False
        if gateway.settings.search and exchange.method == "tools/call":
            name, described = _meant(exchange, name)
        target = gateway.catalog.tool(name, view)
        if target is None or target.server is None:
            return None
        definition = gateway.catalog.definition(name, view)
        return Whose(target.server, target.own, definition, described)

    return find


async def until_found_at(gateway: "Gateway", exchange: Exchange, name: str) -> None:
    """Wait for the server that a tool may be of, if it is just starting.

    Raises:
        RpcError: it takes too long.
    """
    if exchange.server is not None:
        server, own = exchange.server, exchange.alias or name
        member = gateway.members.get(server)
        members = [] if member is None else [member]
        await until_found(lambda: gateway.catalog.merged_name(Kind.TOOLS, server, own), members)
        return
    if gateway.settings.search:
        name, _ = _meant(exchange, name)
    await gateway.finding.expect_tool(name, exchange.caller)


def _at_door(gateway: "Gateway", server: str, exchange: Exchange, name: str) -> Whose:
    """At the path of one server lists have its own names, and calls the merged ones."""
    if exchange.method != "tools/call":
        return Whose(server, name)
    own = exchange.alias or name
    catalog = gateway.catalog
    merged = catalog.merged_name(Kind.TOOLS, server, own)
    if merged is None and (alike := catalog.listed_as(Kind.TOOLS, server, own)):
        own = alike[0]  # another spelling of it, which the server may accept
        merged = catalog.merged_name(Kind.TOOLS, server, own)
    if merged is None:
        return Whose(server, own)
    return Whose(server, own, gateway.catalog.definition(merged, View.everything()))


def _meant(exchange: Exchange, name: str) -> tuple[str, bool]:
    """The tool that it is about, and whether it is only described."""
    from ..search.search_index import Call, Describe, read_arguments

    arguments = exchange.head.arguments
    try:
        wanted = read_arguments(name, None if isinstance(arguments, UnsetType) else arguments)
    except MCPToolError:
        return name, False
    if isinstance(wanted, Call | Describe):
        return wanted.name, isinstance(wanted, Describe)
    return name, False
