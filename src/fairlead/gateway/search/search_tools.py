"""The three search tools, applied to the tools in a client's view."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Raw, UnsetType, structs

from ...errors import MCPToolError
from ...interceptor import Exchange, Interceptor, InterceptorBase, hooks_of, overrides
from ...protocol.caller import Caller
from ...protocol.json_edit import members_of, string_of
from ...protocol.targets.list_kind import ListKind
from ...relay.request_params import with_members
from ...wire import to_json
from ..catalog.merged_catalog import MergedCatalog
from ..catalog.views import View
from .search_index import (
    DescribeToolArguments,
    SearchMatch,
    SearchToolsArguments,
    ToolSearchIndex,
    describe_result,
    not_found_result,
    read_arguments,
    search_result,
)

__all__ = ["SearchTools"]


class SearchTools:
    """Handler of `search_tools` and `describe_tool`, which also unpacks `call_tool`."""

    def __init__(
        self,
        catalog: MergedCatalog,
        interceptors: Sequence[Interceptor],
        *,
        listed: Callable[[], Awaitable[None]],
        expect: Callable[[str, Caller], Awaitable[None]],
    ) -> None:
        """Interceptors with the hook `shown` change or omit definitions, as they would in a list.
        `listed` waits briefly for starting servers, `expect` for the server that has a certain
        tool.

        Raises `ConfigError` if the library for searching is not installed.
        """
        self._catalog = catalog
        hooks = map(hooks_of, interceptors)
        self._shown = [one.shown for one in hooks if overrides(one, InterceptorBase.shown)]
        self._listed = listed
        self._expect = expect
        everything = View.everything()
        self._indexes = {everything: self._new(everything)}

    async def answer(self, exchange: Exchange, view: View) -> bytes | Exchange | None:
        """Return the result of a search tool, or the inner call of `call_tool`; None for other
        tools.
        """
        given = exchange.head.arguments
        try:
            wanted = read_arguments(
                exchange.target or "", None if isinstance(given, UnsetType) else given
            )
        except MCPToolError as exc:
            return to_json(exc.to_mcp_response())
        if wanted is None:
            return None
        if isinstance(wanted, SearchToolsArguments):
            await self._listed()
            index = await self._index(view)
            found = self._visible(exchange, view, index.search(wanted.query, wanted.limit))
            return search_result(wanted.query, found, len(index))
        await self._expect(wanted.name, exchange.caller)
        definition = self._catalog.definition(wanted.name, view)
        # `call_tool` returns no definition, and its inner call passes the interceptors.
        if isinstance(wanted, DescribeToolArguments) and definition is not None:
            definition = self._as_shown(exchange, definition)
        if definition is None:
            index = await self._index(view)
            near = self._visible(exchange, view, index.search(wanted.name, 3))
            return not_found_result(wanted.name, near)
        if isinstance(wanted, DescribeToolArguments):
            return describe_result(definition)
        return with_members(exchange, name=wanted.name, arguments=wanted.arguments)

    def _visible(
        self, exchange: Exchange, view: View, found: list[SearchMatch]
    ) -> list[SearchMatch]:
        """Return the matches that interceptors do not omit, with the descriptions that they set."""
        if not self._shown:
            return found
        visible = []
        for one in found:
            definition = self._catalog.definition(one.name, view)
            shown = None if definition is None else self._as_shown(exchange, definition)
            if shown is definition:
                visible.append(one)
            # An interceptor changed the definition, so its new description is shown.
            elif shown is not None:
                described = string_of((members_of(shown) or {}).get("description")) or ""
                visible.append(structs.replace(one, description=described))
        return visible

    def _as_shown(self, exchange: Exchange, definition: Raw) -> Raw | None:
        now: Raw | None = definition
        for shown in self._shown:
            if now is not None:
                now = shown(exchange, now)
        return now

    async def _index(self, view: View) -> ToolSearchIndex:
        index = self._indexes.get(view)
        if index is None:
            index = self._indexes[view] = self._new(view)
        if (build := index.prepare()) is not None:
            # In a thread, because building the index would delay other requests.
            await asyncio.to_thread(build)
        return index

    def _new(self, view: View) -> ToolSearchIndex:
        return ToolSearchIndex(
            lambda: self._catalog.definitions(view), lambda: self._catalog.version(ListKind.TOOLS)
        )
