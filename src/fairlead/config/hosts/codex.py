"""Codex, and hosts with the same TOML format: Grok Build, and Mistral Vibe, which uses a list."""

from functools import partial
from typing import Any

from ..files.config_reader import ConfigReader
from ..host_files.host import ConfigLocation, Host, project, servers_at, user
from ..paths import HostPaths

__all__ = ["CODEX", "GROK", "VIBE"]

_OAUTH = {"client_id": "clientId", "callback_port": "callbackPort"}


def _places(name: str, machine: HostPaths, files: ConfigReader) -> list[ConfigLocation]:
    home = machine.variable(f"{name.upper()}_HOME", machine.at_home(f".{name}"))
    return [
        *project(machine.in_project(f".{name}", "config.toml")),
        *user(machine.join(home, "config.toml")),
    ]


def _codex_places(machine: HostPaths, files: ConfigReader) -> list[ConfigLocation]:
    system = machine.of_system(linux="/etc/codex", win32=r"C:\ProgramData\OpenAI\Codex")
    return [
        ConfigLocation(machine.join(system, "managed_config.toml"), "managed"),
        *_places("codex", machine, files),
        ConfigLocation(machine.join(system, "config.toml"), "managed"),
    ]


def adapt(raw: dict[str, Any]) -> dict[str, Any]:
    """Convert OAuth settings.

    `auth = "chatgpt"` is dropped, because it means the host's own account.
    """
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


_host = partial(Host, servers=servers_at("mcp_servers"), timeout_unit="s")

CODEX = _host(id="codex", title="Codex", places=_codex_places, dialect="literal", adapt=adapt)
GROK = _host(id="grok", title="Grok Build", places=partial(_places, "grok"), adapt=adapt)
VIBE = _host(id="vibe", title="Mistral Vibe", places=partial(_places, "vibe"))
