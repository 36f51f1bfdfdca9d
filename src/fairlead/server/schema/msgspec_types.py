"""Conversion of types to equivalent types that msgspec supports."""

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
from .type_aliases import alias_of, alias_value

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
    """Return the equivalent type for msgspec, with `Annotated` metadata as `Meta`."""
    if kind is object:
        return Any
    if kind in (datetime.datetime, datetime.time):
        # msgspec adds the format only to types that require a time zone.
        name = "date-time" if kind is datetime.datetime else "time"
        return Annotated[kind, msgspec.Meta(extra_json_schema={"format": name})]
    if alias_of(kind) is not None:
        return to_msgspec_type(_expanded(kind))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return with_meta(to_msgspec_type(args[0]), args[1:])
    if origin in (Union, types.UnionType):
        return Union[tuple(to_msgspec_type(option) for option in args)]  # noqa: UP007 - built at run time
    if origin in ARRAYS or origin in OBJECTS:
        inner = tuple(arg if arg is Ellipsis else to_msgspec_type(arg) for arg in args)
        # msgspec does not decode iterables and iterators, so they receive a list.
        if origin in READ_AS_LIST:
            return list[inner[0]]  # type: ignore[valid-type]
        return kind if inner == args else origin[inner]
    return kind


def _expanded(kind: Any) -> Any:
    """Return the type that an alias stands for.

    Raises:
        TypeError: The alias refers to itself.
    """
    waiting, seen = [alias_value(kind)], set()
    while waiting:
        part = waiting.pop()
        if part == kind:
            raise TypeError(
                f"the type alias {kind} refers to itself: use Any, or a dataclass that contains "
                "itself"
            )
        if part not in seen:
            seen.add(part)
            waiting += [alias_value(part)] if alias_of(part) is not None else typing.get_args(part)
    return alias_value(kind)


def has_foreign_notes(kind: Any, seen: set[Any] | None = None) -> bool:
    """Return True if a field of a class has annotations that msgspec does not support."""
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
        return True  # a pydantic dataclass, which validates itself
    if issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None:
        return False  # only msgspec can distinguish tagged structs
    return any(has_foreign_notes(field.kind, seen) for field in object_fields(kind) or ())
