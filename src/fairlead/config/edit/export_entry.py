"""An entry as another program wants it, to be pasted into its file by a person."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...errors import ConfigError
from ...observe.safe_display import json_text

__all__ = ["EXPORTS", "export", "export_all"]


def export(entry: MCPServerEntry, host: str, *, name: str = "server") -> str:
    """The text that adds this server to a program's file. Variables are spelled its way.

    Raises:
        ConfigError: if the program is not known, or has no word for this kind of server.
    """
    writer = EXPORTS.get(host)
    if writer is None:
        raise ConfigError(f"unknown program {host!r}; known are {', '.join(sorted(EXPORTS))}")
    return writer(name, entry)


def export_all(entries: Mapping[str, MCPServerEntry], host: str) -> str:
    """The same for several servers, as one text. Raises as `export` does."""
    texts = [export(entry, host, name=name) for name, entry in entries.items()]
    if host == "codex":
        return "\n".join(texts)
    if host == "goose":
        return "".join([*texts[:1], *(text.partition("\n")[2] for text in texts[1:])])
    merged: dict[str, Any] = {}
    for text in texts:
        for key, servers in json.loads(text).items():
            merged.setdefault(key, {}).update(servers)
    return json_text(merged, indent=2) + "\n"


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^{}]*)?\}")


def _plain(entry: MCPServerEntry, template: str = "${{{}}}") -> dict[str, Any]:
    """The usual fields, with `${VAR}` in another spelling."""

    def text(value: str) -> str:
        if template == "${{{}}}":
            return value  # with its default
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


def _json(key: str, name: str, fields: dict[str, Any]) -> str:
    return json_text({key: {name: fields}}, indent=2) + "\n"


def _no_websocket(entry: MCPServerEntry, program: str) -> None:
    if entry.type == "ws":
        raise ConfigError(f"{program} has no servers over WebSocket")


def _claude(name: str, entry: MCPServerEntry) -> str:
    return _json("mcpServers", name, {"type": entry.type, **_plain(entry)})


def _claude_desktop(name: str, entry: MCPServerEntry) -> str:
    if not isinstance(entry, MCPStdioServerConfig):
        raise ConfigError("Claude Desktop reaches remote servers as connectors, not by its file")
    return _json("mcpServers", name, _plain(entry))


def _cursor(name: str, entry: MCPServerEntry) -> str:
    _no_websocket(entry, "Cursor")
    return _json("mcpServers", name, _plain(entry, "${{env:{}}}"))


def _vscode(name: str, entry: MCPServerEntry) -> str:
    _no_websocket(entry, "VS Code")
    return _json("servers", name, {"type": entry.type, **_plain(entry, "${{env:{}}}")})


def _windsurf(name: str, entry: MCPServerEntry) -> str:
    _no_websocket(entry, "Windsurf")
    fields = _plain(entry, "${{env:{}}}")
    if "url" in fields:
        fields = {"serverUrl": fields.pop("url"), **fields}
    return _json("mcpServers", name, fields)


def _gemini(name: str, entry: MCPServerEntry) -> str:
    fields = _plain(entry)
    if entry.type == "ws":
        fields = {"tcp": fields.pop("url"), **fields}
    elif entry.type != "stdio":
        fields["type"] = entry.type
    if entry.timeout is not None:
        fields["timeout"] = _number(entry.timeout)
    return _json("mcpServers", name, fields)


def _zed(name: str, entry: MCPServerEntry) -> str:
    _no_websocket(entry, "Zed")
    fields = _plain(entry)
    fields.pop("cwd", None)
    if entry.timeout is not None:
        fields["timeout"] = _number(entry.timeout / 1000)
    return _json("context_servers", name, fields)


def _opencode(name: str, entry: MCPServerEntry) -> str:
    _no_websocket(entry, "opencode")
    fields = _plain(entry, "{{env:{}}}")
    if isinstance(entry, MCPStdioServerConfig):
        shaped = {"type": "local", "command": [fields["command"], *fields.get("args", [])]}
        if "env" in fields:
            shaped["environment"] = fields["env"]
        if "cwd" in fields:
            shaped["cwd"] = fields["cwd"]
    else:
        shaped = {"type": "remote", **fields}
    return _json("mcp", name, {**shaped, "enabled": True})


def _codex(name: str, entry: MCPServerEntry) -> str:
    """TOML without variables: a value that is one variable becomes the name of it."""
    _no_websocket(entry, "Codex")
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
    _no_websocket(entry, "Goose")
    if entry.type == "sse":
        raise ConfigError("Goose no longer reaches servers over HTTP+SSE")
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
    # JSON is YAML, so strings need no rules of their own.
    lines = [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in shaped.items()]
    return "\n".join(["extensions:", f"  {json.dumps(name)}:", *lines]) + "\n"


def _split(values: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Values that stand there, and those that are the value of one variable."""
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
    # JSON's escapes are TOML's, but for the one character TOML wants escaped and JSON does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


EXPORTS: dict[str, Callable[[str, MCPServerEntry], str]] = {
    "claude-code": _claude,
    "claude": _claude,
    "claude-desktop": _claude_desktop,
    "codex": _codex,
    "cursor": _cursor,
    "gemini": _gemini,
    "goose": _goose,
    "opencode": _opencode,
    "vscode": _vscode,
    "windsurf": _windsurf,
    "zed": _zed,
}
