"""Continue: a list in a YAML file, and a folder of files in Continue's or the common format."""

from collections.abc import Iterable
from typing import Any

from ..files.config_reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, user
from ..paths import HostPaths

__all__ = ["CONTINUE"]

_ENDINGS = (".yaml", ".yml", ".json")


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    home = machine.variable("CONTINUE_GLOBAL_DIR", machine.at_home(".continue"))
    return [
        *project(*_in_folder(machine, files, machine.in_project(".continue", "mcpServers"))),
        *user(machine.join(home, "config.yaml")),
        *user(*_in_folder(machine, files, machine.join(home, "mcpServers"))),
    ]


def _in_folder(machine: HostPaths, files: ConfigReader, folder: str) -> list[str]:
    names = files.names_in(folder)
    return [machine.join(folder, name) for name in names if name.endswith(_ENDINGS)]


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if raw.get("apiKey"):
        headers["Authorization"] = f"Bearer {raw['apiKey']}"
    options = raw.get("requestOptions")
    if isinstance(options, dict) and isinstance(options.get("headers"), dict):
        headers.update(options["headers"])
    if isinstance(raw.get("headers"), dict):
        headers.update(raw["headers"])
    return {**raw, "headers": headers} if headers else raw


CONTINUE = Host(
    id="continue",
    title="Continue",
    places=places,
    dialect="continue",
    adapt=adapt,
)
