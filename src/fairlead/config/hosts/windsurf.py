"""Windsurf, and Antigravity, which spells its entries the same way."""

from collections.abc import Iterable

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["ANTIGRAVITY", "WINDSURF"]

_FILE = "mcp_config.json"


def windsurf_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    return [
        *project(machine.in_project(".windsurf", _FILE)),
        *user(
            machine.at_home(".codeium", "windsurf", _FILE),
            machine.at_home(".codeium", "windsurf-next", _FILE),
            machine.at_home(".codeium", _FILE),  # the plugin for JetBrains
        ),
    ]


def antigravity_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    return user(
        machine.at_home(".gemini", "config", _FILE),
        machine.at_home(".gemini", "antigravity", _FILE),  # until August 2026
    )


WINDSURF = Host(
    id="windsurf",
    title="Windsurf",
    places=windsurf_places,
    servers=servers_at("mcpServers"),
    dialect="windsurf",
)
ANTIGRAVITY = Host(
    id="antigravity",
    title="Antigravity",
    places=antigravity_places,
    servers=servers_at("mcpServers"),
)
