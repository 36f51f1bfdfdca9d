"""JSON Schema as far as a command line needs it: what to call a type, and how to read a value."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["Misfit", "name_type", "read_value"]

Schema = Mapping[str, Any]

_NESTING = 20  # references and unions inside each other; a schema that goes round ends here
_INTEGER = re.compile(r"[+-]?\d+")
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Misfit(ValueError):
    """A text that cannot be what the schema asks for; says what that is."""


def name_type(schema: Any, root: Schema) -> str:
    """A type in a few words: "integer 1..50", "array of string", "a | b", "string or null"."""
    names: list[str] = []
    for option in _options(schema, root):
        name = _name_one(option, root)
        if name not in names:
            names.append(name)
    return " or ".join(names) or "any"


def read_value(text: str, schema: Any, root: Schema) -> Any:
    """What a person means by a text, given the schema of the place it goes to.

    In a union the narrow types come first: for `integer or string`, "5" is the number. Without a
    schema, or where none of its types is known, a text stays a text.

    Raises:
        Misfit: if it can be nothing that the schema asks for.
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
    for kind, read in _READERS:
        if kind in kinds:
            try:
                return read(text)
            except ValueError:
                continue  # perhaps it is one of the other types
    if "string" in kinds:
        return text
    raise Misfit(name_type(schema, root))


def _options(schema: Any, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """The alternatives of a union, with references followed."""
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
    """A reference within the document; others are not followed."""
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
    return {_kind_of(choice) for choice in _choices(schema) or ()}


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


# Reading. Each raises ValueError for a text that is no such thing.


def _read_null(text: str) -> None:
    if text != "null":
        raise ValueError(text)


def _read_boolean(text: str) -> bool:
    try:
        return _WORDS[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _read_integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _read_number(text: str) -> int | float:
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text)
    if value - value != 0:  # infinities and NaN have no JSON form
        raise ValueError(text)
    return value


def _read_array(text: str) -> list[Any]:
    return msgspec.json.decode(text, type=list[Any])


def _read_object(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


_READERS: tuple[tuple[str, Any], ...] = (
    ("null", _read_null),
    ("integer", _read_integer),
    ("number", _read_number),
    ("boolean", _read_boolean),
    ("array", _read_array),
    ("object", _read_object),
)


def _kind_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
