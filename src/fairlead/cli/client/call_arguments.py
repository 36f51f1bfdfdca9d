"""The arguments of a call, as a person types them.

`key=value` is read as what the tool's schema wants there, `key:=JSON` as JSON, `key=@file` is the
text of a file.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..framework.command_errors import UsageError
from ..framework.suggested_commands import quoted
from .schema_values import SchemaMismatch, read_value

__all__ = ["CallArguments", "parse"]


class CallArguments:
    """What was given on the command line; the texts wait for the tool's schema."""

    def __init__(self, values: dict[str, Any], texts: dict[str, str]) -> None:
        self._values = values
        self._texts = texts

    def fit(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments for a tool with this input schema.

        A key that the schema does not know stays a text: the server may decide about it.

        Raises:
            CommandError: if a text cannot be what the schema asks for.
        """
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        fitted = {}
        for key, text in self._texts.items():
            try:
                fitted[key] = read_value(text, known.get(key), schema)
            except SchemaMismatch as exc:
                raise UsageError(
                    f"{key} is of type {exc}, and {text!r} is not",
                    hint=f"`{quoted(f'{key}:=JSON')}` sends any value as it is",
                ) from exc
        return {**self._values, **fitted}


def parse(words: Sequence[str], whole: str | None) -> CallArguments:
    """Read `key=value` words and what `--args` was given; words go over it, key by key.

    Raises:
        CommandError: saying which word is wrong, and how to write it.
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
                f"{word!r} is no argument of a tool",
                hint="write key=value, key:=JSON or key=@file; the server's command goes after "
                "`--`",
            )
        if key in seen:
            raise UsageError(f"{key} is given twice", hint=f"a list is written {key}:='[1, 2]'")
        seen.add(key)
        values.pop(key, None)
        if raw:
            values[key] = _decode(text, key)
        elif text.startswith("@"):
            values[key] = _read_file(text[1:])
        else:
            texts[key] = text
    return CallArguments(values, texts)


def _read_whole(whole: str) -> dict[str, Any]:
    if whole == "-":
        text = sys.stdin.read()
    elif whole.startswith("@"):
        text = _read_file(whole[1:])
    else:
        text = whole
    values = _decode(text, "--args")
    if not isinstance(values, dict):
        raise UsageError("--args is no JSON object", hint="""write --args '{"a": 1}'""")
    return values


def _read_file(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except OSError as exc:
        raise UsageError(f"{name} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"{name} is no UTF-8 text") from exc


def _decode(text: str, key: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise UsageError(
            f"{key} is no JSON: {exc}", hint="a plain text is written key=value"
        ) from exc
