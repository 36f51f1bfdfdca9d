"""mcporter: variables it does not know are errors."""

from collections.abc import Iterable
from typing import Any

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["MCPORTER"]


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    said = machine.variable("MCPORTER_CONFIG")
    return [
        *(user(said) if said else ()),
        *project(machine.in_project("config", "mcporter.json")),
        *user(
            machine.at_home(".mcporter", "mcporter.json"),
            machine.at_home(".mcporter", "mcporter.jsonc"),
        ),
    ]


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """`bearerTokenEnv` names a variable, as Codex does."""
    token = raw.get("bearerTokenEnv") or raw.get("bearer_token_env")
    return {**raw, "bearer_token_env_var": token} if token else raw


MCPORTER = Host(
    id="mcporter",
    title="mcporter",
    places=places,
    servers=servers_at("mcpServers"),
    dialect="mcporter",
    adapt=adapt,
)
