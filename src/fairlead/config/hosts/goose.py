"""Goose: extensions in YAML, of which only some are MCP servers."""

from collections.abc import Iterable
from typing import Any

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, servers_at, user
from ..paths import HostPaths

__all__ = ["GOOSE"]

_SERVERS = ("stdio", "sse", "streamable_http")


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    if machine.is_windows:
        return user(machine.join(machine.app_data, "Block", "goose", "config", "config.yaml"))
    return user(machine.join(machine.xdg_config, "goose", "config.yaml"))


def adapt(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Its own parts (`builtin`, `platform`, ...) are no servers."""
    return raw if raw.get("type") in _SERVERS else None


GOOSE = Host(
    id="goose",
    title="Goose",
    places=places,
    servers=servers_at("extensions"),
    dialect="goose",
    timeout_unit="s",
    adapt=adapt,
)
