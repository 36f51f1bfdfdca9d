"""Encoding of the values of tools whose return type contains types of pydantic."""

import sys
import typing
from typing import Annotated, Any

from ..schema.foreign_types import as_model, is_pydantic_field
from ..schema.object_fields import Field, object_fields
from ..schema.type_aliases import alias_of, alias_value

__all__ = ["PydanticOutput", "contains_pydantic_type"]


class PydanticOutput:
    """Schema of a type, and conversion of values to JSON, by pydantic.

    `fields` are the fields of a class that is not a model. If `wrapped`, the schema describes an
    object with the value in its member `result`.

    Raises:
        TypeError: pydantic does not support the type.
    """

    takes_any_text = False

    def __init__(self, kind: Any, *, wrapped: bool, fields: list[Field] | None = None) -> None:
        pydantic: Any = sys.modules["pydantic"]
        mode = "serialization" if _has_own_output_names(kind, set()) else "validation"
        try:
            if fields is not None:
                kind = _model(pydantic, kind.__name__, fields)
            self._adapter = pydantic.TypeAdapter(kind)
            whole = pydantic.create_model("Output", result=kind) if wrapped else kind
            self.schema: dict[str, Any] = pydantic.TypeAdapter(whole).json_schema(mode=mode)
        except (pydantic.errors.PydanticUserError, NameError) as exc:
            raise TypeError(str(exc).partition("\n")[0]) from exc
        name = self.schema.get("$ref", "").removeprefix("#/$defs/")
        if name:  # The root of a recursive model is a reference.
            self.schema = {**self.schema["$defs"][name], "$defs": self.schema["$defs"]}
        self._wrapped = wrapped
        version = tuple(int(part) for part in pydantic.VERSION.split(".")[:2])
        # Tools use Python names, but the schema uses aliases.
        self._names = {"by_alias": True, "by_name": True} if version >= (2, 11) else {}

    def encode(self, value: Any) -> bytes:
        """Return the JSON of a value.

        Raises:
            ValueError: The value does not fit the type.
        """
        valid = self._adapter.validate_python(value, **self._names)
        if not self._wrapped and as_model(type(valid)) is not None:
            # A subclass keeps the fields that it adds.
            text: str = valid.model_dump_json(by_alias=True)
            return text.encode()
        encoded: bytes = self._adapter.dump_json(valid, by_alias=True)
        return encoded

    def warm_up(self) -> None:
        """Do nothing: pydantic has compiled its validator already."""


_MARKS = ("__get_pydantic_core_schema__", "__pydantic_validator__", "__pydantic_config__")


def contains_pydantic_type(kind: Any, seen: set[Any] | None = None) -> bool:
    """Return True if pydantic defines a part of a type."""
    seen = set() if seen is None else seen
    alias = alias_of(kind)
    if alias is not None:
        if alias in seen or alias.__module__.partition(".")[0] == "pydantic":
            return alias not in seen
        seen.add(alias)
        return contains_pydantic_type(alias_value(kind), seen)
    parts = typing.get_args(kind)
    if typing.get_origin(kind) is Annotated:
        notes = [type(note).__module__.partition(".")[0] for note in parts[1:]]
        return "pydantic" in notes or contains_pydantic_type(parts[0], seen)
    if parts:
        every = (*parts, typing.get_origin(kind))
        return any(contains_pydantic_type(part, seen) for part in every)
    if not isinstance(kind, type) or kind in seen:
        return False
    seen.add(kind)
    if any(hasattr(kind, name) for name in _MARKS):
        return True
    return any(
        contains_pydantic_type(field.kind, seen) or is_pydantic_field(field.default)
        for field in object_fields(kind) or ()
    )


def _model(pydantic: Any, name: str, fields: list[Field]) -> Any:
    members = {f.name: f.kind if f.required else (f.kind, f.default) for f in fields}
    config = pydantic.ConfigDict(from_attributes=True)
    return pydantic.create_model(name, __config__=config, **members)


def _has_own_output_names(kind: Any, seen: set[Any]) -> bool:
    """Return True if a model names a field differently in its output than in its input."""
    if as_model(kind) is not None and kind not in seen:
        seen.add(kind)
        fields = kind.model_fields.values()
        if any(f.serialization_alias != f.alias for f in fields):
            return True
        return any(_has_own_output_names(f.annotation, seen) for f in fields)
    return any(_has_own_output_names(part, seen) for part in typing.get_args(kind))
