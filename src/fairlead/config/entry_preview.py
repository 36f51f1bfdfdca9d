"""Preview of an entry: the command or URL, and each value that would be passed or sent.

No command is run and no connection is opened. Variables, inputs and files are substituted as in
`resolve`, but values that look like credentials are masked.
"""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct

from ..client.server_entry import MCPStdioServerConfig
from ..errors import ConfigError
from ..redaction.redact_text import REDACTED, is_secret_name, redact
from .found_server import EnvironmentReference, FoundServer
from .variables.entry_references import absolute, env_file_of, file_beside, read_dotenv, scope_of
from .variables.variable_syntax import DIALECTS, substitute

__all__ = ["PreviewedValue", "preview"]


class PreviewedValue(Struct, frozen=True):
    """A value in an entry: its field, its text after substitution, and its origins."""

    field: str  # command, args[0], env.NAME, cwd, url, headers.NAME ...
    text: str
    origins: tuple[str, ...] = ()  # empty if the text is written literally in the entry

    def plain(self) -> dict[str, object]:
        """Return the value as JSON types, for `--json`."""
        return {"field": self.field, "value": self.text, "from": list(self.origins) or ["entry"]}


def preview(found: FoundServer, env: Mapping[str, str] | None = None) -> list[PreviewedValue]:
    """Return the values of an entry, starting with the command or URL."""
    return list(_Preview(found, os.environ if env is None else env).values())


class _Preview:
    """A preview of one entry, with variables, inputs and files substituted."""

    def __init__(self, found: FoundServer, env: Mapping[str, str]) -> None:
        self._found = found
        self._env = env
        self._rules = DIALECTS[found.dialect]
        hidden = {name: REDACTED for name in env if is_secret_name(name)}
        self._scope = scope_of(found, {**env, **hidden})
        self._scope.inputs = {
            one.id: REDACTED if one.password else one.default
            for one in found.needs_input
            if one.default is not None
        }
        # A file usually contains a token, so its content is never shown.
        self._scope.read_file = lambda path: REDACTED

    def values(self) -> Iterator[PreviewedValue]:
        found, entry = self._found, self._found.entry
        if isinstance(entry, MCPStdioServerConfig):
            cwd = self._cwd(entry)
            yield self._command(entry, cwd)
            for number, arg in enumerate(entry.args):
                yield self._value(f"args[{number}]", "args", arg)
            if cwd is not None:
                yield cwd
            yield from self._env_file()
            yield from self._looked_up("env")
            for name, text in entry.env.items():
                yield self._named("env", name, text)
            if entry.inherit_env != "all":
                yield PreviewedValue("inheritEnv", str(entry.inherit_env))
        else:
            yield self._value("url", "url", entry.url)
            yield PreviewedValue("type", entry.type)
            yield from self._looked_up("headers")
            for name, text in entry.headers.items():
                yield self._named("headers", name, text)
            if found.headers_helper is not None:
                printed = (f"printed by the command {redact(found.headers_helper)}",)
                yield PreviewedValue("headers", "(known after connecting)", printed)
        for field in ("auth", "oauth"):
            if (held := getattr(entry, field)) is not None:
                yield PreviewedValue(field, redact(str(held)))

    def _command(self, entry: MCPStdioServerConfig, cwd: PreviewedValue | None) -> PreviewedValue:
        value = self._value("command", "command", entry.command)
        text = value.text.strip()
        if self._found.in_folder and cwd and os.path.dirname(text) and not os.path.isabs(text):
            text = os.path.normpath(os.path.join(cwd.text, text))
            return PreviewedValue(
                "command", text, (*value.origins, "relative to the working directory")
            )
        return value

    def _cwd(self, entry: MCPStdioServerConfig) -> PreviewedValue | None:
        if entry.cwd is None:
            if not self._found.in_folder:
                return None
            return PreviewedValue("cwd", self._found.workspace, ("the project folder",))
        value = self._value("cwd", "cwd", entry.cwd)
        return PreviewedValue("cwd", absolute(self._found, value.text), value.origins)

    def _env_file(self) -> Iterator[PreviewedValue]:
        if self._found.env_file is None:
            return
        try:
            path = env_file_of(self._found, scope_of(self._found, self._env)) or ""
        except ConfigError as exc:
            yield PreviewedValue("envFile", self._found.env_file, (str(exc.args[0]),))
            return
        content = self._found.contents.get(path)
        if content is None:
            yield PreviewedValue("envFile", path, ("a missing file",))
            return
        for name, text in read_dotenv(content.decode("utf-8-sig", "replace")).items():
            yield PreviewedValue(f"env.{name}", _shown(name, text), (f"the file {path}",))

    def _looked_up(self, field: str) -> Iterator[PreviewedValue]:
        for one in self._found.lookups:
            if one.field == field:
                yield PreviewedValue(
                    f"{field}.{one.key}", self._of_variable(one), (_yours(one.variable),)
                )

    def _of_variable(self, one: EnvironmentReference) -> str:
        if one.variable not in self._env:
            return "(not set)"
        return _shown(one.key, one.template.replace("{}", _shown(one.variable, REDACTED)))

    def _named(self, field: str, name: str, text: str) -> PreviewedValue:
        """Return a value in `env` or `headers`, which may be a command or a variable name."""
        place = f"{field}.{name}"
        if self._rules.runs_commands:
            if text.startswith("!"):
                printed = (f"printed by the command {redact(text[1:])}",)
                return PreviewedValue(place, "(known after connecting)", printed)
            if text and text in self._env:
                return PreviewedValue(
                    place, _shown(name, _shown(text, self._env[text])), (_yours(text),)
                )
        value = self._value(place, field, text)
        # Gemini expands these values a second time, with a different syntax.
        if self._found.dialect == "gemini":
            again = substitute(value.text, "gemini-again", self._scope, field)
            value = PreviewedValue(place, again, value.origins)
        return PreviewedValue(place, _shown(name, value.text), value.origins)

    def _value(self, place: str, field: str, text: str) -> PreviewedValue:
        scope = self._scope
        # The scope is reused, so the records of the previous substitution are cleared first.
        scope.used.clear()
        scope.missing.clear()
        try:
            filled = substitute(text, self._found.dialect, scope, field)
        except ConfigError as exc:
            return PreviewedValue(place, redact(text), (str(exc.args[0]),))
        origins = [self._origin(kind, name) for kind, name in scope.used]
        origins += [f"{_yours(name)} (not set)" for name in scope.missing]
        return PreviewedValue(place, redact(filled), tuple(origins))

    def _origin(self, kind: str, name: str) -> str:
        match kind:
            case "variable":
                return _yours(name)
            case "default":
                return f"the default for {name} (not set)"
            case "input":
                return f"the default of the input {name}, unless you enter another value"
        return f"the file {file_beside(self._found, name)}"


def _yours(variable: str) -> str:
    return f"your variable {variable}"


def _shown(name: str, text: str) -> str:
    return REDACTED if text and is_secret_name(name) else redact(text)
