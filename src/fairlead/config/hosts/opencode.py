"""opencode, with both versions of its settings format, and its derivative Kilo Code."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..files.config_reader import ConfigReader
from ..files.formats import Document
from ..host_files.host import ConfigLocation, Host, named_items, user
from ..paths import HostPaths

__all__ = ["KILO", "OPENCODE"]


def _places(name: str, machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    def both(*folders: str) -> list[str]:
        return [
            machine.join(folder, f"{name}.{ending}")
            for folder in folders
            for ending in ("json", "jsonc")
        ]

    system = machine.of_system(
        linux=f"/etc/{name}",
        darwin=f"/Library/Application Support/{name}",
        win32=rf"C:\ProgramData\{name}",
    )
    folders = [machine.join(machine.xdg_config, name)]
    if machine.is_windows:
        folders.append(machine.join(machine.app_data, name))
    upper = name.upper()
    if moved := machine.variable(f"{upper}_CONFIG_DIR"):
        folders.insert(0, moved)
    said = machine.variable(f"{upper}_CONFIG")
    projects = [
        ConfigLocation(path, "project", folder=folder)
        for folder in machine.upwards()
        for path in both(folder, machine.join(folder, f".{name}"))
    ]
    return [
        *(ConfigLocation(path, "managed") for path in both(system)),
        *(user(said) if said else ()),
        *projects,
        *user(*both(*folders)),
    ]


def servers(
    document: Document, place: ConfigLocation, machine: HostPaths
) -> Iterable[tuple[str, Any]]:
    found = document.data.get("mcp")
    if not isinstance(found, dict):
        return named_items("mcp", found) if found is not None else ()
    nested = found.get("servers")
    if isinstance(nested, dict) and not _is_entry(nested):  # version 2 of the settings format
        return named_items("mcp.servers", nested)
    return [(name, raw) for name, raw in named_items("mcp", found) if not _is_limit(name, raw)]


def adapt(raw: dict[str, Any]) -> dict[str, Any] | None:
    # An entry like `{"enabled": false}` only disables a server that an organisation configures.
    if not {"type", "command", "url"} & raw.keys():
        return None
    return raw


def _is_entry(raw: dict[str, Any]) -> bool:
    return isinstance(raw.get("type"), str) or isinstance(raw.get("command"), list)


def _is_limit(name: str, raw: Any) -> bool:
    return name == "timeout" and not (isinstance(raw, dict) and _is_entry(raw))


def _host(id: str, title: str) -> Host:
    return Host(
        id=id,
        title=title,
        places=partial(_places, id),
        servers=servers,
        dialect="opencode",
        adapt=adapt,
    )


OPENCODE = _host("opencode", "opencode")
KILO = _host("kilo", "Kilo Code")
