"""Search mode at work: the three tools, over what a client gets to see."""

import asyncio

from msgspec import UnsetType

from ..errors import MCPToolError
from ..interceptor import Exchange
from ..wire import to_json
from .asked import with_members
from .catalog import Catalog, Kind
from .search import (
    Describe,
    Search,
    ToolSearch,
    describe_result,
    not_found_result,
    read_arguments,
    search_result,
)
from .views import View

__all__ = ["Searching"]


class Searching:
    """Answers `search_tools` and `describe_tool`, and takes `call_tool` apart."""

    def __init__(self, catalog: Catalog) -> None:
        """Raises `ConfigError` if the library for searching is not there."""
        self._catalog = catalog
        everything = View.everything()
        self._indexes = {everything: self._new(everything)}

    async def answer(self, exchange: Exchange, view: View) -> bytes | Exchange | None:
        """The result of a call; or the call that is meant; None if it is for none of the three."""
        given = exchange.head.arguments
        try:
            wanted = read_arguments(
                exchange.target or "", None if isinstance(given, UnsetType) else given
            )
        except MCPToolError as exc:
            return to_json(exc.to_mcp_response())
        if wanted is None:
            return None
        index = await self._index(view)
        if isinstance(wanted, Search):
            return search_result(wanted.query, index.search(wanted.query, wanted.limit), len(index))
        definition = self._catalog.definition(wanted.name, view)
        if definition is None:
            return not_found_result(wanted.name, index.search(wanted.name, 3))
        if isinstance(wanted, Describe):
            return describe_result(definition)
        return with_members(exchange, name=wanted.name, arguments=wanted.arguments)

    async def _index(self, view: View) -> ToolSearch:
        index = self._indexes.get(view)
        if index is None:
            index = self._indexes[view] = self._new(view)
        if (build := index.prepare()) is not None:
            await asyncio.to_thread(build)  # it takes a while, and others need not wait
        return index

    def _new(self, view: View) -> ToolSearch:
        return ToolSearch(
            lambda: self._catalog.definitions(view), lambda: self._catalog.version(Kind.TOOLS)
        )
