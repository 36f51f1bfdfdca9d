"""JSON Schema of a function's signature, and the decoder of its arguments.

The arguments of a call are decoded directly into a struct generated from the signature: types,
defaults and unknown names are checked in one pass over the bytes, and numbers that models send as
strings are accepted (0.5 µs). A signature that msgspec does not support, such as a union of two
objects, takes the slow path: the arguments are decoded, validated against the schema and converted
parameter by parameter (10 µs). Unknown names are rejected, so that a model notices a misspelt name.
"""

import functools
import inspect
import re
import typing
from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw

from ...protocol.schema.validation import Checker, FieldError, InvalidArguments, reasons
from ...wire.json import UNREADABLE, read_json
from .docstrings import parameter_texts
from .foreign_types import converter, from_json, is_dependency, is_pydantic_field
from .header_annotation import flat_headers
from .msgspec_types import to_msgspec_type
from .object_fields import with_default
from .schema_builder import SchemaBuilder

__all__ = [
    "Signature",
    "context_parameter",
    "hints_of",
    "require_bound",
    "require_function",
    "require_names",
    "unwrap_partials",
]


class Signature:
    """The signature of a function that is called with JSON arguments.

    Raises:
        TypeError: The function is a generator, has positional-only parameters, or has a parameter
        of a type without a JSON form. The message names function and parameter.
    """

    def __init__(self, function: Callable[..., Any], *, context_type: type | None = None) -> None:
        require_function(function)
        self.function = function
        self.where = f"{unwrap_partials(function).__module__}.{_name_of(unwrap_partials(function))}"
        self.context_name: str | None = None
        self.returns: Any = None  # the return annotation, if any
        fields = self._fields(function, context_type)
        self._names = [name for name, _, _ in fields]
        self._converters: dict[str, Callable[[Any, bool], Any]] = {}
        self._decode: Callable[[Raw | bytes], Any]
        # used if the schema contains the type `number`
        self._decode_strictly: Callable[[Raw | bytes], Any]
        forms = SchemaBuilder()
        try:
            struct = _struct(fields)
            schema = forms.native(struct).schema
            self._decode = msgspec.json.Decoder(struct, strict=False, dec_hook=from_json).decode
            self._decode_strictly = msgspec.json.Decoder(struct, dec_hook=from_json).decode
            self._converters = {name: converter(kind) for name, kind, _ in fields}
            self.fast = True
        # msgspec rejects the signature as a whole, for example because of a union of two objects.
        except TypeError:
            forms = SchemaBuilder()
            schema = self._take_apart(fields, forms)
            self._decode = self._decode_slowly
            self.fast = False
        schema = self._described(forms.root(schema), fields)
        self._checker = Checker(schema)
        encoded = msgspec.json.encode(schema)
        self._numbers = self.fast and b'"number"' in encoded
        self._patterns = self.fast and b'"pattern":' in encoded
        # The validator keeps the complete schema; only the published schema is simplified.
        self.schema = flat_headers(schema)
        by_position = self.context_name is None and not self._keyword_only
        self.call = self._call_by_position if by_position else self._call_by_name

    def decode(self, arguments: Raw | bytes) -> Any:
        """Decode the bytes of an arguments object.

        Raises:
            InvalidArguments: The arguments are invalid; the error lists every problem.
        """
        if self._patterns:
            self._check_patterns(arguments)
        if self._numbers:
            # Numbers are rarely sent as strings.
            # If none is, the search below, which costs more than the decoding, is not needed.
            try:
                return self._decode_strictly(arguments)
            except (msgspec.ValidationError, UnicodeDecodeError, RecursionError):
                pass  # The lenient decoder reports the problem, if there is one.
        try:
            decoded = self._decode(arguments)
        except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as exc:
            raise InvalidArguments(self._problems(arguments, exc)) from exc
        if self._numbers and _NOT_FINITE.search(arguments):
            errors = self._convert(msgspec.json.decode(arguments))
            if errors:
                raise InvalidArguments(errors)
        return decoded

    def _check_patterns(self, arguments: Raw | bytes) -> None:
        """Reject arguments that do not match the schema before they are decoded.

        The decoder matches patterns with Python's `re`, which may take exponential time; the
        validator takes linear time.
        """
        try:
            values = msgspec.json.decode(arguments, type=dict[str, Any])
        except UNREADABLE:
            return  # The decoder reports the problem.
        errors = self._checker.coerce_strings(values)
        if errors:
            raise InvalidArguments(errors)

    def warm_up(self) -> None:
        """Compile the validator if every call needs it."""
        if not self.fast or self._patterns:
            self._checker.compile()

    # `call(arguments, context)` calls the function; a coroutine function returns its coroutine.

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
            hints = hints_of(function)
        except NameError as exc:
            raise TypeError(
                f"{self.where}: {_unresolved(function, exc)} cannot be resolved: {exc}. Import or "
                "define it before the function, and not only for type checkers"
            ) from exc
        self.returns = hints.get("return")
        if context_type is not None:
            self.context_name = context_parameter(hints, context_type)
        fields: list[tuple[str, Any, Any]] = []
        self._keyword_only = False
        for index, parameter in enumerate(inspect.signature(function).parameters.values()):
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            # The receiver of an unbound method is not an argument.
            if index == 0 and name in ("self", "cls") and name not in hints:
                continue
            if name == self.context_name:
                continue
            require_names(self.where, parameter, hints.get(name))
            self._keyword_only |= parameter.kind is parameter.KEYWORD_ONLY
            kind, default = hints.get(name, Any), parameter.default
            if is_pydantic_field(default):  # `days: int = Field(3, ge=1)`
                kind = typing.Annotated[kind, default]
                default = _default_of(default)
            try:
                fields.append((name, to_msgspec_type(kind), default))
            except TypeError as exc:
                raise TypeError(f"{self.where}: parameter {name!r}: {exc}") from exc
        return fields

    def _take_apart(
        self, fields: list[tuple[str, Any, Any]], forms: SchemaBuilder
    ) -> dict[str, Any]:
        """Return the schema and register the converters, parameter by parameter."""
        properties = {}
        for name, kind, _ in fields:
            try:
                properties[name], self._converters[name] = forms.of(kind)
            except TypeError as exc:
                raise TypeError(
                    f"{self.where}: parameter {name!r} has no JSON form: {exc}. Annotate it with a "
                    "type that can be represented in JSON, or remove it from the signature"
                ) from exc
        self._loose = _struct([(name, Any, default) for name, _, default in fields])
        return {
            "type": "object",
            "properties": properties,
            "required": [name for name, _, default in fields if default is inspect.Parameter.empty],
            "additionalProperties": False,
        }

    def _decode_slowly(self, arguments: Raw | bytes) -> Any:
        try:
            values = msgspec.json.decode(arguments, type=dict[str, Any])
        except msgspec.DecodeError as exc:
            raise InvalidArguments([FieldError("arguments", str(exc))]) from exc
        errors = self._convert(values)
        if errors:
            raise InvalidArguments(errors)
        return self._loose(**values)

    def _convert(self, values: dict[str, Any]) -> list[FieldError]:
        """Convert the arguments in place; return the violations of the schema and of the types."""
        errors = self._checker.coerce_strings(values)
        wrong = {error.field.partition(".")[0] for error in errors}
        for name in values:
            # A value that violates the schema would be reported twice.
            if name in wrong or name not in self._converters:
                continue
            try:
                values[name] = self._converters[name](values[name], False)
            except (ValueError, TypeError, msgspec.ValidationError) as exc:
                errors += reasons(exc, name)
        return errors

    def _described(
        self, schema: dict[str, Any], fields: list[tuple[str, Any, Any]]
    ) -> dict[str, Any]:
        """Add descriptions from the docstring and the defaults to the schema."""
        schema.pop("title", None)
        properties = schema["properties"]
        texts = parameter_texts(inspect.getdoc(unwrap_partials(self.function)) or "")
        for name, _, default in fields:
            if name in texts:
                properties[name].setdefault("description", texts[name])
            if default is not inspect.Parameter.empty and "default" not in properties[name]:
                properties[name] = with_default(properties[name], default)
        return schema

    def _problems(self, arguments: Raw | bytes, cause: Exception) -> list[FieldError]:
        """Return every problem that the validator finds, because the decoder stops at the first."""
        values = read_json(arguments, dict[str, Any], None)
        if values is None:
            return [FieldError("arguments", str(cause))]
        return self._convert(values) or reasons(cause)


_as_tuple = msgspec.structs.astuple


def unwrap_partials(function: Callable[..., Any]) -> Any:
    """Return the function inside of nested `functools.partial` objects."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def require_function(function: Any) -> None:
    """Check that an object is a function that returns one value.

    Raises:
        TypeError: The object cannot be called, or is a class, a generator function or a built-in
            function without a signature.
    """
    if not callable(function):
        # Python calls decorators from the bottom up, so this one was above `@classmethod`.
        is_early = isinstance(function, classmethod)
        remedy = ": register the method after the class" if is_early else ""
        raise TypeError(f"expected a function, not {function!r}{remedy}")
    target = unwrap_partials(function)
    if isinstance(target, type):
        raise TypeError(
            f"expected a function, not the class {target.__name__}: write a function that creates "
            "the object, or register a method of an object"
        )
    try:
        inspect.signature(function)
    except ValueError as exc:
        raise TypeError(
            f"the parameters of {_name_of(target)} are unknown: write a function that calls it"
        ) from exc
    called = target if inspect.isroutine(target) else type(target).__call__
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise TypeError(
            f"{_name_of(target)} is a generator function: return a list instead of yielding"
        )


def require_bound(function: Callable[..., Any]) -> None:
    """Check that a method has an object, because its `self` cannot be an argument.

    Raises:
        TypeError: The first parameter is `self` or `cls`, without an annotation.
    """
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.name not in ("self", "cls"):
        return
    if first.annotation is first.empty and first.default is first.empty:
        name = _name_of(unwrap_partials(function)).rpartition(".<locals>.")[2]
        kind, _, method = name.rpartition(".")
        example = f", such as {kind}().{method}" if kind else ""
        raise TypeError(
            f"{name} is a method without an object: create the object and register its method"
            f"{example}"
        )


def require_names(where: str, parameter: inspect.Parameter, kind: Any = None) -> None:
    """Check that callers can pass a parameter by its name; `kind` is its resolved annotation.

    Raises:
        TypeError: The parameter is positional-only, or another library would inject its value.
    """
    metadata = getattr(kind or parameter.annotation, "__metadata__", ())
    if any(map(is_dependency, (parameter.default, *metadata))):
        raise TypeError(
            f"{where}: parameter {parameter.name!r} is a dependency, and dependencies are not "
            "injected: yield the value from `lifespan=` of the server, and use `ctx.state`"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(
            f"{where}: parameter {parameter.name!r} is positional-only; arguments are passed by "
            "name, so remove the '/'"
        )


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a callable.

    Raises:
        NameError: An annotation cannot be resolved.
    """
    target = inspect.unwrap(unwrap_partials(function))
    if not inspect.isroutine(target):  # An object with `__call__`.
        target = type(target).__call__
    return typing.get_type_hints(target, include_extras=True)


def context_parameter(hints: dict[str, Any], context_type: type) -> str | None:
    """Return the name of the parameter that is annotated as the context, or None."""
    for name, kind in hints.items():
        if name != "return" and _is_context(kind, context_type):
            return name
    return None


def _unresolved(function: Callable[..., Any], exc: NameError) -> str:
    """Describe the annotation that contains an undefined name."""
    target = inspect.unwrap(unwrap_partials(function))
    for name, kind in getattr(target, "__annotations__", {}).items():
        if isinstance(kind, str) and re.search(rf"\b{re.escape(exc.name or '')}\b", kind):
            what = "the return value" if name == "return" else f"parameter {name!r}"
            return f"the annotation {kind!r} of {what}"
    return "an annotation"


# The decoder accepts the strings "nan" and "inf" as numbers, which JSON does not have.
# Arguments that may contain them, also as `\u` escapes, are validated against the schema.
_NOT_FINITE = re.compile(rb'(?i:nan|inf|infinity)"|\\u')


def _struct(fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        "Arguments",
        [(name, kind, _default(default)) for name, kind, default in fields],
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _default(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    if default is None or isinstance(default, str | int | float):
        return default
    if isinstance(default, list | dict | set | bytearray):
        # A copy for each call, because the function may change the value.
        return msgspec.field(default_factory=lambda: copy(default))
    return msgspec.field(default_factory=lambda: default)


def _default_of(field: Any) -> Any:
    if field.is_required():
        return inspect.Parameter.empty
    return field.get_default(call_default_factory=True)


def _is_context(kind: Any, context_type: type) -> bool:
    """Return True for `Context`, `Context | None` and `Annotated[Context, ...]`."""
    if isinstance(kind, type):
        return issubclass(kind, context_type)
    return any(_is_context(option, context_type) for option in typing.get_args(kind)[:2])


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__
