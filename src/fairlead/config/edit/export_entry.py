"""Entries in the formats of other programs, which the user can paste into their files."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...errors import ConfigError
from ...observe.safe_display import json_text
from ...suggestions import unknown_name

__all__ = ["EXPORTS", "export", "export_all"]


def export(entry: MCPServerEntry, host: str, *, name: str = "server") -> str:
    """Return the text that adds a server to a program's file, with variables in that program's
    syntax.

    Raises:
        ConfigError: The program is unknown or does not support this kind of server.
    """
    return export_all({name: entry}, host)


def export_all(entries: Mapping[str, MCPServerEntry], host: str) -> str:
    """Return the text that adds several servers to a program's file.

    Raises:
        ConfigError: The program is unknown or does not support one of the servers.
    """
    if host not in EXPORTS:
        raise ConfigError(unknown_name("program", host, EXPORTS))
    for entry in entries.values():
        if entry.type == "ws" and host in _NO_WEBSOCKET:
            raise ConfigError(f"{_NO_WEBSOCKET[host]} does not support WebSocket servers")
    if host == "codex":
        return "\n".join(_codex(name, entry) for name, entry in entries.items())
    if host == "goose":
        return "".join(["extensions:\n", *(_goose(name, entry) for name, entry in entries.items())])
    key, fields = _JSON[host]
    return (
        json_text({key: {name: fields(entry) for name, entry in entries.items()}}, indent=2) + "\n"
    )


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^{}]*)?\}")
_SAME = "${{{}}}"
_ENV = "${{env:{}}}"  # variable syntax of Cursor, VS Code and Windsurf


def _plain(entry: MCPServerEntry, template: str = _SAME) -> dict[str, Any]:
    """Return the common fields of an entry, with `${VAR}` in the syntax of `template`."""

    def text(value: str) -> str:
        if template == _SAME:
            return value  # The syntax is the same, so variables keep their default values.
        return _VARIABLE.sub(lambda match: template.format(match[1]), value)

    if isinstance(entry, MCPStdioServerConfig):
        fields: dict[str, Any] = {"command": text(entry.command)}
        fields["args"] = [text(arg) for arg in entry.args]
        fields["env"] = {key: text(value) for key, value in entry.env.items()}
        fields["cwd"] = text(entry.cwd) if entry.cwd else None
    else:
        fields = {"url": text(entry.url)}
        fields["headers"] = {key: text(value) for key, value in entry.headers.items()}
    return {key: value for key, value in fields.items() if value or key in ("command", "url")}


def _typed(entry: MCPServerEntry, template: str = _SAME) -> dict[str, Any]:
    return {"type": entry.type, **_plain(entry, template)}


def _claude_desktop(entry: MCPServerEntry) -> dict[str, Any]:
    if not isinstance(entry, MCPStdioServerConfig):
        raise ConfigError("Claude Desktop configures remote servers as connectors, not in its file")
    return _plain(entry)


def _windsurf(entry: MCPServerEntry) -> dict[str, Any]:
    fields = _plain(entry, _ENV)
    return {"serverUrl": fields.pop("url"), **fields} if "url" in fields else fields


def _gemini(entry: MCPServerEntry) -> dict[str, Any]:
    fields = _plain(entry)
    if entry.type == "ws":
        fields = {"tcp": fields.pop("url"), **fields}
    elif entry.type != "stdio":
        fields["type"] = entry.type
    if entry.timeout is not None:
        fields["timeout"] = _number(entry.timeout)
    return fields


def _zed(entry: MCPServerEntry) -> dict[str, Any]:
    fields = _plain(entry)
    fields.pop("cwd", None)
    if entry.timeout is not None:
        fields["timeout"] = _number(entry.timeout / 1000)
    return fields


def _opencode(entry: MCPServerEntry) -> dict[str, Any]:
    fields = _plain(entry, "{{env:{}}}")
    if not isinstance(entry, MCPStdioServerConfig):
        return {"type": "remote", **fields, "enabled": True}
    command = [fields.pop("command"), *fields.pop("args", [])]
    if "env" in fields:
        fields = {"environment": fields.pop("env"), **fields}
    return {"type": "local", "command": command, **fields, "enabled": True}


def _codex(name: str, entry: MCPServerEntry) -> str:
    """Return an entry as TOML. Codex has no variable syntax, only fields that name a variable."""
    fields = _plain(entry)
    lines = [f"[mcp_servers.{_toml_key(name)}]"]
    tables: list[str] = []
    if isinstance(entry, MCPStdioServerConfig):
        lines += [
            f"{key} = {_toml(fields[key])}" for key in ("command", "args", "cwd") if key in fields
        ]
        own, named = _split(fields.get("env", {}))
        same = [key for key, variable in named.items() if key == variable]
        if same:
            lines.append(f"env_vars = {_toml(same)}")
        own.update({key: f"${{{var}}}" for key, var in named.items() if key not in same})
        if own:
            tables += [f"env = {_toml(own)}"]
    else:
        lines.append(f"url = {_toml(fields['url'])}")
        headers = dict(fields.get("headers", {}))
        bearer = re.fullmatch(r"Bearer \$\{(\w+)\}", headers.get("Authorization", ""))
        if bearer:
            lines.append(f"bearer_token_env_var = {_toml(bearer[1])}")
            del headers["Authorization"]
        own, named = _split(headers)
        tables += [f"http_headers = {_toml(own)}"] if own else []
        tables += [f"env_http_headers = {_toml(named)}"] if named else []
    if entry.timeout is not None:
        lines.append(f"tool_timeout_sec = {_number(entry.timeout / 1000)}")
    return "\n".join([*lines, *tables]) + "\n"


def _goose(name: str, entry: MCPServerEntry) -> str:
    if entry.type == "sse":
        raise ConfigError("Goose no longer supports HTTP+SSE servers")
    fields = _plain(entry)
    shaped: dict[str, Any] = {"name": name, "enabled": True}
    if isinstance(entry, MCPStdioServerConfig):
        own, named = _split(fields.get("env", {}))
        shaped.update(type="stdio", cmd=fields["command"], args=fields.get("args", []), envs=own)
        shaped["env_keys"] = list(named)
    else:
        used = _VARIABLE.findall(json.dumps(fields))
        shaped.update(type="streamable_http", uri=fields["url"], headers=fields.get("headers", {}))
        shaped["env_keys"] = list(dict.fromkeys(used))
    if entry.timeout is not None:
        shaped["timeout"] = _number(entry.timeout / 1000)
    # YAML is a superset of JSON, so JSON strings need no further quoting.
    lines = [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in shaped.items()]
    return "\n".join([f"  {json.dumps(name)}:", *lines]) + "\n"


def _split(values: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split values into literal values and values that consist of one variable."""
    own, named = {}, {}
    for key, value in values.items():
        whole = re.fullmatch(r"\$\{(\w+)\}", value)
        if whole:
            named[key] = whole[1]
        else:
            own[key] = value
    return own, named


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    # TOML has the same escapes as JSON, and also requires an escape for U+007F.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


# For each program: the key under which it lists servers, and the function that writes an entry.
_JSON: dict[str, tuple[str, Callable[[MCPServerEntry], dict[str, Any]]]] = {
    "claude-code": ("mcpServers", _typed),
    "claude": ("mcpServers", _typed),
    "claude-desktop": ("mcpServers", _claude_desktop),
    "cursor": ("mcpServers", partial(_plain, template=_ENV)),
    "gemini": ("mcpServers", _gemini),
    "opencode": ("mcp", _opencode),
    "vscode": ("servers", partial(_typed, template=_ENV)),
    "windsurf": ("mcpServers", _windsurf),
    "zed": ("context_servers", _zed),
}
EXPORTS = frozenset((*_JSON, "codex", "goose"))
_NO_WEBSOCKET = {
    "codex": "Codex",
    "cursor": "Cursor",
    "goose": "Goose",
    "opencode": "opencode",
    "vscode": "VS Code",
    "windsurf": "Windsurf",
    "zed": "Zed",
}
