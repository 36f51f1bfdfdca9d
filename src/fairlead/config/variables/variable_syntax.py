"""Variable syntax of each host program, and how it treats unset variables."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from ...errors import ConfigError

__all__ = ["DIALECTS", "MissingInput", "VariableScope", "looks_like_variables", "substitute"]

Unset: TypeAlias = Literal["literal", "empty", "error"]


class MissingInput(ConfigError):
    """An entry refers to an input without a value; `input_id` names the input."""

    def __init__(
        self,
        input_id: str,
        message: str = "",
        *,
        path: str | None = None,
        line: int | None = None,
    ) -> None:
        super().__init__(message or f"missing input {input_id!r}", path=path, line=line)
        self.input_id = input_id


class VariableScope(Struct, kw_only=True):
    """Values for variables; records which variables a substitution used and which were unset."""

    env: Mapping[str, str]
    home: str = ""
    workspace: str = ""
    platform: str = "linux"
    inputs: Mapping[str, str] = {}
    # returns the text of a file relative to the configuration file
    read_file: Callable[[str], str] | None = None
    missing: dict[str, None] = field(default_factory=dict)  # unset variables, in order
    # Kind and name of each substituted value: variable, default, input, file.
    used: dict[tuple[str, str], None] = field(default_factory=dict)


class VariableSyntax(Struct, frozen=True, kw_only=True):
    """The variable syntax of a host program."""

    pattern: re.Pattern[str] | None
    unset: Unset = "literal"
    # True if a value in `env` or `headers` may be `!command` or the bare name of a variable.
    runs_commands: bool = False
    # The only fields in which variables are replaced; None for all fields.
    fields: frozenset[str] | None = None


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# A default may contain one level of braces: another variable, or a JSON object. Shell expansions
# such as `${name%pattern}` do not match, so that the shell can expand them.
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
    # Gemini expands `env` and `headers` a second time.
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
    """Return True if a value probably contains variables."""
    return _LOOKS.search(str(raw)) is not None


def substitute(text: str, dialect: str, scope: VariableScope, field: str = "") -> str:
    """Replace the variables in a text in one pass; substituted values are not expanded again.

    Raises:
        MissingInput: An input has no value.
        ConfigError: The host program requires an unset variable, a variable has a value only inside
            an editor, or a file cannot be read.
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
    """Return the value of a prefixed variable, such as `${env:X}`, `${input:x}` or `{file:x}`."""
    match kind, what:
        case (("env" | "secrets" | "inputs"), str(name)):
            value = scope.env.get(name)
            if value is None:
                return _unset(name, match[0], unset, scope)
            scope.used["variable", name] = None
            return value
        case "input", str(id):
            if id not in scope.inputs:
                raise MissingInput(id)
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
            raise ConfigError(f"{match[0]} has a value only inside the editor")
    return match[0]


def _unset(name: str, literal: str, unset: Unset, scope: VariableScope) -> str:
    scope.missing[name] = None
    if unset == "error":
        raise ConfigError(f"the environment variable {name} is not set")
    return "" if unset == "empty" else literal


def _separator(scope: VariableScope) -> str:
    return "\\" if scope.platform == "win32" else "/"
