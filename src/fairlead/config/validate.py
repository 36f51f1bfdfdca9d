"""Validation of entries and server names."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..client.server_entry import MCPServerEntry, read_entry
from ..errors import ConfigError
from ..suggestions import unknown_name

__all__ = ["is_server_name", "validate_server_config"]

TYPES = ("stdio", "http", "sse", "ws")
_ALSO = {"streamableHttp", "streamable-http", "streamable_http", "websocket"}
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def is_server_name(name: str) -> bool:
    """Return True if a name has 1 to 100 letters, digits, `_`, `-`, `.` or `:`."""
    return _NAME.fullmatch(name) is not None


def validate_server_config(name: str, entry: MCPServerEntry | Mapping[str, Any]) -> list[str]:
    """Return the reasons why an entry or its name is invalid; empty if both are valid."""
    problems: list[str] = []
    if not is_server_name(name):
        problems.append("a name must have 1 to 100 letters, digits, `_`, `-`, `.` or `:`")
    fields = _fields(entry)
    if fields is None:
        problems.append("the entry must be a map")
    else:
        problems += _missing(fields) or _mistyped(fields)
    return [f'Server "{name}": {problem}' for problem in problems]


def _fields(entry: MCPServerEntry | Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(entry, msgspec.Struct):
        return dict(msgspec.to_builtins(entry))
    return dict(entry) if isinstance(entry, Mapping) else None


def _missing(fields: dict[str, Any]) -> list[str]:
    command, url = fields.get("command"), fields.get("url") or fields.get("endpoint")
    kind = fields.get("type") or fields.get("transport")
    problems = []
    if kind is not None and not (isinstance(kind, str) and kind in {*TYPES, *_ALSO}):
        problems.append(unknown_name("type", str(kind), TYPES))
    if command and url:
        problems.append('"command" and "url" are both given: remove one of them')
    elif kind is None and not command and not url:
        problems.append('"command" (stdio) or "url" (http, sse, ws) is required')
    elif kind == "stdio" and not command:
        problems.append('a stdio server requires "command"')
    elif kind in ("http", "sse", "ws", *_ALSO) and not url:
        problems.append(f'a {kind} server requires "url"')
    return problems


def _mistyped(fields: dict[str, Any]) -> list[str]:
    plain = dict(fields)
    if "url" in plain and not (plain.get("type") or plain.get("transport")):
        plain["type"] = "http"
    problems = []
    try:
        read_entry({key: value for key, value in plain.items() if value is not None})
    except ConfigError as exc:
        problems.append(str(exc.__cause__ or exc.args[0]))
    timeout = plain.get("timeout")
    if isinstance(timeout, int | float) and timeout <= 0:
        problems.append('"timeout" must be greater than zero (milliseconds)')
    return problems
