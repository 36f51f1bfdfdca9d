"""From configuration files to tools: every configured server, connected as far as it goes."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from ..config.server_filters import ServerFilter
from ..config.trust import Trust
from ..upstream.memory.tool_cache import MCPToolCache
from .connect_configured import connect_configured
from .connect_report import ConnectReport
from .manager import MCPManager

__all__ = ["Discovered", "discover_and_load_mcp_tools", "discover_mcp_servers"]


class Discovered(ConnectReport, frozen=True, kw_only=True):
    """The result of discovery. The manager is yours: close it when you are done."""

    manager: MCPManager
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
    options those of `MCPManager`. Entries of project files without an approval are errors.
    """
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
    """The same; for those who think of servers, not of tools."""
    return await discover_and_load_mcp_tools(cwd, **options)
