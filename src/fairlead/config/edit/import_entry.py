"""Conversion of another program's entry to Fairlead's format."""

import os
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig, read_entry
from ...errors import ConfigError
from ..found_server import FoundServer
from ..variables.variable_syntax import DIALECTS
from .config_file import shortest_form

__all__ = ["ImportedEntry", "import_entry"]


class ImportedEntry(Struct, frozen=True):
    """An entry in Fairlead's format, and notes about differences in meaning."""

    fields: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def entry(self) -> MCPServerEntry:
        return read_entry(self.fields)

    # The fields may contain secrets, and a repr may be written to logs.
    def __repr__(self) -> str:
        return f"<Adopted {len(self.fields)} fields, {len(self.notes)} notes>"


def import_entry(
    found: FoundServer, env: Mapping[str, str] | None = None, *, anchored: bool = True
) -> ImportedEntry:
    """Return an entry in Fairlead's format. Variables are converted, not resolved.

    Paths in a project's entry are made absolute (`anchored`), because the user's file applies in
    every folder.

    Raises:
        ConfigError: The entry uses a feature that Fairlead's format cannot express.
    """
    if found.dialect == "fairlead":
        adopted = ImportedEntry(dict(found.raw))
    else:
        adopted = _EntryImporter(found, os.environ if env is None else env).adopted()
    if anchored and found.in_folder:
        return _anchor(found, adopted)
    return adopted


def _anchor(found: FoundServer, adopted: ImportedEntry) -> ImportedEntry:
    fields, notes = dict(adopted.fields), adopted.notes
    if isinstance(found.entry, MCPStdioServerConfig):
        cwd = fields.get("cwd")
        fields["cwd"] = _joined(found.workspace, cwd) if isinstance(cwd, str) else found.workspace
        command = fields.get("command")
        if isinstance(command, str) and os.path.dirname(command):
            fields["command"] = _joined(fields["cwd"], command)
    if isinstance(file := fields.get("envFile"), str):
        fields["envFile"] = _joined(found.workspace, file)
        if found.level == "project":
            notes = (
                *notes,
                f"it reads variables from {fields['envFile']}, which the project can change",
            )
    return ImportedEntry(fields, notes)


def _joined(folder: str, path: str) -> str:
    """Return a path joined to a folder; absolute paths and paths that start with a variable stay
    unchanged.
    """
    if os.path.isabs(path) or path.startswith(("~", "$")):
        return path
    return os.path.normpath(os.path.join(folder, path))


class _EntryImporter:
    """Converts an entry to Fairlead's format."""

    def __init__(self, found: FoundServer, env: Mapping[str, str]) -> None:
        self._found = found
        self._rules = DIALECTS[found.dialect]
        self._env = env
        self._notes: dict[str, None] = {}

    def adopted(self) -> ImportedEntry:
        found = self._found
        fields = {
            key: self._value(key, key, value) for key, value in shortest_form(found.entry).items()
        }
        for lookup in found.lookups:
            value = lookup.template.replace("{}", f"${{{lookup.variable}}}")
            fields[lookup.field] = {lookup.key: value, **fields.get(lookup.field, {})}
        more: dict[str, Any] = {
            "envFile": found.env_file,
            "headersHelper": found.headers_helper,
            "startup_timeout_ms": found.startup_timeout,
            "includeTools": None if found.only_tools is None else list(found.only_tools),
            "excludeTools": list(found.without_tools) or None,
        }
        fields.update({key: value for key, value in more.items() if value is not None})
        return ImportedEntry(fields, tuple(self._notes))

    def _value(self, field: str, place: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(field, place, value)
        if isinstance(value, dict):
            return {k: self._value(field, f"{place}.{k}", v) for k, v in value.items()}
        return [self._value(field, place, v) for v in value] if isinstance(value, list) else value

    def _text(self, field: str, place: str, text: str) -> str:
        rules = self._rules
        # In Fairlead's files `!` starts a command; the other program sends it as text.
        if field in ("env", "headers") and not rules.runs_commands:
            if text.startswith("!"):
                raise ConfigError(
                    f"{place} begins with `!`, which starts a command in Fairlead's files"
                )
            if text in self._env:
                self._notes[
                    f"{place} is the name of a set variable; Fairlead uses the variable's value"
                ] = None
        if rules.pattern is None or (rules.fields is not None and field not in rules.fields):
            if _OURS.search(text):
                self._notes[f"{place} looks like a variable; Fairlead replaces it"] = None
            return text
        return rules.pattern.sub(lambda match: self._variable(place, match), text)

    def _variable(self, place: str, match: re.Match[str]) -> str:
        groups = match.groupdict()
        if groups.get("slash"):
            return "/"
        kind, what = groups.get("kind"), groups.get("what")
        if kind is None:
            name = groups.get("name") or groups.get("bare") or groups.get("percent") or ""
            default = groups.get("default")
            return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"
        if what is None and kind not in _WORDS:
            self._notes[f"{place} looks like a variable; Fairlead replaces it"] = None
            return match[0]
        if kind == "pathSeparator":
            return "/"
        if kind in ("env", "secrets", "inputs") and what and _NAME.fullmatch(what):
            return f"${{{what}}}"
        if kind == "userHome":
            return "${HOME}"
        # Fairlead's format has no inputs, so the value comes from the environment instead.
        if kind == "input" and what:
            name = re.sub(r"\W", "_", what).upper()
            self._notes[f"{place} was an input; set {name} in the environment instead"] = None
            return f"${{{name}}}"
        raise ConfigError(f"{place} contains {match[0]}, which Fairlead does not support")


_WORDS = ("userHome", "workspaceFolder", "workspaceFolderBasename", "pathSeparator")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OURS = re.compile(r"\$\{[A-Za-z_]\w*(?::-[^{}]*)?\}")
