"""Fairlead's own files for the project and the user, as JSON, TOML or YAML."""

from collections.abc import Iterable

from ..files.config_reader import ConfigReader
from ..host_files.host import ConfigLocation, Host
from ..paths import HostPaths

__all__ = ["ENDINGS", "PROJECT", "USER", "project_places", "user_places"]

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


PROJECT = Host(
    id="fairlead-project",
    title="Fairlead (project)",
    places=project_places,
    dialect="fairlead",
)
USER = Host(
    id="fairlead",
    title="Fairlead",
    places=user_places,
    dialect="fairlead",
)
