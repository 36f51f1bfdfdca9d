"""Tools that servers listed in an earlier run, shown until the server has started."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from ...client.server_entry import MCPServerEntry
from ...errors import ConfigError
from ..upstream import Upstream
from .tool_cache import MCPToolCache

__all__ = ["ToolMemory"]

WRITE_LIMIT = 2.0  # seconds for pending writes when a manager closes

log = logging.getLogger("fairlead.manager")


class ToolMemory:
    """The known tools of servers, and the servers that failed to start."""

    def __init__(self, cache: MCPToolCache | None) -> None:
        """Without `cache`, nothing is kept for the next run."""
        self._cache = cache
        self._tools: dict[str, list[dict[str, Any]]] = {}
        # servers that failed to start in the last run, so start-up does not wait for them
        self._failing: set[str] = set()
        self._writing: set[asyncio.Future[None]] = set()

    def get(self, server: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server has, or had in the last run; None if unknown."""
        return self._tools.get(server)

    def is_known(self, server: str) -> bool:
        """Return True if the tools of a server are known, or it failed to start in the last run."""
        return server in self._tools or server in self._failing

    def recall(self, server: str, entry: MCPServerEntry) -> bool:
        """Load the cache entry of a server; return True if it contains tools."""
        if self._cache is None:
            return False
        try:
            tools = self._cache.get(server, entry)
            if tools is None and self._cache.failed(server, entry):
                self._failing.add(server)
        except Exception:  # a store of the host program may raise anything
            log.exception("%s: the cached tools could not be read", server)
            return False
        if tools is not None:
            self._tools[server] = tools
        return tools is not None

    def update(self, upstream: Upstream) -> None:
        """Store a server's new tools, or the fact that it failed to start."""
        name, tools = upstream.name, upstream.tools
        if tools is not None and tools is not self._tools.get(name):
            self._tools[name] = tools
            self._failing.discard(name)
            self._keep(upstream, tools)
        elif (
            upstream.state == "failed"
            and not self.is_known(name)
            # Configuration errors occur at once, so recording them would not save a wait.
            and not isinstance(upstream.error, ConfigError)
        ):
            self._failing.add(name)
            self._keep(upstream, None)

    def forget(self, servers: Iterable[str]) -> None:
        """Forget servers; their cache entries stay."""
        for name in servers:
            self._failing.discard(name)
            self._tools.pop(name, None)

    async def flush(self) -> None:
        """Wait until the cache is written, or the time limit has passed."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=WRITE_LIMIT)

    def _keep(self, upstream: Upstream, tools: list[dict[str, Any]] | None) -> None:
        """Write the cache entry in a thread; a failure is only logged."""
        if self._cache is None:
            return
        loop = asyncio.get_running_loop()
        entry, client = upstream.spec.entry, upstream.client
        version = client.protocol_version if client is not None else None
        writing = loop.run_in_executor(
            None, self._cache.set, upstream.name, entry, tools, version or ""
        )
        self._writing.add(writing)
        writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.warning("tools could not be cached: %s", error)
