"""Constraints and descriptions in `Annotated`.

msgspec's Meta, plain strings, our Header, pydantic's Field and annotated_types are recognized by
their attributes, so that these libraries need not be imported.
"""

import operator
import re
import types
import typing
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Union

import msgspec

from ...protocol.types.base import HEADER_ANNOTATION
from .header_annotation import Header

__all__ = ["KEYWORDS", "read_notes", "satisfies_limit", "with_meta"]

KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}


def with_meta(base: Any, notes: Iterable[Any]) -> Any:
    """Return a type with its annotations as msgspec's `Meta`."""
    limits, words, extra = read_notes(notes)
    if limits and typing.get_origin(base) in (Union, types.UnionType):
        # A limit on `int | None` applies to the number only.
        options = typing.get_args(base)
        bounded = [o if o is type(None) else Annotated[o, msgspec.Meta(**limits)] for o in options]
        base, limits = Union[tuple(bounded)], {}  # noqa: UP007
    if not (limits or words or extra):
        return base
    if extra:
        words["extra_json_schema"] = extra
    return Annotated[base, msgspec.Meta(**limits, **words)]


def read_notes(notes: Iterable[Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the limits under msgspec's names, the texts (title, description, examples), and other
    keywords.
    """
    limits: dict[str, Any] = {}
    words: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for note in notes:
        if isinstance(note, str):
            words.setdefault("description", note)
            continue
        if isinstance(note, Header):
            extra[HEADER_ANNOTATION] = note.name
            continue
        if isinstance(note, msgspec.Meta) and note.tz is not None:
            words["tz"] = note.tz
        for name in KEYWORDS:
            # An unrelated object may have a method of the same name.
            if (limit := getattr(note, name, None)) is not None and not callable(limit):
                limits[name] = _limit(name, limit)
        for name, attribute, kind in _WORDS:
            if isinstance(word := getattr(note, attribute, None), kind) and word:
                words.setdefault(name, word)
        for attribute in ("json_schema_extra", "extra_json_schema"):
            if isinstance(more := getattr(note, attribute, None), dict):
                extra.update(more)
        # pydantic's FieldInfo keeps its constraints in a list of annotated_types.
        if isinstance(inner := getattr(note, "metadata", None), list | tuple):
            limits.update(read_notes(inner)[0])
    return limits, words, extra


_WORDS: tuple[tuple[str, str, type], ...] = (
    ("title", "title", str),
    ("description", "description", str),
    ("description", "documentation", str),
    ("examples", "examples", list),
)


def _limit(name: str, value: Any) -> Any:
    if name == "pattern":
        return getattr(value, "pattern", value)
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: a limit must be a number")
    return value


def satisfies_limit(value: Any, name: str, limit: Any) -> bool:
    """Return True if a value satisfies a limit; `name` is msgspec's name of the limit."""
    return bool(_CHECKS[name](value, limit))


@lru_cache(maxsize=256)
def _pattern(text: str) -> Callable[[str], bool]:
    """Return a function that searches for a pattern, in linear time unless the pattern has
    look-around.
    """
    try:
        # The linear engine is loaded on first use: few tools have patterns.
        from ...redaction.linear_regex import LinearPattern

        return LinearPattern(text).matches
    except ValueError:
        search = re.compile(text).search
        return lambda value: search(value) is not None


def _size(value: Any) -> int:
    return len(value if hasattr(value, "__len__") else str(value))


_CHECKS: dict[str, Callable[[Any, Any], Any]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "multiple_of": lambda value, limit: value % limit == 0,
    "min_length": lambda value, limit: _size(value) >= limit,
    "max_length": lambda value, limit: _size(value) <= limit,
    "pattern": lambda value, limit: _pattern(limit)(str(value)),
}
