"""Servers from configuration files, as specifications that a manager can connect."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..client.server_entry import MCPServerEntry
from .discovery import DiscoveredServers, load_all_mcp_configs
from .found_server import FoundServer
from .server_filters import ServerFilter
from .server_spec import ServerSpec
from .trust import Trust
from .variables.resolve import resolve_in_thread

__all__ = ["configured_servers", "load_configured"]

log = logging.getLogger("fairlead.manager")


def load_configured(
    cwd: str | os.PathLike[str] | None,
    *,
    enable_project_config: bool = True,
    filter_exa: bool = True,
    filters: Sequence[ServerFilter] = (),
    loading: Mapping[str, Any] | None = None,
    **_: Any,
) -> DiscoveredServers:
    """Discover servers with the file options of `discover_and_load_mcp_tools`; ignore other
    options.
    """
    return load_all_mcp_configs(
        cwd,
        enable_project_config=enable_project_config,
        filter_exa=filter_exa,
        filters=filters,
        **(loading or {}),
    )


def configured_servers(
    found: DiscoveredServers, *, trust: Trust | None = None, inputs: Mapping[str, str] | None = None
) -> dict[str, ServerSpec]:
    """Return specifications of the discovered servers, whose values are resolved on each
    connection.
    """
    approvals = trust or Trust()
    return {name: _configured(one, approvals, inputs) for name, one in found.found.items()}


def _configured(one: FoundServer, trust: Trust, inputs: Mapping[str, str] | None) -> ServerSpec:
    async def resolve() -> MCPServerEntry:
        resolved = await resolve_in_thread(one, trust=trust, inputs=inputs)
        for warning in resolved.warnings:
            log.warning("%s: %s", one.name, warning)
        return resolved.entry

    return ServerSpec(
        entry=one.entry,
        resolve=resolve,
        source=one.source,
        only_tools=one.only_tools,
        without_tools=one.without_tools,
        startup_timeout=one.startup_timeout,
        digest=one.digest,
        settings=one.settings,
    )
