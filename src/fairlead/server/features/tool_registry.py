"""Registry of the tools of a server by name."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from ...errors import MCPErrorCode, MCPToolError
from ...protocol.caller import ANONYMOUS, Caller
from ...protocol.revisions import NEWEST_HANDSHAKE
from ...protocol.schema.validation import InvalidArguments
from ...protocol.types.tools import Tool
from ...wire import Request, to_json
from ..execution.tool_runner import ToolRunner
from ..server_config import MCPServerConfig
from .paged_list import PagedList
from .tool_entry import ToolEntry, tool_from_function

__all__ = ["MCPToolRegistry"]


class MCPToolRegistry:
    """Registry of tools. Every server has one; servers can share a registry."""

    def __init__(
        self, config: MCPServerConfig | None = None, *, calls: ToolRunner | None = None
    ) -> None:
        config = config or MCPServerConfig()
        self.listing: PagedList[ToolEntry] = PagedList(
            "tool", "tools/list", "tools", config.page_size
        )
        self.get = self.listing.get  # the dictionary's own method, without the cost of a wrapper
        self._calls = calls or ToolRunner(config)
        self._sources: dict[str, object] = {}
        self.has_inline = False  # True once a tool was registered that is called on the event loop

    def __len__(self) -> int:
        return len(self.listing)

    def __contains__(self, name: object) -> bool:
        return name in self.listing.names()

    def register(
        self,
        tool: ToolEntry | Callable[..., Any],
        *,
        source: object = None,
        replace: bool = False,
    ) -> ToolEntry:
        """Register a tool, or a function as a tool. Registering the same tool again has no effect.

        `source` identifies the tool: two registrations with the same source and definition are
        equal. By default it is `tool`.

        Raises:
            ValueError: Another tool has this name, and `replace` is False.
            TypeError: The function cannot be a tool; see `tool_from_function`.
        """
        entry = tool if isinstance(tool, ToolEntry) else tool_from_function(tool)
        source = tool if source is None else source
        known = self.get(entry.name)
        if (
            known is not None
            and self._sources.get(entry.name) == source
            and known.definition == entry.definition
        ):
            return known
        if known is not None and not replace:
            raise ValueError(
                f"a tool {entry.name!r} is already registered: choose another name or pass "
                "replace=True"
            )
        self.has_inline |= entry.inline
        self._sources[entry.name] = source
        self.listing.add(entry.name, entry, replace=replace)
        return entry

    def unregister(self, name: str) -> None:
        """Remove a tool.

        Raises:
            KeyError: The tool is not registered.
        """
        self.listing.remove(name)
        self._sources.pop(name, None)

    def list_tools(self) -> list[Tool]:
        """Return the definitions in the order of registration."""
        return [entry.definition for entry in self.listing.entries()]

    def validate_call(self, name: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Check the arguments of a call without executing it.

        Raises:
            MCPToolError: NOT_FOUND, or VALIDATION_ERROR with every problem.
        """
        entry = self._find(name)
        try:
            entry.decode(Raw(to_json(arguments or {})))
        except InvalidArguments as exc:
            raise MCPToolError(
                f"Invalid arguments for tool '{name}': {exc}",
                code=MCPErrorCode.VALIDATION_ERROR,
                tool_name=name,
                field_errors=[{"field": e.field, "constraint": e.constraint} for e in exc.errors],
            ) from exc

    async def execute(
        self, name: str, arguments: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Call a tool and return its result. A failure is a result with `isError`.

        Raises:
            MCPToolError: NOT_FOUND, the tool is unknown.
        """
        from ...interceptor.direct_edge import direct_exchange

        entry = self._find(name)
        params = Raw(to_json({"name": name, "arguments": arguments or {}}))
        # The program calls its own tool without a client, so no principal was authenticated.
        caller = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)
        exchange = direct_exchange(Request(0, "tools/call", params), caller)
        run = self._calls.run(entry, exchange, b"}") if entry.home is None else entry.home(exchange)
        result: dict[str, Any] = msgspec.json.decode(await run or b"{}")
        return result

    def _find(self, name: str) -> ToolEntry:
        entry = self.get(name)
        if entry is None:
            text = f"Unknown tool: {name}{self.listing.hint(name, 'list_tools()')}"
            raise MCPToolError(text, code=MCPErrorCode.NOT_FOUND, tool_name=name)
        return entry
