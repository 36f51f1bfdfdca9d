"""Encoding of the values of tools whose return type msgspec supports."""

import base64
import datetime
import typing
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from ...protocol.schema.validation import Checker, InvalidArguments
from ..schema.foreign_types import to_plain
from ..schema.msgspec_types import has_foreign_notes, to_msgspec_type
from ..schema.object_fields import object_fields
from .encode_result import json_of

__all__ = ["NativeOutput"]

_RESPELLED = (bytes, bytearray, datetime.timedelta)


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
        self._kind = kind = to_msgspec_type(kind)
        # Values of exactly these types need no check.
        self._exact = kind if kind in (str, int, bool) else None
        self.takes_any_text = kind is str
        self._fields = object_fields(kind)
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
        if self._attributes and not isinstance(value, dict):
            value = {name: getattr(value, name) for name in self._attributes}
        body = json_of(value)
        made = self._checked(value, body)
        if self._respelled:
            return json_of(_respell(_to_builtins(made)))
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
        if type(value) is not dict or self._fields is None:
            return value
        # A dict in place of an object gets the defaults and loses unknown members.
        if type(decoded) is dict:
            return value if len(decoded) == len(value) else decoded
        return {field.key: getattr(decoded, field.name) for field in self._fields}

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


def _is_respelled(kind: type) -> bool:
    return issubclass(kind, _RESPELLED)


def _contains(kind: Any, matches: Callable[[type], bool], seen: set[Any]) -> bool:
    """Return True if a type, one of its parts or a field of its classes matches."""
    parts = typing.get_args(kind)
    if parts:
        return any(_contains(part, matches, seen) for part in (*parts, typing.get_origin(kind)))
    if not isinstance(kind, type) or kind in seen:
        return False
    seen.add(kind)
    return matches(kind) or any(
        _contains(field.kind, matches, seen) for field in object_fields(kind) or ()
    )


def _to_builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=(Raw, *_RESPELLED), enc_hook=to_plain)


def _respell(value: Any) -> Any:
    """Return a value with bytes and durations in the format of pydantic.

    msgspec encodes bytes in base64, and writes hours and minutes as seconds.
    """
    if isinstance(value, dict):
        return {_respell(key): _respell(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_respell(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value


def _duration(span: datetime.timedelta) -> str:
    """Return a duration in the form of ISO 8601: `P1DT2H`."""
    sign = "-" if span < datetime.timedelta(0) else ""
    span = abs(span)
    years, days = divmod(span.days, 365)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{span.microseconds:06}".rstrip("0") if span.microseconds else ""
    day_part = _amounts((years, "Y"), (days, "D"))
    time_part = _amounts((hours, "H"), (minutes, "M"))
    if seconds or fraction or not day_part + time_part:
        time_part += f"{seconds}{fraction}S"
    return f"{sign}P{day_part}" + (f"T{time_part}" if time_part else "")


def _amounts(*parts: tuple[int, str]) -> str:
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount)
