"""Conversion of entries with any host's field names to `NormalizedEntry`."""

from typing import Any

import msgspec

from ...client.server_entry import MCPServerEntry, read_entry
from ...errors import ConfigError
from ...suggestions import unknown_name
from ..found_server import EnvironmentReference, NormalizedEntry
from .host import items_at, names_at

__all__ = ["normalize_entry"]

_KINDS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "ws": "ws",
    "websocket": "ws",
}
_URLS = ("url", "httpUrl", "serverUrl", "uri", "baseUrl", "endpoint", "tcp")
# Largest plausible timeout; an integer in JSON may exceed the range of a float.
_LONGEST = 1e12
_EXCLUDED = ("excludeTools", "disabled_tools", "disabledTools")
_PLAIN = ("cwd", "inheritEnv", "requestIdFormat", "lazy", "era", "dialect")


def normalize_entry(
    raw: dict[str, Any], *, unit: str = "ms", url_means: str = "http"
) -> NormalizedEntry:
    """Convert an entry that uses field names known from any host program.

    Raises:
        ConfigError: The entry is invalid. The message contains none of its values, except an
            unknown `type`.
    """
    notes: list[str] = []
    raw = _flat(raw)
    fields: dict[str, Any] = {key: raw[key] for key in _PLAIN if raw.get(key) is not None}
    url_key = next((key for key in _URLS if raw.get(key)), None)
    has_command = bool(raw.get("command") or raw.get("cmd"))
    kind = _kind(raw, url_key, has_command, url_means)
    if kind == "stdio":
        _refuse(
            url_key is not None and not has_command, f"a {kind} server must not have `{url_key}`"
        )
        fields.update(_command(raw), env=_texts(raw, ("env", "environment", "envs"), notes))
    else:
        _refuse(has_command, "`command` and `url` are both given" if url_key else "missing `url`")
        _refuse(url_key is None, "missing `url`")
        fields["url"] = raw[url_key or ""]
        fields["headers"] = _texts(raw, ("headers", "http_headers"), notes)
        # These fields apply to processes; the structs for remote servers do not have them.
        for key in ("cwd", "inheritEnv"):
            fields.pop(key, None)
    if kind != "ws":
        fields.pop("dialect", None)
    timeout, startup = _timeouts(raw, unit, notes)
    enabled = _enabled(raw)
    fields.update(type=kind, timeout=timeout, enabled=enabled)
    fields.update({key: raw[key] for key in ("auth", "oauth") if raw.get(key) is not None})
    return NormalizedEntry(
        entry=_entry(fields),
        enabled=enabled,
        lookups=tuple(_lookups(raw)),
        env_file=_text(raw.get("envFile")),
        headers_helper=_text(raw.get("headersHelper") or raw.get("http_headers_helper")),
        startup_timeout=startup,
        only_tools=_only(raw),
        without_tools=tuple(name for key in _EXCLUDED for name in names_at(raw, key)),
        notes=tuple(notes),
    )


def _entry(fields: dict[str, Any]) -> MCPServerEntry:
    try:
        return read_entry(fields)
    except ConfigError as exc:
        # msgspec names the expected type and the field, never the value: its message is safe.
        raise ConfigError(str(exc.__cause__ or exc.args[0])) from None
    except (msgspec.MsgspecError, TypeError, ValueError) as exc:
        raise ConfigError(f"the entry cannot be read ({type(exc).__name__})") from None


def _flat(raw: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested settings: `transport: {...}` (Cline), `command: {path, args}` (Zed)."""
    transport = raw.get("transport")
    if isinstance(transport, dict):
        raw = {**{k: v for k, v in raw.items() if k != "transport"}, **transport}
    command = raw.get("command")
    if isinstance(command, dict):
        nested = {"command": command.get("path") or command.get("command")}
        nested.update({k: command[k] for k in ("args", "env") if k in command})
        raw = {**raw, **nested}
    return raw


def _kind(raw: dict[str, Any], url_key: str | None, has_command: bool, url_means: str) -> str:
    said = raw.get("type") or raw.get("transport") or raw.get("transportType")
    if said is not None:
        # A value that is not a string may contain secrets, so the message does not show it.
        _refuse(not isinstance(said, str), "`type` must be a string")
        kind = _KINDS.get(said)
        _refuse(kind is None, unknown_name("type", said, ("stdio", "http", "sse", "ws")))
        return kind or ""
    if url_key is None or has_command:
        # `normalize_entry` rejects an entry with both, with a more specific message.
        return "stdio" if url_key is None else url_means
    if url_key == "tcp" or str(raw[url_key]).startswith(("ws://", "wss://")):
        return "ws"
    return "http" if url_key == "httpUrl" else url_means


def _command(raw: dict[str, Any]) -> dict[str, Any]:
    command = raw.get("command") or raw.get("cmd")
    _refuse(command is None or command == [], "missing `command`")
    args = raw.get("args")
    args = [] if args is None else args
    if isinstance(command, list):  # opencode writes the whole command line as one list
        command, args = command[0], [*command[1:], *args]
    if isinstance(args, list):
        args = [_spelled(arg) for arg in args]
    return {"command": command, "args": args}


def _texts(raw: dict[str, Any], keys: tuple[str, ...], notes: list[str]) -> dict[str, Any]:
    """Return a map of strings. Numbers and booleans are converted, null values are dropped."""
    found: Any = next((raw[key] for key in keys if raw.get(key) is not None), {})
    _refuse(not isinstance(found, dict), f"`{keys[0]}` must be a map")
    texts = {}
    for name, value in found.items():
        if value is None:
            notes.append(f"{name} is null and ignored")
        else:
            texts[str(name)] = _spelled(value)
    return texts


def _spelled(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _timeouts(
    raw: dict[str, Any], unit: str, notes: list[str]
) -> tuple[float | None, float | None]:
    """Return the timeouts for requests and for start-up in milliseconds."""
    factor = 1000.0 if unit == "s" else 1.0
    said = raw.get("timeout")
    own = said if isinstance(said, dict) else {"request": said}  # a map in version 2 of opencode
    request = [
        (own.get("request"), factor),
        (raw.get("requestTimeoutMs"), 1.0),
        (raw.get("request_timeout_ms"), 1.0),
        (raw.get("tool_timeout_sec"), 1000.0),
    ]
    startup = [
        (own.get("startup"), factor),
        (raw.get("startup_timeout_sec"), 1000.0),
        (raw.get("startup_timeout_ms"), 1.0),
        (raw.get("connectionTimeout"), 1.0),
    ]
    return _milliseconds(request, notes), _milliseconds(startup, notes)


def _milliseconds(said: list[tuple[Any, float]], notes: list[str]) -> float | None:
    """Return the first value that is not None, multiplied by its factor."""
    value, factor = next((pair for pair in said if pair[0] is not None), (None, 1.0))
    if value is None:
        return None
    _refuse(
        isinstance(value, bool) or not isinstance(value, int | float), "`timeout` must be a number"
    )
    if not 0 < value <= _LONGEST:
        notes.append("a timeout out of range is ignored: the default applies")
        return None
    return float(value) * factor


def _enabled(raw: dict[str, Any]) -> bool:
    enabled, disabled = raw.get("enabled"), raw.get("disabled")
    for key, value in (("enabled", enabled), ("disabled", disabled)):
        _refuse(value is not None and not isinstance(value, bool), f"`{key}` must be true or false")
    return enabled is not False and disabled is not True


def _lookups(raw: dict[str, Any]) -> list[EnvironmentReference]:
    """Return references to environment variables by name, as used in Codex, Goose and Vibe."""
    found: list[EnvironmentReference] = []
    if token := _text(raw.get("bearer_token_env_var")):
        found.append(EnvironmentReference("headers", "Authorization", token, "Bearer {}"))
    headers = raw.get("env_http_headers")
    if isinstance(headers, dict):
        found += [
            EnvironmentReference("headers", str(key), str(name)) for key, name in headers.items()
        ]
    if key := _text(raw.get("api_key_env")):
        header = _text(raw.get("api_key_header")) or "Authorization"
        template = _text(raw.get("api_key_format")) or "Bearer {token}"
        found.append(
            EnvironmentReference("headers", header, key, template.replace("{token}", "{}"))
        )
    for name in (*items_at(raw, "env_vars"), *items_at(raw, "env_keys")):
        if isinstance(name, dict):
            name = name.get("name")
        if isinstance(name, str):
            found.append(EnvironmentReference("env", name, name))
    return found


def _only(raw: dict[str, Any]) -> tuple[str, ...] | None:
    for key in ("includeTools", "enabled_tools", "tools", "available_tools"):
        if isinstance(raw.get(key), list):
            names = tuple(names_at(raw, key))
            # Both `*` and an empty `available_tools` mean all tools.
            if "*" in names or (key == "available_tools" and not names):
                return None
            return names
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _refuse(wrong: bool, reason: str) -> None:
    if wrong:
        raise ConfigError(reason)
