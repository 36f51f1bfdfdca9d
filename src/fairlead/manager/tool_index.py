"""The tools of a manager's servers: current tools, and tools remembered from the last run."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..upstream.memory.tool_memory import ToolMemory
from ..upstream.upstream import Upstream
from .tools.catalog import Listed, ToolCatalog
from .tools.tool import CallTool, MCPTool

__all__ = ["ToolIndex"]


class ToolIndex:
    """Index of all servers' tools, rebuilt when they change."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        memory: ToolMemory,
        *,
        call: CallTool,
        on_change: Callable[[list[MCPTool]], None],
    ) -> None:
        """Create an index.

        `upstreams` are the manager's current servers by name. `on_change` is called with every new
        set of tools.
        """
        self._upstreams = upstreams
        self._memory = memory
        self._on_change = on_change
        self._catalog = ToolCatalog(call, self._about)
        self._rebuilding: asyncio.Handle | None = None

    @property
    def tools(self) -> list[MCPTool]:
        """All tools, sorted by name."""
        return list(self._catalog.tools)

    def get(self, name: str) -> MCPTool | None:
        return self._catalog.by_name.get(name)

    def rebuild_soon(self) -> None:
        """Rebuild the index in the next event-loop iteration, once for all changes until then."""
        if self._rebuilding is None:
            self._rebuilding = asyncio.get_running_loop().call_soon(self.rebuild)

    def rebuild(self) -> list[MCPTool]:
        """Rebuild the catalog and return its tools; report them if they have changed."""
        if self._rebuilding is not None:
            self._rebuilding.cancel()
            self._rebuilding = None
        before = self._catalog.tools
        tools = self._catalog.build(self._listed())
        if tools != before:
            self._on_change(tools)
        return list(tools)

    def _listed(self) -> Iterable[Listed]:
        for name, upstream in self._upstreams.items():
            if upstream.tools is not None:
                yield name, upstream.spec.allowed(upstream.tools), False
            elif (remembered := self._memory.get(name)) is not None:
                yield name, upstream.spec.allowed(remembered), True

    def _about(self, server: str) -> Mapping[str, Any]:
        """Return the properties that all tools of a server share."""
        source = self._upstreams[server].spec.source

        def available() -> bool:
            upstream = self._upstreams.get(server)
            return upstream is not None and upstream.state in ("connected", "idle")

        return {
            "provider": source.provider,
            "provider_name": source.provider_name,
            "available": available,
        }
