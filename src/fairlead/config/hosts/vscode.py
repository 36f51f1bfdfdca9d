"""Visual Studio Code: files for user, profiles, remote server and project, with `inputs`."""

from collections.abc import Iterable
from functools import partial

from ..files.config_reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["INSIDERS", "VSCODE", "user_folder"]


def user_folder(machine: HostPaths, program: str = "Code") -> str:
    """Return the settings folder of VS Code or of an editor that is based on it."""
    return machine.join(machine.app_support, program, "User")


def _places(
    program: str, server: str, machine: HostPaths, files: ConfigReader
) -> Iterable[ConfigLocation]:
    folder = user_folder(machine, program)
    profiles = machine.join(folder, "profiles")
    return [
        *project(
            machine.in_project(".vscode", "mcp.json"),
            machine.in_project(".devcontainer", "devcontainer.json"),
        ),
        *user(machine.join(folder, "mcp.json")),
        *user(*(machine.join(profiles, id, "mcp.json") for id in files.names_in(profiles))),
        *user(machine.at_home(server, "data", "User", "mcp.json")),
    ]


def _host(id: str, title: str, program: str, server: str) -> Host:
    return Host(
        id=id,
        title=title,
        places=partial(_places, program, server),
        servers=servers_at("servers", "mcpServers", "customizations.vscode.mcp.servers"),
        dialect="vscode",
    )


VSCODE = _host("vscode", "VS Code", "Code", ".vscode-server")
INSIDERS = _host(
    "vscode-insiders", "VS Code Insiders", "Code - Insiders", ".vscode-server-insiders"
)
