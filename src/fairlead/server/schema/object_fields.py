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
            required: frozenset[str] = kind.__required_keys__  # type: ignore[attr-defined]
            hints = typing.get_type_hints(kind, include_extras=True)
            return [Field(k, k, _bare(v), k in required) for k, v in hints.items()]
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


def _bare(kind: Any) -> Any:
    """Return the type without `Required`, `NotRequired` and `ReadOnly`."""
    # `ReadOnly` by name: Python 3.13 and typing_extensions have their own.
    while getattr(typing.get_origin(kind) or kind, "_name", "") == "ReadOnly" or (
        typing.get_origin(kind) in (typing.Required, typing.NotRequired)
    ):
        kind = typing.get_args(kind)[0]
    return kind
