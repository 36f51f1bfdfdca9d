"""The servers of a gateway that has no manager."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from ...client import MCPClientConfig
from ...client.connection.era_cache import known_eras
from ...client.server_entry import MCPStdioServerConfig
from ...config.server_spec import ServerSpec
from ...upstream.connection_keeper import END_LIMIT
from ...upstream.memory.era_store import CachedEraStore
from ...upstream.memory.server_memory import ServerMemory
from ...upstream.memory.tool_cache import MCPToolCache
from ...upstream.memory.tool_memory import ToolMemory
from ...upstream.upstream_registry import UpstreamRegistry
from ..gateway_settings import GatewaySettings

__all__ = ["GatewayServers", "ServerSource"]

log = logging.getLogger("fairlead.gateway")


class ServerSource(Protocol):
    """What owns the servers of a gateway: `GatewayServers`, or an `MCPManager`."""

    upstreams: UpstreamRegistry

    def add_servers(self, specs: Mapping[str, ServerSpec], /) -> None:
        """Add servers and begin to connect them; those that are known already stay."""

    async def disconnect_server(self, name: str) -> None:
        """End a server and forget it."""

    def remembered(self, name: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server had last time, where that is known."""

    async def close(self) -> None:
        """End all servers."""


class GatewayServers:
    """Owns the servers of one gateway."""

    def __init__(
        self, settings: GatewaySettings, *, cache: MCPToolCache | None = None, lazy: bool = False
    ) -> None:
        """With `cache`, tools and eras are remembered. `lazy` servers stop when they are idle."""
        if cache is not None:
            known_eras.keep(CachedEraStore(cache.others))
        self._memory = ToolMemory(cache)
        self._lazy = lazy
        self.upstreams = UpstreamRegistry(
            settings.relay,
            config=MCPClientConfig(
                max_list_bytes=settings.max_list_bytes, max_list_items=settings.max_list_items
            ),
            callbacks={"on_roots": None},
            memory=ServerMemory(None if cache is None else cache.others),
        )
        self.upstreams.add_change_listener(self._memory.update)

    def add_servers(self, specs: Mapping[str, ServerSpec], /) -> None:
        """Add servers and begin to connect them; those that are known already stay."""
        started = []
        for name, spec in specs.items():
            if name in self.upstreams:
                continue
            recalled = self._memory.recall(name, spec.entry)
            lazy = self._lazy and isinstance(spec.entry, MCPStdioServerConfig)
            upstream = self.upstreams.add(name, spec, lazy=lazy)
            upstream.start(now=not (spec.entry.lazy and recalled))
            if upstream.state != "idle":
                started.append(name)
        self.upstreams.events.report_connecting(started)

    async def disconnect_server(self, name: str) -> None:
        """End a server and forget it."""
        self._memory.forget([name])
        ends = self.upstreams.remove([name])
        if ends:
            await asyncio.wait(ends, timeout=END_LIMIT)

    def remembered(self, name: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server had last time, where that is known."""
        return self._memory.get(name)

    async def close(self) -> None:
        """End all servers."""
        await self.upstreams.close()
        await self._memory.flush()
