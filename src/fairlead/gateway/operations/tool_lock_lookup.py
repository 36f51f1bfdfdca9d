"""Lookup of the server and definition of a tool, which a tool lock compares."""

from msgspec import Struct, UnsetType

from ...errors import MCPToolError
from ...interceptor import Exchange
from ...policy.actions.tool_lock import ToolOrigin
from ...protocol.targets.list_kind import ListKind
from ..backends.registry import BackendRegistry
from ..catalog.merged_catalog import MergedCatalog
from ..catalog.routing import Router, wait_until_found
from ..catalog.views import ClientViews, View

__all__ = ["ToolOriginLookup"]


class ToolOriginLookup(Struct, eq=False):
    """Lookup of tools by the names that clients use, including calls inside the search tools.

    `search` is True if the merged list contains the search tools.
    """

    catalog: MergedCatalog
    registry: BackendRegistry
    router: Router
    views: ClientViews
    search: bool

    def find(self, exchange: Exchange, name: str) -> ToolOrigin | None:
        """Return the origin of a tool; None if no server has it."""
        if exchange.server is not None:
            return self._find_at(exchange.server, exchange, name)
        view = self.views.view_of(exchange.caller)
        described = False
        if self.search and exchange.method == "tools/call":
            name, described = _searched(exchange, name)
        target = self.catalog.tool(name, view)
        if target is None or target.server is None:
            return None
        definition = self.catalog.definition(name, view)
        return ToolOrigin(target.server, target.own, definition, described)

    async def wait(self, exchange: Exchange, name: str) -> None:
        """Wait for the server that may have a tool, if it is starting.

        Raises:
            RpcError: The server takes too long to start.
        """
        if exchange.server is not None:
            server, own = exchange.server, exchange.alias or name
            member = self.registry.members.get(server)
            members = [] if member is None else [member]
            await wait_until_found(
                lambda: self.catalog.merged_name(ListKind.TOOLS, server, own), members
            )
            return
        if self.search:
            name, _ = _searched(exchange, name)
        await self.router.expect_tool(name, exchange.caller)

    def _find_at(self, server: str, exchange: Exchange, name: str) -> ToolOrigin:
        """Return the origin of a tool at the endpoint of one server.

        There, lists contain the server's own names, but exchanges of calls contain the merged
        names.
        """
        if exchange.method != "tools/call":
            return ToolOrigin(server, name)
        own, catalog = exchange.alias or name, self.catalog
        merged = catalog.merged_name(ListKind.TOOLS, server, own)
        if merged is None and (alike := catalog.listed_as(ListKind.TOOLS, server, own)):
            # The server may accept other spellings of the name, and these must not bypass the lock.
            own = alike[0]
            merged = catalog.merged_name(ListKind.TOOLS, server, own)
        if merged is None:
            return ToolOrigin(server, own)
        return ToolOrigin(server, own, catalog.definition(merged, View.everything()))


def _searched(exchange: Exchange, name: str) -> tuple[str, bool]:
    """Return the tool that a call concerns, and True if the call only describes it."""
    # Imported on demand, because most gateways do not use the search.
    from ..search.search_index import CallToolArguments, DescribeToolArguments, read_arguments

    arguments = exchange.head.arguments
    try:
        wanted = read_arguments(name, None if isinstance(arguments, UnsetType) else arguments)
    except MCPToolError:
        return name, False
    if isinstance(wanted, CallToolArguments | DescribeToolArguments):
        return wanted.name, isinstance(wanted, DescribeToolArguments)
    return name, False
