"""Programs that differ only in where their file is and what the map in it is called."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["HOSTS"]

Paths: TypeAlias = Callable[[HostPaths], list[str]]


def _none(machine: HostPaths) -> list[str]:
    return []


def _host(
    id: str, title: str, users: Paths, projects: Paths = _none, key: str = "mcpServers", **more: Any
) -> Host:
    def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
        return [*project(*projects(machine)), *user(*users(machine))]

    return Host(id=id, title=title, places=places, servers=servers_at(key), **more)


def _copilot(m: HostPaths) -> list[str]:
    moved = m.variable("XDG_CONFIG_HOME")
    other = [m.join(moved, "mcp-config.json")] if moved else []
    return [m.at_home(".copilot", "mcp-config.json"), *other]


def _crush(m: HostPaths) -> list[str]:
    folder = m.local_app_data if m.is_windows else m.xdg_config
    return [m.join(folder, "crush", "crush.json")]


def _qoder(m: HostPaths) -> list[str]:
    if m.is_windows:
        return [m.join(m.app_data, "Qoder", "SharedClientCache", "mcp.json")]
    return [m.at_home(".qoder", "mcp.json")]


def _trae(m: HostPaths) -> list[str]:
    paths = [m.join(m.app_support, "Trae", "User", "mcp.json")]
    return paths if m.platform != "linux" else [*paths, m.join(m.xdg_config, "trae", "mcp.json")]


HOSTS: tuple[Host, ...] = (
    _host("copilot", "GitHub Copilot CLI", _copilot),
    _host(
        "kiro",
        "Kiro",
        lambda m: [m.at_home(".kiro", "settings", "mcp.json")],
        lambda m: [m.in_project(".kiro", "settings", "mcp.json")],
        dialect="claude",
    ),
    _host(
        "lm-studio",
        "LM Studio",
        lambda m: [
            m.at_home(".lmstudio", "mcp.json"),
            m.at_home(".cache", "lm-studio", "mcp.json"),
        ],
    ),
    _host(
        "amp",
        "Amp",
        lambda m: [m.join(m.config, "amp", "settings.json")],
        key="amp.mcpServers",
    ),
    _host("trae", "Trae", _trae),
    _host(
        "crush",
        "Crush",
        _crush,
        lambda m: [m.in_project(".crush.json"), m.in_project("crush.json")],
        key="mcp",
        timeout_unit="s",
    ),
    _host(
        "kimi",
        "Kimi",
        lambda m: [m.at_home(".kimi", "mcp.json"), m.at_home(".kimi-code", "mcp.json")],
        lambda m: [m.in_project(".kimi-code", "mcp.json")],
    ),
    _host(
        "factory",
        "Factory Droid",
        lambda m: [m.at_home(".factory", "mcp.json")],
        lambda m: [m.in_project(".factory", "mcp.json")],
    ),
    _host("qoder", "Qoder", _qoder),
    _host(
        "sema4",
        "Sema4.ai",
        lambda m: [m.at_home(".sema4ai", "sema4ai-studio", "mcp_servers.json")],
    ),
    _host("5ire", "5ire", lambda m: [m.join(m.app_support, "5ire", "mcp.json")]),
    _host(
        "mastra",
        "Mastra Code",
        lambda m: [m.at_home(".mastracode", "mcp.json")],
        lambda m: [m.in_project(".mastracode", "mcp.json")],
    ),
    _host(
        "pi",
        "Pi",
        lambda m: [m.at_home(".pi", "agent", "mcp.json")],
        lambda m: [m.in_project(".pi", "mcp.json")],
    ),
    _host("fx", "fx", lambda m: [m.at_home(".fx", "mcp.json")], key="mcp"),
)
