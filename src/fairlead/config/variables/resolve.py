"""Resolution of an entry just before connecting: variables, files, inputs and commands."""

import asyncio
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...errors import ConfigError
from ..files.config_reader import read_file
from ..found_server import FoundServer
from ..trust import Trust
from .entry_references import (
    absolute,
    env_file_of,
    file_beside,
    hide_values,
    read_dotenv,
    scope_of,
    values_of,
)
from .secret_commands import headers_of_helper, value_of_command
from .variable_syntax import DIALECTS, MissingInput, substitute

__all__ = ["Resolved", "resolve", "resolve_in_thread"]

T = TypeVar("T")
A = TypeVar("A")


class Resolved(Struct, frozen=True):
    """A resolved entry, with its unset variables and warnings.

    `replaced` maps the place of each value in `env` or `headers` that was the name of an
    environment variable, such as `env.KEY`, to the name of the variable.
    """

    entry: MCPServerEntry
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    replaced: Mapping[str, str] = {}

    # The entry now contains secrets, which `repr` must not write to logs.
    def __repr__(self) -> str:
        return f"<Resolved missing={list(self.missing)}>"


def resolve(
    found: FoundServer,
    env: Mapping[str, str] | None = None,
    *,
    trust: Trust | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Resolved:
    """Return the entry with all values resolved. This function blocks: call it in a thread if an
    event loop runs.

    An unapproved entry is not resolved at all, because its variables and commands could send
    secrets to its URL.

    Raises:
        NotApproved: The entry comes from a project file and is not approved.
        MissingInput: An input has no value.
        ConfigError: A variable or a file has no value, the approval does not cover a file, or a
            header contains a line break.
    """
    (trust or Trust()).require(found)
    work = _Work(found, os.environ if env is None else env, inputs)
    try:
        return work.resolved()
    except ConfigError as exc:
        text = f'Server "{found.name}": {hide_values(str(exc.args[0]), work.held)}'
        if isinstance(exc, MissingInput):
            raise MissingInput(exc.input_id, text, path=found.path, line=found.line) from None
        raise ConfigError(text, path=found.path, line=found.line) from None


async def resolve_in_thread(found: FoundServer, **options: Any) -> Resolved:
    """Call `resolve` in a thread, because it reads files and may run commands."""
    return await asyncio.to_thread(resolve, found, **options)


class _Work:
    """Resolves one entry."""

    def __init__(
        self,
        found: FoundServer,
        env: Mapping[str, str],
        inputs: Mapping[str, str] | None,
    ) -> None:
        self.found = found
        self.env = env
        self.warnings: list[str] = []
        self.replaced: dict[str, str] = {}
        self.held = set(values_of(found.raw))  # values to mask in messages
        self.scope = scope_of(found, env, inputs)
        self.scope.read_file = self._read_beside
        self.looked_up = self._look_up()

    def resolved(self) -> Resolved:
        found, entry = self.found, self.found.entry
        # Variables of a Goose entry refer to the values that the entry itself sets.
        if found.dialect == "goose":
            own = found.raw.get("envs")
            texts = {str(k): str(v) for k, v in own.items()} if isinstance(own, dict) else {}
            self.scope.env = {**texts, **self.looked_up["env"]}
        if isinstance(entry, MCPStdioServerConfig):
            filled = self._stdio(entry)
        else:
            filled = self._remote(entry)
        return Resolved(filled, tuple(self.scope.missing), tuple(self.warnings), self.replaced)

    def _stdio(self, entry: MCPStdioServerConfig) -> MCPServerEntry:
        own = self._values("env", entry.env)
        command = self._clean("command", self._text("command", entry.command))
        cwd = None if entry.cwd is None else absolute(self.found, self._text("cwd", entry.cwd))
        # The folder of a project's entry may differ from this process's current folder.
        if self.found.in_folder:
            cwd = cwd or self.found.workspace
            if os.path.dirname(command) and not os.path.isabs(command):
                command = os.path.normpath(os.path.join(cwd, command))
        return msgspec.structs.replace(
            entry,
            command=command,
            args=[self._text("args", arg) for arg in entry.args],
            env={**self._env_file(), **self.looked_up["env"], **own},
            cwd=cwd,
        )

    def _remote(self, entry: Any) -> MCPServerEntry:
        url = self._clean("url", self._text("url", entry.url))
        headers = {**self.looked_up["headers"], **self._values("headers", entry.headers)}
        if self.found.headers_helper is not None:
            failed = "the `headersHelper` command failed"
            helper = self.found.headers_helper
            headers.update(self._printed(failed, headers_of_helper, helper, url) or {})
        # A line break in a header would start a new header in the request.
        for name, value in headers.items():
            if re.search(r"[\r\n\0]", name + value):
                raise ConfigError(f"the header {name!r} contains a line break")
        filled: MCPServerEntry = msgspec.structs.replace(
            entry,
            url=url,
            headers=headers,
            auth=self._deep("auth", entry.auth),
            oauth=self._deep("oauth", entry.oauth),
        )
        return filled

    def _text(self, field: str, text: str) -> str:
        return substitute(text, self.found.dialect, self.scope, field)

    def _deep(self, field: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(field, value)
        if isinstance(value, dict):
            return {key: self._deep(field, item) for key, item in value.items()}
        return [self._deep(field, item) for item in value] if isinstance(value, list) else value

    def _values(self, field: str, values: Mapping[str, str]) -> dict[str, str]:
        """Return the values in `env` or `headers`, except those whose command failed."""
        made = {}
        for name, raw in values.items():
            value = self._value(field, name, raw)
            if value is not None:
                made[name] = self._clean(f"{field}.{name}", value)
                self.held.add(made[name])
        return made

    def _value(self, field: str, name: str, raw: str) -> str | None:
        if DIALECTS[self.found.dialect].runs_commands:
            # The shell expands variables in a command, which avoids problems with quoting.
            if raw.startswith("!"):
                failed = f"{field}.{name} is omitted: its command failed"
                return self._printed(failed, value_of_command, raw[1:], self.env)
            if raw in self.env and raw:
                self.replaced[f"{field}.{name}"] = raw
                return self.env[raw]
        value = self._text(field, raw)
        if self.found.dialect == "gemini":
            value = substitute(value, "gemini-again", self.scope, field)
        return value

    def _printed(
        self, failed: str, run: Callable[[FoundServer, str, A], T], command: str, more: A
    ) -> T | None:
        """Return the output of a command; None and a warning if the command failed."""
        try:
            return run(self.found, command, more)
        except (ConfigError, OSError, ValueError) as exc:
            reason = exc.args[0] if isinstance(exc, ConfigError) else type(exc).__name__
            self._warn(f"{failed} ({reason})")
            return None

    def _look_up(self) -> dict[str, dict[str, str]]:
        """Return the values of the named variables that are set."""
        values: dict[str, dict[str, str]] = {"env": {}, "headers": {}}
        for lookup in self.found.lookups:
            value = self.env.get(lookup.variable)
            if value is None:
                self.scope.missing[lookup.variable] = None
                continue
            place = f"{lookup.field}.{lookup.key}"
            filled = lookup.template.replace("{}", self._clean(place, value))
            values[lookup.field][lookup.key] = filled
            self.held.add(value)
        return values

    def _clean(self, place: str, value: str) -> str:
        """Strip invisible characters at both ends;
        they result from copying and invalidate tokens.
        """
        clean = value.strip("".join(filter(_is_hidden, set(value))))
        if clean != value:
            self._warn(f"{place}: surrounding white space was removed")
        return clean

    def _env_file(self) -> dict[str, str]:
        path = env_file_of(self.found, self.scope)
        if path is None:
            return {}
        content = self._content(path)
        if content is None:
            self._warn(f"the file {path} of `envFile` does not exist")
            return {}
        return read_dotenv(content.decode("utf-8-sig", "replace"))

    def _read_beside(self, path: str) -> str:
        """Return the text of a file whose path is relative to the configuration file."""
        path = file_beside(self.found, path)
        content = self._content(path)
        if content is None:
            raise ConfigError(f"the file {path} does not exist")
        return content.decode("utf-8-sig", "replace").strip()

    def _content(self, path: str) -> bytes | None:
        """Return the content of a file; for a project's entry, the content covered by its approval.

        Raises:
            ConfigError: The file cannot be read, or the approval does not cover it.
        """
        if self.found.level != "project":
            return read_file(path)
        if path not in self.found.contents:
            raise ConfigError(
                f"the path of {path} depends on an input or on a variable that has changed, "
                "so the approval does not cover the file"
            )
        return self.found.contents[path]

    def _warn(self, text: str) -> None:
        self.warnings.append(f'Server "{self.found.name}": {hide_values(text, self.held)}')


def _is_hidden(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Cf", "Cc")
