"""An entry of another program, written as we write it: the same server, with our variables."""

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
    """An entry for a file of ours, and what is not quite the same in it."""

    fields: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def entry(self) -> MCPServerEntry:
        return read_entry(self.fields)

    def __repr__(self) -> str:  # the fields may hold secrets
        return f"<Adopted {len(self.fields)} fields, {len(self.notes)} notes>"


def import_entry(
    found: FoundServer, env: Mapping[str, str] | None = None, *, anchored: bool = True
) -> ImportedEntry:
    """The entry in our words. Nothing is looked up: a variable stays one.

    The paths of an entry that belongs to a project are `anchored` in its folder, so that they mean
    the same in a file that counts everywhere.

    Raises:
        ConfigError: for what would mean something else in a file of ours.
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
            notes = (*notes, f"{fields['envFile']} stays a file of the project, which may change")
    return ImportedEntry(fields, notes)


def _joined(folder: str, path: str) -> str:
    """A path in a folder, unless it is absolute or may become so."""
    if os.path.isabs(path) or path.startswith(("~", "$")):
        return path
    return os.path.normpath(os.path.join(folder, path))


class _EntryImporter:
    """One entry on its way into our words."""

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
        if field in ("env", "headers") and not rules.runs_commands:
            if text.startswith("!"):
                raise ConfigError(f"{place} begins with `!`, which would be a command here")
            if text in self._env:
                self._notes[
                    f"{place} is the name of a variable that is set, and means its value"
                ] = None
        if rules.pattern is None or (rules.fields is not None and field not in rules.fields):
            if _OURS.search(text):
                self._notes[f"{place} looks like a variable, and is one here"] = None
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
            self._notes[f"{place} looks like a variable, and is one here"] = None
            return match[0]
        if kind == "pathSeparator":
            return "/"
        if kind in ("env", "secrets", "inputs") and what and _NAME.fullmatch(what):
            return f"${{{what}}}"
        if kind == "userHome":
            return "${HOME}"
        if kind == "input" and what:
            name = re.sub(r"\W", "_", what).upper()
            self._notes[f"{place} was asked of a person; set {name} in the environment"] = None
            return f"${{{name}}}"
        raise ConfigError(f"{place} holds {match[0]}, for which we have no word")


_WORDS = ("userHome", "workspaceFolder", "workspaceFolderBasename", "pathSeparator")
_NAME = re.compile(r"[A-Za-z_]\w*")
_OURS = re.compile(r"\$\{[A-Za-z_]\w*(?::-[^{}]*)?\}")
