"""Zed: a part of its settings; servers of its extensions are started by Zed alone."""

from collections.abc import Iterable
from typing import Any

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["ZED"]


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    if machine.is_windows:
        folder = machine.join(machine.app_data, "Zed")
    elif machine.platform == "darwin":
        folder = machine.at_home(".config", "zed")  # not under Application Support
    else:
        flatpak = machine.variable("FLATPAK_XDG_CONFIG_HOME", machine.xdg_config)
        folder = machine.join(flatpak, "zed")
    return [
        *project(machine.in_project(".zed", "settings.json")),
        *user(machine.join(folder, "settings.json")),
    ]


def adapt(raw: dict[str, Any]) -> dict[str, Any] | None:
    if "settings" in raw and not raw.get("command") and not raw.get("url"):
        return None
    return raw


ZED = Host(
    id="zed",
    title="Zed",
    places=places,
    servers=servers_at("context_servers"),
    dialect="literal",
    timeout_unit="s",
    adapt=adapt,
)
