"""oh-my-pi: the format of Fairlead's own files, with `disabledServers`."""

from collections.abc import Iterable
from typing import Any

from ..files.config_reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, WhyOff, names_at, project, user
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


def switches(machine: HostPaths, files: ConfigReader) -> WhyOff:
    off: set[str] = set()
    for place in places(machine, files):
        if (document := files.document(place.path)) is not None:
            off.update(names_at(document.data, "disabledServers"))

    def why_off(name: str, place: ConfigLocation, raw: dict[str, Any]) -> str | None:
        return "listed in `disabledServers`" if name in off else None

    return why_off


OMP = Host(
    id="omp",
    title="oh-my-pi",
    places=places,
    dialect="omp",
    switches=switches,
)
