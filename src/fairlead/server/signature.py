"""From a function's signature to a JSON Schema and a decoder for its arguments.

The arguments of a call are decoded straight into a struct generated from the signature: types,
defaults and unknown names are checked in one pass over the bytes, and numbers that models like to
write as strings are accepted.
"""

import inspect
import typing
from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw

__all__ = ["FieldError", "InvalidArguments", "Signature"]


class FieldError(msgspec.Struct, frozen=True):
    """One thing that is wrong with the arguments of a call."""

    field: str
    constraint: str
    value: Any = None


class InvalidArguments(ValueError):
    """The arguments do not fit; `errors` lists every problem."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.field}: {e.constraint}" for e in errors))
        self.errors = errors


class Signature:
    """How a function is called with JSON.

    Raises:
        TypeError: when built, if a parameter has a type without a JSON form; names function and
        parameter.
    """

    def __init__(self, function: Callable[..., Any], *, context_type: type | None = None) -> None:
        self.function = function
        self._where = f"{function.__module__}.{function.__qualname__}"
        self.context_name: str | None = None
        fields = self._fields(function, context_type)
        names = [name for name, _, _ in fields]
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        try:
            self._decode = msgspec.json.Decoder(struct, strict=False).decode
            self.schema = _schema_of(struct)
        except TypeError as exc:
            raise TypeError(self._blame(fields, exc)) from exc
        self._struct = struct
        self._names = names
        by_position = self.context_name is None and not self._keyword_only
        self.call = self._call_by_position if by_position else self._call_by_name
        self._validator: Any = None

    def decode(self, arguments: Raw | bytes) -> Any:
        """Decode the bytes of an arguments object.

        Raises:
            InvalidArguments: with the full list of what is wrong.
        """
        try:
            return self._decode(arguments)
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as exc:
            raise InvalidArguments(self._problems(arguments, exc)) from exc

    # `call(arguments, context)` calls the function; of a coroutine function it returns a coroutine.

    def _call_by_position(self, arguments: Any, context: object) -> Any:
        return self.function(*_as_tuple(arguments))

    def _call_by_name(self, arguments: Any, context: object) -> Any:
        values = {name: getattr(arguments, name) for name in self._names}
        if self.context_name is not None:
            values[self.context_name] = context
        return self.function(**values)

    def _fields(
        self, function: Callable[..., Any], context_type: type | None
    ) -> list[tuple[str, Any, Any]]:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as exc:
            raise TypeError(f"{self._where}: an annotation cannot be resolved: {exc}") from exc
        fields: list[tuple[str, Any, Any]] = []
        self._keyword_only = False
        for index, parameter in enumerate(inspect.signature(function).parameters.values()):
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if index == 0 and parameter.name in ("self", "cls") and parameter.name not in hints:
                continue
            kind = hints.get(parameter.name, Any)
            if context_type is not None and _is_context(kind, context_type):
                self.context_name = parameter.name
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(
                    f"{self._where}: parameter {parameter.name!r} is positional-only; "
                    "tools are called by name"
                )
            self._keyword_only |= parameter.kind is parameter.KEYWORD_ONLY
            fields.append((parameter.name, kind, _default(parameter)))
        return fields

    def _blame(self, fields: list[tuple[str, Any, Any]], cause: TypeError) -> str:
        """Which parameter has no JSON form?"""
        for name, kind, _ in fields:
            try:
                msgspec.json.Decoder(kind)
                msgspec.json.schema(kind)
            except TypeError as exc:
                return f"{self._where}: parameter {name!r} has no JSON form: {exc}"
        return f"{self._where}: {cause}"

    def _problems(self, arguments: Raw | bytes, cause: Exception) -> list[FieldError]:
        """The decoder stops at the first problem; the schema knows all of them."""
        try:
            values = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [FieldError("arguments", str(cause))]
        if self._validator is None:
            import jsonschema_rs

            self._validator = jsonschema_rs.validator_for(self.schema)
        problems = []
        for error in self._validator.iter_errors(values):
            path = ".".join(str(part) for part in error.instance_path) or "arguments"
            value = error.instance if path != "arguments" else None
            problems.append(FieldError(path, error.message, value))
        # Something the schema allows and the type does not (or the other way round, by coercion).
        return problems or [FieldError(*_where_and_what(str(cause)))]


_as_tuple = msgspec.structs.astuple


def _default(parameter: inspect.Parameter) -> Any:
    default = parameter.default
    if default is parameter.empty:
        return msgspec.NODEFAULT
    if isinstance(default, list | dict | set | bytearray):
        return msgspec.field(default_factory=lambda: copy(default))
    return default


def _is_context(kind: Any, context_type: type) -> bool:
    """`Context`, `Context | None`, `Annotated[Context, ...]`."""
    if isinstance(kind, type):
        return issubclass(kind, context_type)
    return any(_is_context(option, context_type) for option in typing.get_args(kind)[:2])


def _schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """A schema whose root is the object itself, not a reference to it."""
    _, components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    root: dict[str, Any] = components.pop(struct.__name__)
    root.pop("title", None)
    if not root.get("required"):
        root.pop("required", None)
    if components:
        root["$defs"] = components
    return root


def _where_and_what(message: str) -> tuple[str, str]:
    """Split msgspec's "... - at `$.a.b`"."""
    what, _, where = message.partition(" - at `$.")
    return (where.rstrip("`") or "arguments"), what
