"""Encoding of the values of tools whose return type msgspec supports."""

import typing
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from ...protocol.schema.validation import Checker, InvalidArguments
from ..schema.foreign_types import RESPELLED
from ..schema.msgspec_types import has_foreign_notes, to_msgspec_type
from ..schema.object_fields import object_fields
from ..schema.type_aliases import alias_of, alias_value
from .encode_result import json_of

__all__ = ["NativeOutput"]


class NativeOutput:
    """Encoder of values of one type that checks them.

    `attributes` are the names of the fields if the type is a plain class with annotations. The
    schema is used for values of types that msgspec cannot decode, and if the type is None.
    """

    def __init__(
        self,
        kind: Any,
        schema: dict[str, Any],
        *,
        wrapped: bool,
        attributes: Sequence[str] = (),
    ) -> None:
        self._checker = Checker(schema, "result")
        self._wrapped = wrapped
        self._attributes = attributes
        try:
            kind = to_msgspec_type(kind)
        except TypeError:
            kind = None  # a type alias that refers to itself
        self._kind = kind
        # Values of exactly these types need no check.
        self._exact = kind if kind in (str, int, bool) else None
        self.takes_any_text = kind is str
        self._fields = object_fields(kind)
        # True if parts of a value may have other types than declared, such as a subclass.
        self._rebuilt = _contains(kind, _is_object, set())
        # Instances of exactly this class need not be rebuilt.
        self._flat = kind if _is_flat(kind) else None
        self._respelled = _contains(kind, _is_respelled, set())
        self._decode: Callable[[bytes], Any] | None = None
        # Decoding the JSON as the type is faster than validating it against the schema.
        if kind is not None and not attributes and _reads_back(kind, set()):
            self._decode = msgspec.json.Decoder(kind).decode

    def encode(self, value: Any) -> bytes:
        """Return the JSON of a value.

        Raises:
            InvalidArguments: The value does not match the schema.
            TypeError: The value has no JSON form.
            msgspec.ValidationError: The value does not fit the type.
        """
        if type(value) is self._exact:
            return json_of(value)
        if isinstance(value, str) and self._kind in (bytes, bytearray):
            return json_of(value)  # as in pydantic, text in place of its bytes
        if isinstance(value, bool) and self._kind is int:
            value = int(value)
        if self._attributes and not isinstance(value, dict):
            value = {name: getattr(value, name) for name in self._attributes}
        body = json_of(value)
        made = self._checked(value, body)
        if self._respelled:
            # Loaded on first use: few tools return bytes or durations.
            from ..schema.pydantic_format import in_pydantic_format

            return json_of(in_pydantic_format(made))
        return body if made is value else json_of(made)

    def warm_up(self) -> None:
        """Compile the validator if every result needs it.

        Raises:
            ValueError: The schema is invalid.
        """
        if self._decode is None:
            self._checker.compile()

    def _checked(self, value: Any, body: bytes) -> Any:
        """Return the value, converted to the declared type if necessary."""
        if self._decode is None:
            plain = msgspec.json.decode(body)
            problems = self._checker.problems({"result": plain} if self._wrapped else plain)
            if problems:
                raise InvalidArguments(problems)
            return value
        try:
            decoded = self._decode(body)
        except msgspec.ValidationError as exc:
            return self._converted(body, exc)
        # A dict in place of an object gets the defaults, and both dicts and instances of subclasses
        # lose other members.
        if type(value) is dict and self._fields is not None and type(decoded) is not dict:
            return {field.key: getattr(decoded, field.name) for field in self._fields}
        return decoded if self._rebuilt and type(value) is not self._flat else value

    def _converted(self, body: bytes, cause: msgspec.ValidationError) -> Any:
        """Convert strings to numbers and booleans, as in arguments."""
        try:
            return msgspec.convert(msgspec.json.decode(body), self._kind, strict=False)
        except msgspec.ValidationError:
            raise cause from None


def _reads_back(kind: Any, seen: set[Any]) -> bool:
    """Return True if msgspec can decode a type without running hooks or `__post_init__`.

    Validating a result must not run user code a second time.
    """
    try:
        msgspec.json.schema_components([kind])
    except TypeError:
        return False
    return not has_foreign_notes(kind) and not _contains(kind, _runs_code, seen)


def _runs_code(kind: type) -> bool:
    return hasattr(kind, "__post_init__") or hasattr(kind, "__attrs_attrs__")


def _is_object(kind: type) -> bool:
    return object_fields(kind) is not None or kind is Decimal


def _is_flat(kind: Any) -> bool:
    """Return True for a class whose fields contain no further classes."""
    fields = object_fields(kind)
    return fields is not None and not any(_contains(f.kind, _is_object, set()) for f in fields)


def _is_respelled(kind: type) -> bool:
    return issubclass(kind, RESPELLED)


def _contains(kind: Any, matches: Callable[[type], bool], seen: set[Any]) -> bool:
    """Return True if a type, one of its parts or a field of its classes matches."""
    if alias_of(kind) is not None:
        if alias_of(kind) in seen:
            return False
        seen.add(alias_of(kind))
        return _contains(alias_value(kind), matches, seen)
    parts = typing.get_args(kind)
    if parts:
        return any(_contains(part, matches, seen) for part in (*parts, typing.get_origin(kind)))
    if not isinstance(kind, type) or kind in seen:
        return False
    seen.add(kind)
    return matches(kind) or any(
        _contains(field.kind, matches, seen) for field in object_fields(kind) or ()
    )
