"""Host programs that differ only in their file paths and in the key under which servers are
listed.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..files.config_reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths
from . import claude_code
from .vscode import user_folder

__all__ = [
    "ANTIGRAVITY",
    "CLAUDE_DESKTOP",
    "CLINE",
    "CURSOR",
    "DOT_MCP_JSON",
    "GOOSE",
    "HOSTS",
    "MCPORTER",
    "MCP_JSON",
    "ROO",
    "WINDSURF",
    "ZED",
    "claude_desktop_files",
]

# A host's path: `~/FILE` in the home folder, `FILE` in the project, or a function that returns
# the user's paths on a machine.
Path: TypeAlias = str | Callable[[HostPaths], list[str]]


def _host(id: str, title: str, *paths: Path, key: str = "mcpServers", **more: Any) -> Host:
    """Return a host with these paths, highest precedence first."""

    def places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
        return [place for path in paths for place in _locations(path, machine)]

    return Host(id=id, title=title, places=places, servers=servers_at(key), **more)


def _locations(path: Path, machine: HostPaths) -> list[ConfigLocation]:
    if not isinstance(path, str):
        return user(*path(machine))
    if path.startswith("~/"):
        return user(machine.at_home(path.removeprefix("~/")))
    return project(machine.in_project(path))


# Claude Desktop; on Windows it may also be a Store package.


def claude_desktop_files(m: HostPaths) -> list[str]:
    """Return the paths of Claude Desktop's configuration file, one for each kind of package."""
    file = "claude_desktop_config.json"
    paths = [m.join(m.app_support, "Claude", file)]
    if m.is_windows:
        cache = m.join(m.local_app_data, "Packages", "Claude_pzs8sxrjxfjjc", "LocalCache")
        paths.append(m.join(cache, "Roaming", "Claude", file))
    return paths


CLAUDE_DESKTOP = _host("claude-desktop", "Claude Desktop", claude_desktop_files, dialect="literal")


# Cursor

_OAUTH = {"CLIENT_ID": "clientId", "CLIENT_SECRET": "clientSecret", "scopes": "scopes"}


def _cursor(m: HostPaths) -> list[str]:
    folder = m.variable("CURSOR_CONFIG_DIR", m.at_home(".cursor"))
    return [m.join(folder, "mcp.json"), m.at_home(".cursor", "mcp.json")]


def _cursor_entry(raw: dict[str, Any]) -> dict[str, Any]:
    auth = raw.get("auth")
    if not isinstance(auth, dict):
        return raw
    oauth = {ours: auth[theirs] for theirs, ours in _OAUTH.items() if theirs in auth}
    return {**{k: v for k, v in raw.items() if k != "auth"}, "oauth": oauth}


CURSOR = _host(
    "cursor",
    "Cursor",
    ".cursor/mcp.json",
    _cursor,
    dialect="cursor",
    adapt=_cursor_entry,
)


# Windsurf, and Antigravity with the same format

WINDSURF = _host(
    "windsurf",
    "Windsurf",
    ".windsurf/mcp_config.json",
    "~/.codeium/windsurf/mcp_config.json",
    "~/.codeium/windsurf-next/mcp_config.json",
    "~/.codeium/mcp_config.json",  # the JetBrains plugin
    dialect="windsurf",
)
ANTIGRAVITY = _host(
    "antigravity",
    "Antigravity",
    "~/.gemini/config/mcp_config.json",
    "~/.gemini/antigravity/mcp_config.json",  # path used in versions before August 2026
)


# Zed: a section of its settings. Only Zed can start servers from extensions (`settings` only).


def _zed(m: HostPaths) -> list[str]:
    if m.is_windows:
        folder = m.join(m.app_data, "Zed")
    elif m.platform == "darwin":
        folder = m.at_home(".config", "zed")  # Zed does not use Application Support on macOS.
    else:
        folder = m.join(m.variable("FLATPAK_XDG_CONFIG_HOME", m.xdg_config), "zed")
    return [m.join(folder, "settings.json")]


def _zed_entry(raw: dict[str, Any]) -> dict[str, Any] | None:
    if "settings" in raw and not raw.get("command") and not raw.get("url"):
        return None
    return raw


ZED = _host(
    "zed",
    "Zed",
    ".zed/settings.json",
    _zed,
    key="context_servers",
    dialect="literal",
    timeout_unit="s",
    adapt=_zed_entry,
)


# Cline and Roo Code: editor extensions, with files in the editor's folder.

_EDITORS = ("Code", "Code - Insiders", "Cursor", "Windsurf", "VSCodium")


def _of_extension(m: HostPaths, extension: str, name: str) -> list[str]:
    folders = [user_folder(m, editor) for editor in _EDITORS]
    folders.append(m.at_home(".vscode-server", "data", "User"))
    return [m.join(folder, "globalStorage", extension, "settings", name) for folder in folders]


def _cline(m: HostPaths) -> list[str]:
    name = "cline_mcp_settings.json"
    home = m.variable("CLINE_DIR", m.at_home(".cline"))
    paths = _of_extension(m, "saoudrizwan.claude-dev", name)
    return [*paths, m.join(home, "data", "settings", name)]


CLINE = _host("cline", "Cline", _cline, timeout_unit="s", url_means="sse")
ROO = _host(
    "roo",
    "Roo Code",
    ".roo/mcp.json",
    lambda m: _of_extension(m, "rooveterinaryinc.roo-cline", "mcp_settings.json"),
    dialect="roo",
    timeout_unit="s",
)


# Goose: a YAML file of extensions, only some of which are MCP servers.


def _goose(m: HostPaths) -> list[str]:
    if m.is_windows:
        return [m.join(m.app_data, "Block", "goose", "config", "config.yaml")]
    return [m.join(m.xdg_config, "goose", "config.yaml")]


def _goose_entry(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Return None for Goose's own extensions (`builtin`, `platform`, ...)."""
    return raw if raw.get("type") in ("stdio", "sse", "streamable_http") else None


GOOSE = _host(
    "goose",
    "Goose",
    _goose,
    key="extensions",
    dialect="goose",
    timeout_unit="s",
    adapt=_goose_entry,
)


# mcporter: unset variables are errors.


def _mcporter_entry(raw: dict[str, Any]) -> dict[str, Any]:
    """Convert `bearerTokenEnv`, which names a variable, to Codex's field name."""
    token = raw.get("bearerTokenEnv") or raw.get("bearer_token_env")
    return {**raw, "bearer_token_env_var": token} if token else raw


MCPORTER = _host(
    "mcporter",
    "mcporter",
    lambda m: list(filter(None, [m.variable("MCPORTER_CONFIG")])),
    "config/mcporter.json",
    "~/.mcporter/mcporter.json",
    "~/.mcporter/mcporter.jsonc",
    dialect="mcporter",
    adapt=_mcporter_entry,
)


# Files in the project folder that several programs share

MCP_JSON = _host("mcp-json", "mcp.json of the project", "mcp.json", dialect="claude")
# Shared by Claude Code, Copilot CLI and others. Servers disabled in Claude Code are disabled here.
DOT_MCP_JSON = _host(
    "dot-mcp-json",
    ".mcp.json of the project",
    ".mcp.json",
    dialect="claude",
    switches=claude_code.switches,
)


# Other hosts


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
        ".kiro/settings/mcp.json",
        "~/.kiro/settings/mcp.json",
        dialect="claude",
    ),
    _host("lm-studio", "LM Studio", "~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"),
    _host("amp", "Amp", lambda m: [m.join(m.config, "amp", "settings.json")], key="amp.mcpServers"),
    _host("trae", "Trae", _trae),
    _host("crush", "Crush", ".crush.json", "crush.json", _crush, key="mcp", timeout_unit="s"),
    _host("kimi", "Kimi", ".kimi-code/mcp.json", "~/.kimi/mcp.json", "~/.kimi-code/mcp.json"),
    _host("factory", "Factory Droid", ".factory/mcp.json", "~/.factory/mcp.json"),
    _host("qoder", "Qoder", _qoder),
    _host("sema4", "Sema4.ai", "~/.sema4ai/sema4ai-studio/mcp_servers.json"),
    _host("5ire", "5ire", lambda m: [m.join(m.app_support, "5ire", "mcp.json")]),
    _host("mastra", "Mastra Code", ".mastracode/mcp.json", "~/.mastracode/mcp.json"),
    _host("pi", "Pi", ".pi/mcp.json", "~/.pi/agent/mcp.json"),
    _host("fx", "fx", "~/.fx/mcp.json", key="mcp"),
)
