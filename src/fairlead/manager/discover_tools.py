"""Discovery of all configured servers and their tools."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from ..config.server_filters import ServerFilter
from ..config.trust import Trust
from ..upstream.memory.tool_cache import MCPToolCache
from .connect_configured import ConnectReport, check_discovery_options, connect_configured
from .manager import MCPManager

__all__ = ["Discovered", "discover_and_load_mcp_tools", "discover_mcp_servers"]


class Discovered(ConnectReport, frozen=True, kw_only=True):
    """The result of discovery. Close its manager when you are done."""

    manager: MCPManager
    exa_api_keys: list[str]

    def __repr__(self) -> str:  # API keys must not appear in logs
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
    """Find all configured servers, connect them, and return their tools.

    Errors in files and servers are reported, never raised.

    `inputs` are values for `${input:...}`. `loading` are further options of `load_all_mcp_configs`,
    and `options` are options of `MCPManager`. Unapproved entries in project files are reported as
    errors.

    Raises:
        TypeError: A keyword argument is unknown.
    """
    check_discovery_options(options, "manager")
    if manager is None:
        manager = MCPManager(cwd, cache=cache or MCPToolCache(), **options)
    report, exa_api_keys = await connect_configured(
        manager,
        cwd,
        enable_project_config=enable_project_config,
        filter_exa=filter_exa,
        filters=filters,
        trust=trust,
        inputs=inputs,
        loading=loading,
    )
    return Discovered(**structs.asdict(report), manager=manager, exa_api_keys=exa_api_keys)


async def discover_mcp_servers(
    cwd: str | os.PathLike[str] | None = None, **options: Any
) -> Discovered:
    """Find all configured servers and return their tools; see `discover_and_load_mcp_tools`."""
    return await discover_and_load_mcp_tools(cwd, **options)
