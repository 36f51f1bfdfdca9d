"""From configuration files to tools: everything that was found, connected as far as it goes."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..client.server_entry import MCPServerEntry
from ..config.discovery import DiscoveredServers, load_all_mcp_configs
from ..config.found_server import FoundServer
from ..config.server_filters import ServerFilter
from ..config.trust import Trust
from ..config.variables.resolve import resolve_in_thread
from ..config.variables.secret_commands import SecretCommands
from .manager import MCPManager, ServerSpec
from .tools.tool import MCPTool
from .tools.tool_cache import MCPToolCache

__all__ = [
    "Discovered",
    "configured_servers",
    "discover_and_load_mcp_tools",
    "discover_mcp_servers",
]

log = logging.getLogger("fairlead.manager")


class Discovered(Struct, frozen=True, kw_only=True):
    """What discovery brought. The manager is yours: close it when you are done."""

    manager: MCPManager
    tools: list[MCPTool]
    errors: list[dict[str, str]]  # {path, error}
    connected_servers: list[str]
    exa_api_keys: list[str]

    def __repr__(self) -> str:  # keys do not belong into logs
        return f"<Discovered {len(self.tools)} tools of {self.connected_servers}>"


async def discover_and_load_mcp_tools(
    cwd: str | os.PathLike[str] | None = None,
    *,
    manager: MCPManager | None = None,
    cache: MCPToolCache | None = None,
    enable_project_config: bool = True,
    filter_exa: bool = True,
    filters: Sequence[ServerFilter] = (),
    trust: Trust | None = None,
    inputs: Mapping[str, str] | None = None,
    loading: Mapping[str, Any] | None = None,
    **options: Any,
) -> Discovered:
    """Find every configured server, connect them, and return their tools. Never raises.

    `inputs` answers `${input:...}`; `loading` are more options of `load_all_mcp_configs`, other
    options those of `MCPManager`. Entries of project files that nobody approved are errors.
    """
    if manager is None:
        manager = MCPManager(cwd, cache=cache or MCPToolCache(), **options)
    try:
        found = load_configured(
            cwd,
            enable_project_config=enable_project_config,
            filter_exa=filter_exa,
            filters=filters,
            loading=loading,
        )
    except Exception as exc:  # whatever a file made us do
        log.exception("discovery failed")
        return Discovered(
            manager=manager,
            tools=[],
            errors=[{"path": ".mcp.json", "error": str(exc)}],
            connected_servers=[],
            exa_api_keys=[],
        )
    for warning in found.warnings:
        log.warning("%s", warning)
    loaded = await manager.connect_servers(configured_servers(found, trust=trust, inputs=inputs))
    return Discovered(
        manager=manager,
        tools=loaded.tools,
        errors=[*({"path": w.path, "error": str(w)} for w in found.warnings), *loaded.errors],
        connected_servers=loaded.connected_servers,
        exa_api_keys=found.exa_api_keys,
    )


async def discover_mcp_servers(
    cwd: str | os.PathLike[str] | None = None, **options: Any
) -> Discovered:
    """The same; for those who think of servers, not of tools."""
    return await discover_and_load_mcp_tools(cwd, **options)


def load_configured(
    cwd: str | os.PathLike[str] | None,
    *,
    enable_project_config: bool = True,
    filter_exa: bool = True,
    filters: Sequence[ServerFilter] = (),
    loading: Mapping[str, Any] | None = None,
    **_: Any,
) -> DiscoveredServers:
    """Read the files by the options of `discover_and_load_mcp_tools` that are about files."""
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
    """What was found, ready for a manager: filled in when it is connected, and not before."""
    commands = SecretCommands(trust or Trust())
    return {name: _configured(one, commands, inputs or {}) for name, one in found.found.items()}


def _configured(
    one: FoundServer, commands: SecretCommands, inputs: Mapping[str, str]
) -> ServerSpec:
    async def resolve() -> MCPServerEntry:
        resolved = await resolve_in_thread(one, commands=commands, inputs=inputs)
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
    )
