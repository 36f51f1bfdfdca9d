"""Tools that servers had last time, so that they can be listed before a server has started."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from ...client.server_entry import MCPServerEntry
from ...errors import ConfigError
from ..upstream import Upstream
from .tool_cache import MCPToolCache

__all__ = ["ToolMemory"]

WRITE_LIMIT = 2.0  # seconds for the cache to be written when everything ends

log = logging.getLogger("fairlead.manager")


class ToolMemory:
    """Remembers the tools of servers, and which servers do not start."""

    def __init__(self, cache: MCPToolCache | None) -> None:
        """Without `cache` nothing is kept for the next time."""
        self._cache = cache
        self._tools: dict[str, list[dict[str, Any]]] = {}
        self._failing: set[str] = set()  # did not start last time, so they are not waited for
        self._writing: set[asyncio.Future[None]] = set()

    def get(self, server: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server has, or had last time, where that is known."""
        return self._tools.get(server)

    def is_known(self, server: str) -> bool:
        """Return True if a server's tools are known, or it is known not to start."""
        return server in self._tools or server in self._failing

    def recall(self, server: str, entry: MCPServerEntry) -> bool:
        """Look up what the cache has of a server. Return True if it has its tools."""
        tools = self._from_cache(server, entry)
        if tools is None:
            return False
        self._tools[server] = tools
        return True

    def update(self, upstream: Upstream) -> None:
        """Take in a server's new state or new tools."""
        name, tools = upstream.name, upstream.tools
        if tools is not None and tools is not self._tools.get(name):
            self._tools[name] = tools
            self._failing.discard(name)
            self._keep(upstream, tools)
        elif (
            upstream.state == "failed"
            and not self.is_known(name)
            # A mistake in its configuration, or a missing approval, takes no time to find.
            and not isinstance(upstream.error, ConfigError)
        ):
            self._failing.add(name)
            self._keep(upstream, None)

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is known of servers; the cache keeps it."""
        for name in servers:
            self._failing.discard(name)
            self._tools.pop(name, None)

    async def flush(self) -> None:
        """Wait until the cache is written, or that takes too long."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=WRITE_LIMIT)

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

    def _keep(self, upstream: Upstream, tools: list[dict[str, Any]] | None) -> None:
        """Write the cache in the background; a failure is only logged."""
        if self._cache is None:
            return
        loop = asyncio.get_running_loop()
        entry = upstream.spec.entry
        writing = loop.run_in_executor(None, self._cache.set, upstream.name, entry, tools)
        self._writing.add(writing)
        writing.add_done_callback(self._written)

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.warning("tools could not be kept for next time: %s", error)
