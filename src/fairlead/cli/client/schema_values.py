"""JSON Schema types on the command line: short names, and conversion of strings to values."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["SchemaMismatch", "name_type", "read_value"]

Schema = Mapping[str, Any]

# Limit for nested references and unions, which also stops at a schema that refers to itself.
_NESTING = 20
_KINDS = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_LETTERS = {"y": True, "n": False}  # accepted only if the schema does not allow a string


class SchemaMismatch(ValueError):
    """A string does not match a schema. The message names the expected type."""


def name_type(schema: Any, root: Schema) -> str:
    """Return a short name for a schema's type: "integer 1..50", "array of string", "a | b"."""
    names: list[str] = []
    for option in _options(schema, root):
        name = _name_one(option, root)
        if name not in names:
            names.append(name)
    return " or ".join(names) or "any"


def read_value(text: str, schema: Any, root: Schema) -> Any:
    """Convert a string to a type that the schema allows.

    In a union, narrower types take precedence: for `integer or string`, "5" becomes a number.
    Without a schema or a known type, the value stays a string.

    Raises:
        SchemaMismatch: The string matches none of the types.
    """
    kinds: set[str] = set()
    for option in _options(schema, root):
        if (choices := _choices(option)) is not None:
            for choice in choices:
                if text == (choice if isinstance(choice, str) else _json(choice)):
                    return choice
        kinds |= _kinds(option)
    if not kinds:
        return text
    if kinds == {"boolean"} and text.lower() in _LETTERS:
        return _LETTERS[text.lower()]
    try:
        return _read(text, kinds - {"string"})
    except ValueError:
        if "string" in kinds:
            return text
    raise SchemaMismatch(name_type(schema, root))


def _options(schema: Any, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """Yield the alternatives of a union, with references resolved."""
    if not isinstance(schema, Mapping) or depth > _NESTING:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _options(_follow(reference, root), root, depth + 1)
        return
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(keyword)
        if isinstance(parts, list) and parts:
            for part in parts:
                yield from _options(part, root, depth + 1)
            return
    yield schema


def _follow(reference: str, root: Schema) -> Any:
    """Resolve a reference within the same document;
    return None for references to other documents.
    """
    found: Any = root
    if not reference.startswith("#"):
        return None
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _kinds(schema: Schema) -> set[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {name for name in kind if isinstance(name, str)}
    return {_KINDS[type(choice)] for choice in _choices(schema) or ()}


def _choices(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else None


def _name_one(schema: Schema, root: Schema) -> str:
    if (choices := _choices(schema)) is not None:
        return " | ".join(c if isinstance(c, str) else _json(c) for c in choices)
    kinds = sorted(_kinds(schema))
    if kinds == ["array"] and "items" in schema:
        return f"array of {name_type(schema['items'], root)}"
    if kinds in (["integer"], ["number"]):
        return f"{kinds[0]} {_range(schema)}".rstrip()
    return " or ".join(kinds) or "any"


def _range(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return ""
    if high is None:
        return f"≥ {low}"
    return f"≤ {high}" if low is None else f"{low}..{high}"


def _read(text: str, kinds: set[str]) -> Any:
    """Decode JSON to a value whose type is in `kinds`; a boolean may also be a word like `yes`.

    Raises:
        ValueError: The string is not JSON, or the type of its value is not in `kinds`.
    """
    if "boolean" in kinds and text.lower() in _WORDS:
        return _WORDS[text.lower()]
    value = msgspec.json.decode(text)
    kind = _KINDS[type(value)]
    if kind in kinds or (kind == "integer" and "number" in kinds):
        return value
    raise ValueError(text)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
