"""Our own files: of the project and of the user, as JSON, TOML or YAML."""

from collections.abc import Iterable
from typing import Any

from ..files.formats import Document
from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, servers_at
from ..paths import HostPaths

__all__ = ["ENDINGS", "PROJECT", "USER", "names_listed", "project_places", "user_places"]

ENDINGS = ("json", "toml", "yaml")


def project_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    return [
        ConfigLocation(machine.join(folder, ".fairlead", f"mcp.{ending}"), "project", folder=folder)
        for folder in machine.upwards()
        for ending in ENDINGS
    ]


def user_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    return [
        ConfigLocation(machine.join(folder, f"mcp.{ending}"), "user")
        for folder in machine.own_config
        for ending in ENDINGS
    ]


def names_listed(document: Document, key: str) -> list[str]:
    """`disabledServers` or `enabledServers` of a file of ours."""
    names: Any = document.data.get(key)
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


PROJECT = Host(
    id="fairlead-project",
    title="Fairlead (project)",
    places=project_places,
    servers=servers_at("mcpServers"),
    dialect="fairlead",
)
USER = Host(
    id="fairlead",
    title="Fairlead",
    places=user_places,
    servers=servers_at("mcpServers"),
    dialect="fairlead",
)
