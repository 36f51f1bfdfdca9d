"""Cursor: one file for the user, one for the project."""

from collections.abc import Iterable
from typing import Any

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["CURSOR"]

_OAUTH = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "scopes": "scopes"}


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    folder = machine.variable("CURSOR_CONFIG_DIR", machine.at_home(".cursor"))
    return [
        *project(machine.in_project(".cursor", "mcp.json")),
        *user(machine.join(folder, "mcp.json"), machine.at_home(".cursor", "mcp.json")),
    ]


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    auth = raw.get("auth")
    if not isinstance(auth, dict):
        return raw
    oauth = {ours: auth[theirs] for theirs, ours in _OAUTH.items() if theirs in auth}
    return {**{k: v for k, v in raw.items() if k != "auth"}, "oauth": oauth}


CURSOR = Host(
    id="cursor",
    title="Cursor",
    places=places,
    servers=servers_at("mcpServers"),
    dialect="cursor",
    adapt=adapt,
)
