"""Gemini CLI and its derivative Qwen Code."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..files.config_reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, WhyOff, items_at, project, user
from ..paths import HostPaths

__all__ = ["GEMINI", "QWEN"]


def _places(name: str, machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    system = machine.of_system(
        linux=f"/etc/{name}-cli",
        darwin=f"/Library/Application Support/{name.capitalize()}Cli",
        win32=rf"C:\ProgramData\{name}-cli",
    )
    extensions = machine.at_home(f".{name}", "extensions")
    return [
        ConfigLocation(machine.join(system, "settings.json"), "managed"),
        *project(machine.in_project(f".{name}", "settings.json")),
        *user(machine.at_home(f".{name}", "settings.json")),
        *user(
            *(
                machine.join(extensions, folder, f"{name}-extension.json")
                for folder in files.names_in(extensions)
            )
        ),
        ConfigLocation(machine.join(system, "system-defaults.json"), "managed"),
    ]


def _switches(name: str, machine: HostPaths, files: ConfigReader) -> WhyOff:
    allowed: list[str] | None = None
    excluded: set[str] = set()
    for place in _places(name, machine, files):
        document = files.document(place.path)
        settings = document.data.get("mcp") if document is not None else None
        if isinstance(settings, dict):
            if allowed is None and isinstance(settings.get("allowed"), list):
                allowed = settings["allowed"]
            excluded.update(map(str, items_at(settings, "excluded")))
    state = files.document(machine.at_home(f".{name}", "mcp-server-enablement.json"))
    known: dict[str, Any] = state.data if state is not None else {}

    def why_off(server: str, place: ConfigLocation, raw: dict[str, Any]) -> str | None:
        if server in excluded:
            return "excluded by `mcp.excluded`"
        if allowed is not None and server not in allowed:
            return "not in `mcp.allowed`"
        # The program stores these names in lower case.
        entry = known.get(server, known.get(server.lower().strip()))
        if isinstance(entry, dict) and entry.get("enabled") is False:
            return "disabled in mcp-server-enablement.json"
        return None

    return why_off


def _host(id: str, title: str, name: str) -> Host:
    return Host(
        id=id,
        title=title,
        places=partial(_places, name),
        dialect="gemini",
        switches=partial(_switches, name),
    )


GEMINI = _host("gemini", "Gemini CLI", "gemini")
QWEN = _host("qwen", "Qwen Code", "qwen")
