"""oh-my-pi: like our own files, with lists of names to switch on and off."""

from collections.abc import Iterable
from typing import Any

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, DisabledReasons, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["OMP"]


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    profiles = machine.at_home(".omp", "profiles")
    folders = [
        machine.at_home(".omp", "agent"),
        *(machine.join(profiles, name, "agent") for name in files.names_in(profiles)),
    ]
    return [
        *project(machine.in_project(".omp", "mcp.json"), machine.in_project(".omp", ".mcp.json")),
        *user(*(machine.join(f, name) for f in folders for name in ("mcp.json", ".mcp.json"))),
    ]


def switches(machine: HostPaths, files: ConfigReader) -> DisabledReasons:
    off: set[str] = set()
    for place in places(machine, files):
        document = files.document(place.path)
        names: Any = document.data.get("disabledServers") if document is not None else None
        off |= (
            {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
        )

    def why_off(name: str, place: ConfigLocation, raw: dict[str, Any]) -> str | None:
        return "listed in `disabledServers`" if name in off else None

    return DisabledReasons(why_off)


OMP = Host(
    id="omp",
    title="oh-my-pi",
    places=places,
    servers=servers_at("mcpServers"),
    dialect="omp",
    switches=switches,
)
