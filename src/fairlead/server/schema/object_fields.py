"""Fields of classes whose instances are JSON objects: structs, dataclasses, typed dicts."""

import dataclasses
import typing
from typing import Any, NamedTuple

import msgspec

from .foreign_types import to_plain

__all__ = ["Field", "is_typed_dict", "object_fields", "with_default"]


class Field(NamedTuple):
    """One field: its names in JSON and in Python, its type, and whether it is required."""

    key: str
    name: str
    kind: Any
    required: bool
    default: Any = msgspec.NODEFAULT


def object_fields(kind: Any) -> list[Field] | None:
    """Return the fields of a class whose instances are JSON objects, or None for other types.

    Raises:
        TypeError: An annotation of the class cannot be resolved.
    """
    if not isinstance(kind, type):
        return None
    try:
        if issubclass(kind, msgspec.Struct):
            found = msgspec.structs.fields(kind)
            return [Field(f.encode_name, f.name, f.type, f.required, f.default) for f in found]
        if dataclasses.is_dataclass(kind):
            return _dataclass_fields(kind)
        if is_typed_dict(kind):
            return _typed_dict_fields(kind)
    except NameError as exc:
        raise TypeError(f"in {kind.__qualname__}: {exc}") from exc
    return None


def is_typed_dict(kind: Any) -> bool:
    """Return True for a `TypedDict`, also of typing_extensions."""
    return isinstance(kind, type) and hasattr(kind, "__required_keys__")


def with_default(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """Return the schema with the default of its value, if the default has a JSON form."""
    if default is msgspec.NODEFAULT:
        return schema
    try:
        plain = msgspec.json.decode(msgspec.json.encode(default, enc_hook=to_plain))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return schema  # the default has no JSON form
    return {**schema, "default": plain}


def _dataclass_fields(kind: Any) -> list[Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    no = dataclasses.MISSING
    return [
        Field(
            f.name,
            f.name,
            hints[f.name],
            f.default is no and f.default_factory is no,
            msgspec.NODEFAULT if f.default is no else f.default,
        )
        for f in dataclasses.fields(kind)
        if f.init
    ]


def _typed_dict_fields(kind: Any) -> list[Field]:
    fields = []
    for key, hint in typing.get_type_hints(kind, include_extras=True).items():
        bare, required = _without_qualifiers(hint)
        # With `from __future__ import annotations`, `__required_keys__` ignores the qualifiers.
        required = key in kind.__required_keys__ if required is None else required
        fields.append(Field(key, key, bare, required))
    return fields


def _without_qualifiers(kind: Any) -> tuple[Any, bool | None]:
    """Return the type without `Required`, `NotRequired` and `ReadOnly`, also inside `Annotated`.

    The second value is True for `Required`, False for `NotRequired`, otherwise None.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        bare, required = _without_qualifiers(args[0])
        return typing.Annotated[bare, *args[1:]], required
    if origin in (typing.Required, typing.NotRequired):
        return _without_qualifiers(args[0])[0], origin is typing.Required
    # By name: Python 3.13 and typing_extensions each define `ReadOnly`.
    if getattr(origin or kind, "_name", "") == "ReadOnly":
        return _without_qualifiers(args[0])
    return kind, None
