"""How each program writes variables into its files, and what it does about one that is not set."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from ...errors import ConfigError

__all__ = ["DIALECTS", "VariableScope", "VariableSyntax", "looks_like_variables", "substitute"]

Unset: TypeAlias = Literal["literal", "empty", "error"]


class VariableScope(Struct, kw_only=True):
    """What variables may mean, and what was asked for in vain."""

    env: Mapping[str, str]
    home: str = ""
    workspace: str = ""
    platform: str = "linux"
    inputs: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    read_file: Callable[[str], str] | None = None  # the text of a file beside the configuration
    missing: dict[str, None] = field(default_factory=dict)  # in the order they were met
    # Kind and name of what was put in: variable, default, input, secret, file.
    used: dict[tuple[str, str], None] = field(default_factory=dict)


class VariableSyntax(Struct, frozen=True, kw_only=True):
    """One way to write variables."""

    pattern: re.Pattern[str] | None
    unset: Unset = "literal"
    # `!cmd` and the bare name of a variable as a whole value of `env` and `headers`
    runs_commands: bool = False
    # Only there are variables written at all; None: everywhere.
    fields: frozenset[str] | None = None


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# A default may hold one level of braces: another variable, or a piece of JSON. Shell forms like
# `${name%pattern}` match nothing here: they belong to a script and are left to it.
_BRACED = rf"\$\{{(?P<name>{_NAME})(?::-(?P<default>(?:[^{{}}]++|\{{[^{{}}]*+\}})*+))?\}}"
_PREFIXED = r"\$\{(?P<kind>[A-Za-z]+)(?::(?P<what>[^{}]*+))?\}|\$\{(?P<slash>/)\}"

DIALECTS: dict[str, VariableSyntax] = {
    "literal": VariableSyntax(pattern=None),
    "unknown": VariableSyntax(pattern=None),
    "fairlead": VariableSyntax(pattern=re.compile(_BRACED), runs_commands=True),
    "omp": VariableSyntax(pattern=re.compile(_BRACED), runs_commands=True),
    "claude": VariableSyntax(pattern=re.compile(_BRACED)),
    "mcporter": VariableSyntax(
        pattern=re.compile(rf"{_BRACED}|\$env:(?P<bare>{_NAME})"), unset="error"
    ),
    "vscode": VariableSyntax(pattern=re.compile(_PREFIXED), unset="empty"),
    "cursor": VariableSyntax(pattern=re.compile(_PREFIXED), unset="empty"),
    "windsurf": VariableSyntax(pattern=re.compile(_PREFIXED), unset="empty"),
    "roo": VariableSyntax(pattern=re.compile(_PREFIXED)),
    "gemini": VariableSyntax(pattern=re.compile(rf"{_BRACED}|\$(?P<bare>{_NAME})")),
    # Gemini's second pass, over `env` and `headers`
    "gemini-again": VariableSyntax(
        pattern=re.compile(rf"{_BRACED}|\$(?P<bare>{_NAME})|%(?P<percent>{_NAME})%"), unset="empty"
    ),
    "opencode": VariableSyntax(
        pattern=re.compile(r"\{(?P<kind>env|file):(?P<what>[^{}]++)\}"), unset="empty"
    ),
    "continue": VariableSyntax(
        pattern=re.compile(r"\$\{\{\s*+(?P<kind>secrets|inputs)\.(?P<what>[\w./-]++)\s*+\}\}")
    ),
    "goose": VariableSyntax(
        pattern=re.compile(rf"\$\{{\s*+(?P<name>{_NAME})\s*+\}}|\$(?P<bare>{_NAME})"),
        fields=frozenset({"url", "headers"}),
    ),
}

_LOOKS = re.compile(r"\$\{[^}]+\}|\$(?:env:)?[A-Z_][A-Z0-9_]+|\{env:[^}]+\}")


def looks_like_variables(raw: Any) -> bool:
    """Whether a value is probably meant to be replaced by something."""
    return _LOOKS.search(str(raw)) is not None


def substitute(text: str, dialect: str, scope: VariableScope, field: str = "") -> str:
    """The text with its variables replaced, in one pass: what a value holds is never expanded.

    Raises:
        ConfigError: where the program that owns the file would refuse it, too.
    """
    rules = DIALECTS[dialect]
    if rules.pattern is None or (rules.fields is not None and field not in rules.fields):
        return text
    return rules.pattern.sub(lambda match: _replace(match, dialect, rules.unset, scope), text)


def _replace(match: re.Match[str], dialect: str, unset: Unset, scope: VariableScope) -> str:
    groups = match.groupdict()
    if groups.get("slash"):
        return _separator(scope)
    if kind := groups.get("kind"):
        return _special(match, kind, groups.get("what"), unset, scope)
    if groups.get("percent") and scope.platform != "win32":
        return match[0]
    name = groups.get("name") or groups.get("bare") or groups.get("percent") or ""
    default = groups.get("default")
    value = scope.env.get(name)
    if value is not None and not (value == "" and default is not None):
        scope.used["variable", name] = None
        return value
    if default is not None:
        scope.used["default", name] = None
        return substitute(default, dialect, scope)
    return _unset(name, match[0], unset, scope)


def _special(
    match: re.Match[str], kind: str, what: str | None, unset: Unset, scope: VariableScope
) -> str:
    """Forms that say what they mean: `${env:X}`, `${input:x}`, `{file:x}`, `${{ secrets.X }}`."""
    match kind, what:
        case "env", str(name):
            value = scope.env.get(name)
            if value is not None:
                scope.used["variable", name] = None
            return _unset(name, match[0], unset, scope) if value is None else value
        case (("secrets" | "inputs"), str(name)):
            value = scope.secrets.get(name, scope.env.get(name))
            if value is not None:
                scope.used["secret" if name in scope.secrets else "variable", name] = None
            return _unset(name, match[0], unset, scope) if value is None else value
        case "input", str(id):
            if id not in scope.inputs:
                raise ConfigError(f"the input {id!r} has to be given first")
            scope.used["input", id] = None
            return scope.inputs[id]
        case "file", str(path):
            if scope.read_file is None:
                return match[0]
            scope.used["file", path] = None
            return scope.read_file(path)
        case "userHome", None:
            return scope.home
        case "workspaceFolder", _:
            return scope.workspace
        case "workspaceFolderBasename", None:
            return re.split(r"[\\/]", scope.workspace.rstrip("\\/"))[-1]
        case "pathSeparator", None:
            return _separator(scope)
        case (("config" | "command"), str()):
            raise ConfigError(f"{match[0]} can only be known inside the editor")
    return match[0]


def _unset(name: str, literal: str, unset: Unset, scope: VariableScope) -> str:
    scope.missing[name] = None
    if unset == "error":
        raise ConfigError(f"the environment variable {name} is not set")
    return "" if unset == "empty" else literal


def _separator(scope: VariableScope) -> str:
    return "\\" if scope.platform == "win32" else "/"
