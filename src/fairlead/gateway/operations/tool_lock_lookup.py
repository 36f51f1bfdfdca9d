"""Whose tool something is, in a gateway: what a tool lock compares is what the server listed."""

from typing import TYPE_CHECKING

from msgspec import UnsetType

from ...errors import MCPToolError
from ...interceptor import Exchange
from ...policy.actions.tool_lock import FindTool, ToolOrigin
from ..backends.startup_calls import wait_until_found
from ..catalog.list_kind import ListKind
from ..catalog.views import View

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["tool_finder", "tool_waiter"]


def tool_finder(gateway: "Gateway") -> FindTool:
    """Finds tools by the names that clients know, also inside a call of the search's tools."""

    def find(exchange: Exchange, name: str) -> ToolOrigin | None:
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
        return ToolOrigin(target.server, target.own, definition, described)

    return find


async def tool_waiter(gateway: "Gateway", exchange: Exchange, name: str) -> None:
    """Wait for the server that a tool may be of, if it is just starting.

    Raises:
        RpcError: it takes too long.
    """
    if exchange.server is not None:
        server, own = exchange.server, exchange.alias or name
        member = gateway.members.get(server)
        members = [] if member is None else [member]
        await wait_until_found(
            lambda: gateway.catalog.merged_name(ListKind.TOOLS, server, own), members
        )
        return
    if gateway.settings.search:
        name, _ = _meant(exchange, name)
    await gateway.router.expect_tool(name, exchange.caller)


def _at_door(gateway: "Gateway", server: str, exchange: Exchange, name: str) -> ToolOrigin:
    """At the path of one server lists have its own names, and calls the merged ones."""
    if exchange.method != "tools/call":
        return ToolOrigin(server, name)
    own = exchange.alias or name
    catalog = gateway.catalog
    merged = catalog.merged_name(ListKind.TOOLS, server, own)
    if merged is None and (alike := catalog.listed_as(ListKind.TOOLS, server, own)):
        own = alike[0]  # another spelling of it, which the server may accept
        merged = catalog.merged_name(ListKind.TOOLS, server, own)
    if merged is None:
        return ToolOrigin(server, own)
    return ToolOrigin(server, own, gateway.catalog.definition(merged, View.everything()))


def _meant(exchange: Exchange, name: str) -> tuple[str, bool]:
    """The tool that it is about, and whether it is only described."""
    from ..search.search_index import CallToolArguments, DescribeToolArguments, read_arguments

    arguments = exchange.head.arguments
    try:
        wanted = read_arguments(name, None if isinstance(arguments, UnsetType) else arguments)
    except MCPToolError:
        return name, False
    if isinstance(wanted, CallToolArguments | DescribeToolArguments):
        return wanted.name, isinstance(wanted, DescribeToolArguments)
    return name, False
