"""Types in msgspec's words, as far as it has words for them."""

import collections.abc
import dataclasses
import datetime
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Union

import msgspec

from .annotations import read_notes, with_meta
from .object_fields import object_fields

__all__ = ["ARRAYS", "OBJECTS", "has_foreign_notes", "to_msgspec_type"]

READ_AS_LIST = (collections.abc.Iterable, collections.abc.Iterator)
ARRAYS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    tuple: tuple,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Iterator: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
OBJECTS: tuple[Any, ...] = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def to_msgspec_type(kind: Any) -> Any:
    """The same type in msgspec's words: what `Annotated` says, whoever's way it is said in, as a
    `Meta`."""
    if kind is object:
        return Any
    if kind in (datetime.datetime, datetime.time):
        name = "date-time" if kind is datetime.datetime else "time"
        return Annotated[kind, msgspec.Meta(extra_json_schema={"format": name})]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return with_meta(to_msgspec_type(args[0]), args[1:])
    if origin in (Union, types.UnionType):
        return Union[tuple(to_msgspec_type(option) for option in args)]  # noqa: UP007 - made while running
    if origin in ARRAYS or origin in OBJECTS:
        inner = tuple(arg if arg is Ellipsis else to_msgspec_type(arg) for arg in args)
        if origin in READ_AS_LIST:
            return list[inner[0]]  # type: ignore[valid-type]
        return kind if inner == args else origin[inner]
    return kind


def has_foreign_notes(kind: Any, seen: set[Any] | None = None) -> bool:
    """Is a field of a class in it annotated in words that msgspec does not read?"""
    seen = set() if seen is None else seen
    notes: tuple[Any, ...] = ()
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is Annotated:
        inner, notes = inner[:1], inner[1:]
    elif typing.get_origin(kind) is typing.Literal:
        return False
    if any(any(read_notes([n])) for n in notes if not isinstance(n, msgspec.Meta)):
        return True
    if any(has_foreign_notes(part, seen) for part in inner):
        return True
    if not isinstance(kind, type) or kind in seen:
        return False
    seen.add(kind)
    if dataclasses.is_dataclass(kind) and hasattr(kind, "__pydantic_validator__"):
        return True  # pydantic's kind of dataclass, which checks itself when it is made
    if issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None:
        return False  # only msgspec knows how to tell tagged ones apart
    return any(has_foreign_notes(field.kind, seen) for field in object_fields(kind) or ())
