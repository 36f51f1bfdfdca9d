"""Files in the project's root that belong to no program in particular."""

from collections.abc import Iterable

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at
from ..paths import HostPaths
from . import claude_code as claude

__all__ = ["DOT_MCP_JSON", "MCP_JSON"]


def mcp_json(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    return project(machine.in_project("mcp.json"))


def dot_mcp_json(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    return project(machine.in_project(".mcp.json"))


MCP_JSON = Host(
    id="mcp-json",
    title="mcp.json of the project",
    places=mcp_json,
    servers=servers_at("mcpServers"),
    dialect="claude",
)
# Shared by Claude Code, Copilot CLI and others; who said no to a server in Claude Code meant it.
DOT_MCP_JSON = Host(
    id="dot-mcp-json",
    title=".mcp.json of the project",
    places=dot_mcp_json,
    servers=servers_at("mcpServers"),
    dialect="claude",
    switches=claude.switches,
)
