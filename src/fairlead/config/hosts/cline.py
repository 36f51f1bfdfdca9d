"""Cline and Roo Code: extensions that keep their files inside an editor's folder."""

from collections.abc import Iterable

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths
from .vscode import user_folder

__all__ = ["CLINE", "ROO"]

_EDITORS = ("Code", "Code - Insiders", "Cursor", "Windsurf", "VSCodium")


def _of_extension(machine: HostPaths, extension: str, name: str) -> list[str]:
    folders = [user_folder(machine, editor) for editor in _EDITORS]
    folders.append(machine.at_home(".vscode-server", "data", "User"))
    return [
        machine.join(folder, "globalStorage", extension, "settings", name) for folder in folders
    ]


def cline_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    name = "cline_mcp_settings.json"
    home = machine.variable("CLINE_DIR", machine.at_home(".cline"))
    return user(
        *_of_extension(machine, "saoudrizwan.claude-dev", name),
        machine.join(home, "data", "settings", name),
    )


def roo_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    return [
        *project(machine.in_project(".roo", "mcp.json")),
        *user(*_of_extension(machine, "rooveterinaryinc.roo-cline", "mcp_settings.json")),
    ]


CLINE = Host(
    id="cline",
    title="Cline",
    places=cline_places,
    servers=servers_at("mcpServers"),
    timeout_unit="s",
    url_means="sse",
)
ROO = Host(
    id="roo",
    title="Roo Code",
    places=roo_places,
    servers=servers_at("mcpServers"),
    dialect="roo",
    timeout_unit="s",
)
