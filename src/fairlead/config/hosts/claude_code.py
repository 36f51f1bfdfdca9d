"""Claude Code: one file for the user and all projects, and a file for administrators that excludes
the others.

Several programs share the project's `.mcp.json`: `simple_hosts.py` reads it and uses the switches
defined here.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from ..files.config_reader import ConfigReader
from ..files.formats import Document
from ..host_files.host import ConfigLocation, Host, WhyOff, items_at, named_items, names_at
from ..paths import HostPaths

__all__ = ["CODE", "project_keys", "switches"]


def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    own = _own_file(machine)
    # Listed twice, because its section for this project precedes its servers for all projects.
    return [
        ConfigLocation(_system(machine, "managed-mcp.json"), "managed"),
        ConfigLocation(own, "local"),
        ConfigLocation(own, "user"),
    ]


def servers(
    document: Document, place: ConfigLocation, machine: HostPaths
) -> Iterable[tuple[str, Any]]:
    scopes = _of_project(document, machine) if place.level == "local" else [document.data]
    return [
        item
        for scope in scopes
        for item in named_items("mcpServers", scope.get("mcpServers") or {})
    ]


def switches(machine: HostPaths, files: ConfigReader) -> WhyOff:
    """Return a check for servers that the user or an administrator disabled."""
    managed = files.document(_system(machine, "managed-mcp.json"))
    policy = files.document(_system(machine, "managed-settings.json"))
    rules = policy.data if policy is not None else {}
    everywhere, mcp_json = _off_in_project(machine, files)

    def why_off(name: str, place: ConfigLocation, raw: dict[str, Any]) -> str | None:
        if managed is not None and place.level != "managed":
            return f"excluded by {managed.path}, which allows only its own servers"
        if any(_matches(rule, name, raw) for rule in items_at(rules, "deniedMcpServers")):
            return "denied by Claude Code's managed settings"
        allowed = rules.get("allowedMcpServers")
        if isinstance(allowed, list) and not any(_matches(r, name, raw) for r in allowed):
            return "not allowed by Claude Code's managed settings"
        if name in everywhere:
            return "disabled in Claude Code for this project"
        if place.level == "project" and name in mcp_json:
            return "disabled in Claude Code's settings"
        return None

    return why_off


def _off_in_project(machine: HostPaths, files: ConfigReader) -> tuple[set[str], set[str]]:
    """Return the names disabled in this project, and the names disabled only for `.mcp.json`."""
    everywhere: set[str] = set()
    mcp_json: set[str] = set()
    on: set[str] = set()
    own = files.document(_own_file(machine))
    for settings in _of_project(own, machine) if own is not None else ():
        everywhere.update(names_at(settings, "disabledMcpServers"))
        mcp_json.update(names_at(settings, "disabledMcpjsonServers"))
        on.update(names_at(settings, "enabledMcpServers"))
        on.update(names_at(settings, "enabledMcpjsonServers"))
    for path in _settings_files(machine):
        document = files.document(path)
        if document is not None:
            mcp_json.update(names_at(document.data, "disabledMcpjsonServers"))
    return everywhere - on, mcp_json


def _own_file(machine: HostPaths) -> str:
    return machine.join(machine.variable("CLAUDE_CONFIG_DIR", machine.home), ".claude.json")


def _settings_files(machine: HostPaths) -> list[str]:
    folder = machine.variable("CLAUDE_CONFIG_DIR", machine.at_home(".claude"))
    return [
        machine.join(folder, "settings.json"),
        machine.in_project(".claude", "settings.json"),
        machine.in_project(".claude", "settings.local.json"),
    ]


def _system(machine: HostPaths, name: str) -> str:
    return machine.of_system(
        name,
        linux="/etc/claude-code",
        darwin="/Library/Application Support/ClaudeCode",
        win32=r"C:\Program Files\ClaudeCode",
    )


def _of_project(document: Document, machine: HostPaths) -> list[dict[str, Any]]:
    projects = document.data.get("projects")
    if not isinstance(projects, dict):
        return []
    wanted = project_keys(machine)
    found = {_key(machine, path): value for path, value in projects.items()}
    return [found[key] for key in wanted if isinstance(found.get(key), dict)]


def project_keys(machine: HostPaths) -> list[str]:
    """Return the keys under which Claude Code may store this project, nearest folder first."""
    return [_key(machine, folder) for folder in machine.upwards()]


def _key(machine: HostPaths, path: str) -> str:
    # Windows paths may differ in case and in the direction of slashes.
    path = path.replace("\\", "/").lower() if machine.is_windows else path
    return path.rstrip("/") or "/"


def _matches(rule: Any, name: str, raw: dict[str, Any]) -> bool:
    if not isinstance(rule, dict):
        return False
    if "serverName" in rule:
        return bool(rule["serverName"] == name)
    if "serverCommand" in rule:
        args = raw.get("args")
        return bool(rule["serverCommand"] == [raw.get("command"), *(args or [])])
    if "serverUrl" in rule:
        return fnmatchcase(str(raw.get("url", "")), str(rule["serverUrl"]))
    return False


CODE = Host(
    id="claude-code",
    title="Claude Code",
    places=places,
    servers=servers,
    dialect="claude",
    switches=switches,
)
