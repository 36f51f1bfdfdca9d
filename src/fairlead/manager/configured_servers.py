"""Servers that configuration files name, read and connected."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from ..client.server_entry import MCPServerEntry
from ..config.discovery import DiscoveredServers, load_all_mcp_configs
from ..config.found_server import FoundServer
from ..config.server_filters import ServerFilter
from ..config.trust import Trust
from ..config.variables.resolve import resolve_in_thread
from ..config.variables.secret_commands import SecretCommands
from .server_spec import ConnectReport, ServerSpec

__all__ = ["ServerConnector", "configured_servers", "connect_configured", "load_configured"]

log = logging.getLogger("fairlead.manager")


class ServerConnector(Protocol):
    """A manager, as far as connecting servers goes."""

    async def connect_servers(self, configs: Mapping[str, ServerSpec], /) -> ConnectReport: ...


async def connect_configured(
    manager: ServerConnector,
    cwd: str | os.PathLike[str] | None,
    *,
    trust: Trust | None = None,
    inputs: Mapping[str, str] | None = None,
    **options: Any,
) -> tuple[ConnectReport, list[str]]:
    """Find every configured server and connect it. Never raises.

    Options are those of `discover_and_load_mcp_tools`; what is not about files has no effect. The
    second value are the API keys of Exa that were found.
    """
    try:
        found = load_configured(cwd, **options)
    except Exception as exc:  # whatever a file made us do
        log.exception("discovery failed")
        errors = [{"path": ".mcp.json", "error": str(exc)}]
        return ConnectReport(tools=[], errors=errors, connected_servers=[]), []
    for warning in found.warnings:
        log.warning("%s", warning)
    report = await manager.connect_servers(configured_servers(found, trust=trust, inputs=inputs))
    errors = [*({"path": w.path, "error": str(w)} for w in found.warnings), *report.errors]
    return replace(report, errors=errors), found.exa_api_keys


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
