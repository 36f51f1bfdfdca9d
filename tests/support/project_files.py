"""Configuration files of each host program in a project, in their native formats."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.hosts import HOSTS, Host
from fairlead.config.paths import HostPaths

__all__ = ["in_json", "in_toml", "in_yaml", "project_files", "put", "servers_in", "written"]

_KEYS = {
    "vscode": "servers",
    "vscode-insiders": "servers",
    "zed": "context_servers",
    "opencode": "mcp",
    "kilo": "mcp",
    "crush": "mcp",
    "codex": "mcp_servers",
    "grok": "mcp_servers",
    "vibe": "mcp_servers",
}


def project_files() -> Iterator[tuple[Host, str]]:
    """Yield every host that reads project files, with each of its paths in the project."""
    machine = HostPaths(platform="linux", home="/home", cwd="/project", env={}, root="/nowhere")
    for host in HOSTS:
        paths = [p.path for p in host.places(machine, _Folders()) if p.level == "project"]
        for path in dict.fromkeys(paths):
            yield host, path.removeprefix("/project/")


class _Folders(ConfigReader):
    """A config reader that claims the same two files in every folder."""

    def names_in(self, folder: str) -> list[str]:
        return ["one.yaml", "two.json"]


def servers_in(host: Host, servers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration document of a host with these servers."""
    if host.id in ("continue", "vibe"):
        listed = [{"name": name, **entry} for name, entry in servers.items()]
        return {_KEYS.get(host.id, "mcpServers"): listed}
    return {_KEYS.get(host.id, "mcpServers"): dict(servers)}


def written(path: str, document: Mapping[str, Any]) -> str:
    """Return a document in the format of the file name's extension."""
    if path.endswith(".toml"):
        return "".join(f"{_quoted(key)} = {in_toml(value)}\n" for key, value in document.items())
    return in_yaml(document) if path.endswith((".yaml", ".yml")) else in_json(document)


def put(root: Path, name: str, text: str | bytes) -> None:
    """Write a file below a folder."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)


def in_json(value: Any) -> str:
    return json.dumps(value, default=str, skipkeys=True, indent=1)


def in_yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, allow_unicode=True, sort_keys=False))


def in_toml(value: Any) -> str:
    """Return a value as TOML; values that TOML cannot represent become strings."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(str(k))} = {in_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int | float):
        return repr(value)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return _quoted(str(value))


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" if ord(c) < 0xD800 else "x" for c in text) + '"'
