"""Descriptions of configuration entries: what they run or connect to, and what they need."""

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ...client.server_entry import MCPStdioServerConfig
from ...config.found_server import FoundServer
from ...config.variables.variable_syntax import DIALECTS, looks_like_variables
from ...redaction.redact_text import REDACTED, redact

__all__ = ["Need", "describe", "needs_of", "source_of"]

Need = dict[str, Any]  # keys: kind, name, whether it is set, and the field in which it is used


def describe(found: FoundServer) -> dict[str, Any]:
    """Describe an entry as labelled values in display order.

    Literal values in `env`, `headers` and logins are hidden, because they may be secrets.
    """
    entry = found.entry
    facts: dict[str, Any]
    if isinstance(entry, MCPStdioServerConfig):
        facts = {
            "runs": redact(shlex.join([entry.command, *entry.args])),
            "in": entry.cwd,
            "env": _values(entry.env),
            "envFile": found.env_file,
            "inheritEnv": None if entry.inherit_env == "all" else entry.inherit_env,
        }
    else:
        facts = {
            "reaches": redact(entry.url),
            "type": entry.type,
            "headers": _values(entry.headers),
            "headersHelper": found.headers_helper,
        }
    held = {f"{one.field}.{one.key}": f"${{{one.variable}}}" for one in found.lookups}
    facts |= {
        "fromEnvironment": held,
        "timeout": entry.timeout,
        "lazy": entry.lazy,
        "onlyTools": None if found.only_tools is None else list(found.only_tools),
        "withoutTools": list(found.without_tools),
        "auth": _hidden(entry.auth),
        "oauth": _hidden(entry.oauth),
    }
    return {key: value for key, value in facts.items() if value not in (None, {}, [], False)}


def source_of(title: str, level: str) -> str:
    """Return a host program's title, followed by the configuration level unless the title contains
    it.
    """
    return title if title.endswith(f"({level})") else f"{title} ({level})"


def needs_of(found: FoundServer) -> list[Need]:
    """Return the variables, commands, files and inputs that an entry needs."""
    known = os.environ
    needs: dict[tuple[str, str], Need] = {}
    named = [
        (place, *one) for place, text in _texts(found) for one in _named(found, place, text, known)
    ]
    named += [(f"{one.field}.{one.key}", "variable", one.variable, None) for one in found.lookups]
    for place, kind, name, default in named:
        is_set = name in known if kind == "variable" else None
        need = {"kind": kind, "name": name, "in": place, "set": is_set, "default": default}
        needs.setdefault((kind, name), {k: v for k, v in need.items() if v is not None})
    for input in found.needs_input:
        default = None if input.password else input.default
        about = input.description
        need = {"kind": "input", "name": input.id, "about": about, "default": default}
        needs[("input", input.id)] = {k: v for k, v in need.items() if v}
    return list(needs.values())


def _named(
    found: FoundServer, place: str, text: str, env: Mapping[str, str]
) -> Iterator[tuple[str, str, str | None]]:
    """Yield the kind, name and default of each reference in a string."""
    rules = DIALECTS[found.dialect]
    field = place.partition(".")[0]
    if rules.runs_commands and field in ("env", "headers"):
        if text.startswith("!"):
            yield "command", text[1:], None
            return
        if text in env and text:
            yield "variable", text, None
            return
    if rules.pattern is None or (rules.fields is not None and field not in rules.fields):
        return
    for match in rules.pattern.finditer(text):
        groups = match.groupdict()
        kind, what = groups.get("kind"), groups.get("what")
        if kind in ("env", "secrets", "inputs") and what:
            yield "variable", what, None
        elif kind == "file" and what:
            yield "file", what, None
        elif kind is None and (name := groups.get("name") or groups.get("bare")):
            yield "variable", name, groups.get("default")


def _texts(found: FoundServer) -> Iterator[tuple[str, str]]:
    """Yield every string in an entry that may contain variables, with its field."""
    entry = found.entry
    if isinstance(entry, MCPStdioServerConfig):
        yield "command", entry.command
        yield from (("args", arg) for arg in entry.args)
        yield from ((f"env.{key}", value) for key, value in entry.env.items())
        yield "cwd", entry.cwd or ""
    else:
        yield "url", entry.url
        yield from ((f"headers.{key}", value) for key, value in entry.headers.items())


def _values(values: Mapping[str, str]) -> dict[str, str]:
    return {name: _value(value) for name, value in values.items()}


def _value(value: str) -> str:
    """Return references unchanged and hide literal values, which may be secrets."""
    return redact(value) if value.startswith("!") or looks_like_variables(value) else REDACTED


def _hidden(value: Any) -> Any:
    if not isinstance(value, dict):
        return redact(value) if isinstance(value, str) else value
    return {key: _value(item) if isinstance(item, str) else item for key, item in value.items()}
