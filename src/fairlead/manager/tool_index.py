"""The tools of a manager's servers: those listed now, and those remembered from last time."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..client.server_entry import MCPServerEntry
from ..errors import ConfigError
from .server_spec import ServerSpec
from .supervisor import Supervisor
from .tools.catalog import Listed, ToolCatalog
from .tools.tool import CallTool, MCPTool
from .tools.tool_cache import MCPToolCache

__all__ = ["ToolIndex"]

WRITE_LIMIT = 2.0  # seconds for the cache to be written when everything ends

log = logging.getLogger("fairlead.manager")


class ToolIndex:
    """Rebuilds the catalog of tools as servers change, and keeps their tools for next time."""

    def __init__(
        self,
        specs: Mapping[str, ServerSpec],
        supervisors: Mapping[str, Supervisor],
        cache: MCPToolCache | None,
        *,
        call: CallTool,
        on_change: Callable[[list[MCPTool]], None],
    ) -> None:
        """`specs` and `supervisors` are those of the manager, by name, as they are at any time.

        Without `cache` nothing is remembered. `on_change` learns of every new set of tools.
        """
        self._specs = specs
        self._supervisors = supervisors
        self._cache = cache
        self._on_change = on_change
        self._catalog = ToolCatalog(call, self._about)
        self._remembered: dict[str, list[dict[str, Any]]] = {}  # tools from last time
        self._failing: set[str] = set()  # did not start last time, so they are not waited for
        self._rebuilding: asyncio.Handle | None = None
        self._writing: set[asyncio.Future[None]] = set()

    @property
    def tools(self) -> list[MCPTool]:
        """All tools, by name."""
        return list(self._catalog.tools)

    def get(self, name: str) -> MCPTool | None:
        return self._catalog.by_name.get(name)

    def remembered(self, server: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server had last time, where that is known."""
        return self._remembered.get(server)

    def is_known(self, server: str) -> bool:
        """Return True if a server's tools are known, or it is known not to start."""
        return server in self._remembered or server in self._failing

    def recall(self, server: str, entry: MCPServerEntry) -> bool:
        """Look up what the cache has of a server. Return True if it has its tools."""
        tools = self._from_cache(server, entry)
        if tools is None:
            return False
        self._remembered[server] = tools
        return True

    def update(self, supervisor: Supervisor) -> None:
        """Take in a server's new state or new tools, and rebuild soon."""
        name, tools = supervisor.name, supervisor.tools
        if tools is not None and tools is not self._remembered.get(name):
            self._remembered[name] = tools
            self._failing.discard(name)
            self._keep(name, tools)
        elif (
            supervisor.state == "failed"
            and not self.is_known(name)
            # A mistake in its configuration, or a missing approval, takes no time to find.
            and not isinstance(supervisor.error, ConfigError)
        ):
            self._failing.add(name)
            self._keep(name, None)
        if self._rebuilding is None:
            self._rebuilding = asyncio.get_running_loop().call_soon(self._rebuild_soon)

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is known of servers; `rebuild` then drops their tools."""
        for name in servers:
            self._failing.discard(name)
            self._remembered.pop(name, None)

    def rebuild(self) -> list[MCPTool]:
        """Return the tools as they are now, and report them if they have changed."""
        if self._rebuilding is not None:
            self._rebuilding.cancel()
            self._rebuilding = None
        before = self._catalog.tools
        tools = self._catalog.build(self._listed())
        if tools != before:
            self._on_change(tools)
        return list(tools)

    async def flush(self) -> None:
        """Wait until the cache is written, or that takes too long."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=WRITE_LIMIT)

    def _rebuild_soon(self) -> None:
        self._rebuilding = None
        self.rebuild()

    def _listed(self) -> Iterable[Listed]:
        for name, supervisor in self._supervisors.items():
            if supervisor.tools is not None:
                yield name, self._specs[name].allowed(supervisor.tools), False
            elif name in self._remembered:
                yield name, self._specs[name].allowed(self._remembered[name]), True

    def _about(self, server: str) -> Mapping[str, Any]:
        """Facts that all tools of a server have in common."""
        source = self._specs[server].source

        def available() -> bool:
            supervisor = self._supervisors.get(server)
            return supervisor is not None and supervisor.state in ("connected", "idle")

        return {
            "provider": source.provider,
            "provider_name": source.provider_name,
            "available": available,
        }

    def _from_cache(self, server: str, entry: MCPServerEntry) -> list[dict[str, Any]] | None:
        if self._cache is None:
            return None
        try:
            tools = self._cache.get(server, entry)
            if tools is None and self._cache.failed(server, entry):
                self._failing.add(server)
            return tools
        except Exception:  # the host's store
            log.exception("%s: its tools could not be looked up", server)
            return None

    def _keep(self, name: str, tools: list[dict[str, Any]] | None) -> None:
        """Write the cache beside everything else; a failure is only logged."""
        if self._cache is None:
            return
        entry = self._specs[name].entry
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(None, self._cache.set, name, entry, tools)
        self._writing.add(writing)
        writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.warning("tools could not be kept for next time: %s", error)
