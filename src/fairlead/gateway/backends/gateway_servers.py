"""The servers of a gateway that has no manager."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ...client import MCPClientConfig
from ...client.connection.era_cache import known_eras
from ...client.server_entry import MCPStdioServerConfig
from ...config.server_spec import ServerSpec
from ...upstream.connection_keeper import END_LIMIT
from ...upstream.memory.server_memory import CachedEraStore, ServerMemory
from ...upstream.memory.tool_cache import MCPToolCache
from ...upstream.memory.tool_memory import ToolMemory
from ...upstream.upstream_registry import UpstreamRegistry
from ...wire.quote_text import quoted
from ..gateway_settings import GatewaySettings

__all__ = ["GatewayServers", "ServerSource", "require_source"]

log = logging.getLogger("fairlead.gateway")


@runtime_checkable
class ServerSource(Protocol):
    """The owner of a gateway's servers: `GatewayServers`, or an `MCPManager`."""

    upstreams: UpstreamRegistry

    def add_servers(self, specs: Mapping[str, ServerSpec], /) -> None:
        """Add servers and start connecting them. Servers that exist already are not changed."""

    async def disconnect_server(self, name: str) -> None:
        """Stop a server and remove it."""

    def remembered(self, name: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server listed in the last run; None if they are unknown."""

    async def close(self) -> None:
        """Stop all servers."""


def require_source(manager: object) -> None:
    """Check that an object owns servers.

    Raises:
        TypeError: It is something else, such as a configuration.
    """
    if not isinstance(manager, ServerSource):
        raise TypeError(
            f"manager must be an MCPManager, not {quoted(manager)}: use `Gateway()` and "
            "`await gateway.connect({name: entry})`"
        )


class GatewayServers:
    """The servers of a gateway without a manager."""

    def __init__(
        self, settings: GatewaySettings, *, cache: MCPToolCache | None = None, lazy: bool = False
    ) -> None:
        """`cache` keeps tools and eras between runs. `lazy` stops local servers that are idle."""
        if cache is not None:
            known_eras.keep(CachedEraStore(cache.others))
        self._memory = ToolMemory(cache)
        self._lazy = lazy
        self.upstreams = UpstreamRegistry(
            settings.relay,
            config=MCPClientConfig(
                max_list_bytes=settings.max_list_bytes, max_list_items=settings.max_list_items
            ),
            # No roots: the gateway's folders are not the folders of its clients.
            callbacks={"on_roots": None},
            memory=ServerMemory(None if cache is None else cache.others),
        )
        self.upstreams.add_change_listener(self._memory.update)

    def add_servers(self, specs: Mapping[str, ServerSpec], /) -> None:
        """Add servers and start connecting them. Servers that exist already are not changed."""
        started = []
        for name, spec in specs.items():
            if name in self.upstreams:
                continue
            recalled = self._memory.recall(name, spec.entry)
            lazy = self._lazy and isinstance(spec.entry, MCPStdioServerConfig)
            upstream = self.upstreams.add(name, spec, lazy=lazy)
            # A lazy server whose tools are known need not start before it is called.
            upstream.start(now=not (spec.entry.lazy and recalled))
            if upstream.state != "idle":
                started.append(name)
        self.upstreams.events.report_connecting(started)

    async def disconnect_server(self, name: str) -> None:
        """Stop a server and remove it."""
        self._memory.forget([name])
        ends = self.upstreams.remove([name])
        if ends:
            # A process that does not exit must not block the removal.
            await asyncio.wait(ends, timeout=END_LIMIT)

    def remembered(self, name: str) -> list[dict[str, Any]] | None:
        """Return the tools that a server listed in the last run; None if they are unknown."""
        return self._memory.get(name)

    async def close(self) -> None:
        """Stop all servers."""
        await self.upstreams.close()
        await self._memory.flush()
