"""References in an entry: to inputs in its file, and to other files."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import structs

from ...errors import ConfigError
from ...limits import ENTRY_FILES
from ..found_server import FoundServer
from .variable_syntax import DIALECTS, VariableScope, substitute

__all__ = [
    "absolute",
    "env_file_of",
    "file_beside",
    "files_of",
    "hide_values",
    "read_dotenv",
    "scope_of",
    "texts_in",
    "values_of",
]


def scope_of(
    found: FoundServer, env: Mapping[str, str], inputs: Mapping[str, str] | None = None
) -> VariableScope:
    """Return the scope for an entry's variables; missing inputs use their defaults."""
    defaults = {one.id: one.default for one in found.needs_input if one.default is not None}
    return VariableScope(
        env=env,
        home=found.home,
        workspace=found.workspace,
        platform=found.platform,
        inputs={**defaults, **(inputs or {})},
    )


def files_of(found: FoundServer, env: Mapping[str, str]) -> list[str]:
    """Return the absolute paths of the files whose content becomes part of an entry.

    Raises:
        ConfigError: The entry refers to too many files.
    """
    paths: dict[str, None] = {}
    if found.env_file is not None:
        # The path may depend on an input that is not given yet; resolving the entry reports that.
        with suppress(ConfigError):
            paths[env_file_of(found, scope_of(found, env)) or ""] = None
    pattern = DIALECTS[found.dialect].pattern
    if pattern is not None and "kind" in pattern.groupindex:
        for text in texts_in([found.raw, structs.asdict(found.entry), found.env_file]):
            for match in pattern.finditer(text):
                if match["kind"] == "file" and match["what"]:
                    paths[file_beside(found, match["what"])] = None
    # On Windows, opening a UNC path sends the user's credentials to its host.
    if found.platform == "win32":
        paths = {path: None for path in paths if not path.startswith(("\\\\", "//"))}
    paths.pop("", None)
    if len(paths) > ENTRY_FILES.value:
        ENTRY_FILES.hit()
        raise ConfigError(f"the entry refers to more than {ENTRY_FILES.value} files")
    return list(paths)


def env_file_of(found: FoundServer, scope: VariableScope) -> str | None:
    """Return the path that `envFile` names.

    Raises:
        ConfigError: A variable in the path cannot be replaced.
    """
    if found.env_file is None:
        return None
    return absolute(found, substitute(found.env_file, found.dialect, scope, "cwd"))


def absolute(found: FoundServer, path: str) -> str:
    """Return a path in an entry as an absolute path, relative to the project folder."""
    if path == "~" or path.startswith("~/"):
        path = found.home + path[1:]
    if not os.path.isabs(path) and found.workspace:
        path = os.path.normpath(os.path.join(found.workspace, path))
    return path


def file_beside(found: FoundServer, path: str) -> str:
    """Return a path that is relative to the configuration file as an absolute path."""
    if path == "~" or path.startswith("~/"):
        path = found.home + path[1:]
    return os.path.join(os.path.dirname(found.path), path)


def texts_in(value: Any, *, keys: bool = True) -> Iterator[str]:
    """Yield every string in a nested value; `keys` includes the keys of maps."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        if keys and isinstance(value, dict):
            yield from value
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item, keys=keys)


def values_of(raw: dict[str, Any]) -> Iterator[str]:
    """Yield the strings in `env`, `headers` and other maps in a raw entry."""
    for held in raw.values():
        if isinstance(held, dict):
            yield from texts_in(held, keys=False)


def hide_values(text: str, values: Iterable[str] = ()) -> str:
    """Return a text about an entry with these values and other credentials masked."""
    # slow to import, and only needed for error messages
    from ...redaction.redact_messages import Redactor

    return Redactor(values=values).text(text)


# Lines `NAME=value`. All quantifiers are possessive: the file may belong to a project, and a long
# line must not cause backtracking.
_HEAD = re.compile(r"[ \t]*+(?:export[ \t]++)?([A-Za-z_][\w.-]*+)[ \t]*+=[ \t]*+")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*+)"|'([^']*+)')[ \t]*+(?:\#.*+)?$""")
_ESCAPES: dict[str, str] = {"n": "\n", "r": "\r", "t": "\t"}


def read_dotenv(text: str) -> dict[str, str]:
    """Return the variables in a dotenv file. If a name occurs twice, the last value applies."""
    values = {}
    for line in text.replace("\r\n", "\n").split("\n"):
        if head := _HEAD.match(line):
            values[head[1]] = _value(line[head.end() :])
    return values


def _value(text: str) -> str:
    quoted = _QUOTED.match(text)
    if quoted is None:
        return text.partition("#")[0].rstrip(" \t")
    double, single = quoted.groups()
    if double is None:
        return str(single)
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), double)
