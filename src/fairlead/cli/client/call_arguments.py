"""Tool arguments on the command line.

The value in `key=value` is converted to the type in the tool's schema. `key:=JSON` passes JSON, and
`key=@file` passes the text of a file.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..framework.command_errors import UsageError
from ..framework.suggested_commands import quoted
from .schema_values import SchemaMismatch, read_value

__all__ = ["ARGUMENT_FORMS", "CallArguments", "parse"]

ARGUMENT_FORMS = """write tool arguments as a=1, or as JSON: --args '{"a": 1}'"""
_EXAMPLES = {
    "tool argument": f"{ARGUMENT_FORMS}; a server command must follow `--`",
    "prompt argument": "for example name=Ada; a server command must follow `--`",
    "--answer": "for example --answer confirm=true",
}


class CallArguments:
    """Tool arguments from the command line; they are converted once the tool's schema is known."""

    def __init__(self, values: dict[str, Any], texts: dict[str, str]) -> None:
        self._values = values
        self._texts = texts

    @property
    def keys(self) -> set[str]:
        """The names of all arguments."""
        return {*self._values, *self._texts}

    def fit(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for a tool with this input schema.

        A key that is not in the schema is passed as a string; the server decides whether to accept
        it.

        Raises:
            UsageError: A value cannot be converted to the type in the schema.
        """
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        fitted = {}
        for key, text in self._texts.items():
            try:
                fitted[key] = read_value(text, known.get(key), schema)
            except SchemaMismatch as exc:
                raise UsageError(
                    f"Invalid value {text!r} for {key}: expected {exc}",
                    hint=f"`{quoted(f'{key}:=JSON')}` sends any JSON value unchanged",
                ) from exc
        return {**self._values, **fitted}


def parse(
    words: Sequence[str], whole: str | None = None, what: str = "tool argument"
) -> CallArguments:
    """Parse `key=value` arguments and the value of `--args`, whose keys they override.

    Raises:
        UsageError: An argument is invalid, or a file that it names cannot be read.
    """
    values = {} if whole is None else _read_whole(whole)
    texts: dict[str, str] = {}
    seen: set[str] = set()
    for word in words:
        key, equals, text = word.partition("=")
        raw = key.endswith(":")
        key = key.removesuffix(":") if raw else key
        if not equals or not key:
            raise UsageError(
                f"Invalid {what} {word!r}: expected key=value, key:=JSON or key=@file",
                hint=_hint_for(word, what),
            )
        if key in seen:
            raise UsageError(f"Duplicate argument {key}", hint=f"pass a list as {key}:='[1, 2]'")
        seen.add(key)
        values.pop(key, None)
        if raw:
            values[key] = _decode(text, key)
        elif text.startswith("@"):
            values[key] = _read_file(text[1:])
        else:
            texts[key] = text
    return CallArguments(values, texts)


def _hint_for(word: str, what: str) -> str:
    """Return the hint for an argument that is not a `key=value`."""
    if what == "tool argument" and word.lstrip().startswith("{"):
        return f"a JSON object must follow --args: --args {quoted(word)}"
    return _EXAMPLES[what]


def _read_whole(whole: str) -> dict[str, Any]:
    if whole == "-":
        text = sys.stdin.read()
    elif whole.startswith("@"):
        text = _read_file(whole[1:])
    else:
        text = whole
    values = _decode(text, "--args", hint=ARGUMENT_FORMS)
    if not isinstance(values, dict):
        raise UsageError("--args must be a JSON object", hint="""for example --args '{"a": 1}'""")
    return values


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as exc:
        raise UsageError(f"Cannot read {name}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"{name} is not UTF-8 text") from exc


def _decode(text: str, key: str, hint: str = "pass plain text as key=value") -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise UsageError(f"Invalid JSON in {key}: {exc}", hint=hint) from exc
