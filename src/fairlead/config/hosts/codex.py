"""Codex, and those that write TOML like it: Grok Build, and Mistral Vibe with its list."""

from collections.abc import Iterable
from typing import Any

from ..files.reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["CODEX", "GROK", "VIBE"]

_OAUTH = {"client_id": "clientId", "callback_port": "callbackPort"}


def codex_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    home = machine.variable("CODEX_HOME", machine.at_home(".codex"))
    system = r"C:\ProgramData\OpenAI\Codex" if machine.is_windows else "/etc/codex"
    return [
        ConfigLocation(machine.of_system(system, "managed_config.toml"), "managed"),
        *project(machine.in_project(".codex", "config.toml")),
        *user(machine.join(home, "config.toml")),
        ConfigLocation(machine.of_system(system, "config.toml"), "managed"),
    ]


def grok_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    home = machine.variable("GROK_HOME", machine.at_home(".grok"))
    return [
        *project(machine.in_project(".grok", "config.toml")),
        *user(machine.join(home, "config.toml")),
    ]


def vibe_places(machine: HostPaths, files: ConfigReader) -> Iterable[ConfigLocation]:
    home = machine.variable("VIBE_HOME", machine.at_home(".vibe"))
    return [
        *project(machine.in_project(".vibe", "config.toml")),
        *user(machine.join(home, "config.toml")),
    ]


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """OAuth in our words; `auth = "chatgpt"` means an account that we do not have."""
    plain = {key: value for key, value in raw.items() if key not in ("auth", "oauth")}
    oauth = raw.get("oauth")
    if isinstance(oauth, dict):
        plain["oauth"] = {_OAUTH.get(key, key): value for key, value in oauth.items()}
    if isinstance(raw.get("scopes"), list):
        plain["oauth"] = {**plain.get("oauth", {}), "scopes": raw["scopes"]}
    if raw.get("oauth_resource"):
        plain["oauth"] = {**plain.get("oauth", {}), "resource": raw["oauth_resource"]}
    if raw.get("auth") == "oauth":
        plain["auth"] = {"type": "oauth"}
    return plain


CODEX = Host(
    id="codex",
    title="Codex",
    places=codex_places,
    servers=servers_at("mcp_servers"),
    dialect="literal",
    timeout_unit="s",
    adapt=adapt,
)
GROK = Host(
    id="grok",
    title="Grok Build",
    places=grok_places,
    servers=servers_at("mcp_servers"),
    dialect="unknown",
    timeout_unit="s",
    adapt=adapt,
)
VIBE = Host(
    id="vibe",
    title="Mistral Vibe",
    places=vibe_places,
    servers=servers_at("mcp_servers"),
    dialect="unknown",
    timeout_unit="s",
)
