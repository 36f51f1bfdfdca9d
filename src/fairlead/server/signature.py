"""From a function's signature to a JSON Schema and a decoder for its arguments.

The arguments of a call are decoded straight into a struct generated from the signature: types,
defaults and unknown names are checked in one pass over the bytes, and numbers that models like to
write as strings are accepted. A signature that msgspec cannot express takes the long way: decoded
plainly, checked against its schema, converted parameter by parameter.
"""

import functools
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import msgspec
from msgspec import Raw

from .schema import Forms, check_headers, converter, flat_headers, from_json, normal, to_plain

__all__ = [
    "Checker",
    "FieldError",
    "InvalidArguments",
    "Signature",
    "behind_partials",
    "context_parameter",
    "hints_of",
    "reasons",
]


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


class Checker:
    """Finds everything that is wrong with a value, by its schema."""

    def __init__(self, schema: dict[str, Any], root: str = "arguments") -> None:
        self._schema = schema
        self._root = root  # what the value as a whole is called
        self._validator: Any = None

    def problems(self, value: Any) -> list[FieldError]:
        return [fact for error in self._errors(value) for fact in self._explained(error)]

    def mend(self, values: dict[str, Any]) -> list[FieldError]:
        """Read numbers and booleans from strings where the schema wants them; what is left wrong?

        The values are changed in place.
        """
        for _ in range(8):  # a mended value may bring to light what else is wrong around it
            errors = list(self._errors(values))
            if not [error for error in errors if _mend(values, error)]:
                break
        return [fact for error in errors for fact in self._explained(error)]

    def _errors(self, value: Any) -> Iterator[Any]:
        if self._validator is None:
            import jsonschema_rs

            self._validator = jsonschema_rs.validator_for(self._schema, retriever=_refuse_reference)
        found: Iterator[Any] = self._validator.iter_errors(value)
        return found

    def _explained(self, error: Any) -> list[FieldError]:
        kind = error.kind
        if kind.name in ("anyOf", "oneOf"):
            meant = [branch for branch in kind.context or () if not _is_other(branch, error)]
            if len(meant) == 1 and meant[0]:
                return [fact for inner in meant[0] for fact in self._explained(inner)]
        path = [str(part) for part in error.instance_path]
        value = error.instance if path else None
        return [FieldError(".".join(path) or self._root, error.message, value)]


class Signature:
    """How a function is called with JSON.

    Raises:
        TypeError: when built, if a parameter has a type without a JSON form; names function and
        parameter.
    """

    def __init__(self, function: Callable[..., Any], *, context_type: type | None = None) -> None:
        self.function = function
        self.where = f"{behind_partials(function).__module__}.{_name_of(behind_partials(function))}"
        self.context_name: str | None = None
        self.returns: Any = None  # what the function's annotation says, if it says something
        fields = self._fields(function, context_type)
        self._names = [name for name, _, _ in fields]
        self._converters: dict[str, Callable[[Any, bool], Any]] = {}
        self._decode: Callable[[Raw | bytes], Any]
        forms = Forms()
        try:
            struct = _struct(fields)
            schema = forms.native(struct).schema
            self._decode = msgspec.json.Decoder(struct, strict=False, dec_hook=from_json).decode
            self._converters = {name: converter(kind) for name, kind, _ in fields}
            self.fast = True
        except TypeError:
            forms = Forms()
            schema = self._take_apart(fields, forms)
            self._decode = self._decode_slowly
            self.fast = False
        schema = self._described(forms.root(schema), fields)
        self._checker = Checker(schema)
        self.schema = flat_headers(schema)
        check_headers(self.schema, self.where)
        by_position = self.context_name is None and not self._keyword_only
        self.call = self._call_by_position if by_position else self._call_by_name

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
            hints = hints_of(function)
        except NameError as exc:
            raise TypeError(f"{self.where}: an annotation cannot be resolved: {exc}") from exc
        self.returns = hints.get("return")
        if context_type is not None:
            self.context_name = context_parameter(hints, context_type)
        fields: list[tuple[str, Any, Any]] = []
        self._keyword_only = False
        for index, parameter in enumerate(inspect.signature(function).parameters.values()):
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if index == 0 and name in ("self", "cls") and name not in hints:
                continue
            if name == self.context_name:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise TypeError(
                    f"{self.where}: parameter {name!r} is positional-only; tools are called by name"
                )
            self._keyword_only |= parameter.kind is parameter.KEYWORD_ONLY
            kind, default = hints.get(name, Any), parameter.default
            if _is_pydantic_field(default):  # `days: int = Field(3, ge=1)`
                kind = typing.Annotated[kind, default]
                default = _default_of(default)
            try:
                fields.append((name, normal(kind), default))
            except TypeError as exc:
                raise TypeError(f"{self.where}: parameter {name!r}: {exc}") from exc
        return fields

    # The long way.

    def _take_apart(self, fields: list[tuple[str, Any, Any]], forms: Forms) -> dict[str, Any]:
        """A schema, and converters, parameter by parameter."""
        properties = {}
        for name, kind, _ in fields:
            try:
                properties[name], self._converters[name] = forms.of(kind)
            except TypeError as exc:
                raise TypeError(
                    f"{self.where}: parameter {name!r} has no JSON form: {exc}. Annotate it with a "
                    "type that JSON can carry, or give it a default and drop it from the signature"
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
        """Convert the arguments in place; what is wrong, by the schema or only by the type?"""
        errors = self._checker.mend(values)
        wrong = {error.field.partition(".")[0] for error in errors}
        for name in values:
            if name in wrong or name not in self._converters:
                continue
            try:
                values[name] = self._converters[name](values[name], False)
            except (ValueError, TypeError, msgspec.ValidationError) as exc:
                errors += reasons(exc, name)
        return errors

    # Schemas and problems in words.

    def _described(
        self, schema: dict[str, Any], fields: list[tuple[str, Any, Any]]
    ) -> dict[str, Any]:
        """With what docstring and defaults tell, for people and models to read."""
        schema.pop("title", None)
        properties = schema["properties"]
        texts = parameter_texts(inspect.getdoc(behind_partials(self.function)) or "")
        for name, _, default in fields:
            if name in texts:
                properties[name].setdefault("description", texts[name])
            if default is inspect.Parameter.empty or "default" in properties[name]:
                continue
            try:
                plain = msgspec.json.decode(msgspec.json.encode(default, enc_hook=to_plain))
            except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
                continue  # a default that JSON cannot carry is nobody's business but the function's
            properties[name]["default"] = plain
        return schema

    def _problems(self, arguments: Raw | bytes, cause: Exception) -> list[FieldError]:
        """The decoder stops at the first problem; the schema knows all of them."""
        try:
            values = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [FieldError("arguments", str(cause))]
        if not isinstance(values, dict):
            return [FieldError("arguments", str(cause))]
        return self._convert(values) or reasons(cause)


_as_tuple = msgspec.structs.astuple


def behind_partials(function: Callable[..., Any]) -> Any:
    """The function that a `functools.partial` of it calls in the end."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of anything that can be called. Raises `NameError`."""
    target = inspect.unwrap(behind_partials(function))
    if not inspect.isroutine(target):  # an object that can be called
        target = type(target).__call__
    return typing.get_type_hints(target, include_extras=True)


def context_parameter(hints: dict[str, Any], context_type: type) -> str | None:
    """The parameter that gets the context, by its annotation, whatever its name."""
    for name, kind in hints.items():
        if name != "return" and _is_context(kind, context_type):
            return name
    return None


# Docstrings: "Args:" with indented lines (Google), "Parameters" underlined (numpy), ":param x:".

_REST = re.compile(r"^:param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_GOOGLE = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY = re.compile(r"^\*{0,2}(\w+)\s*(?::.*)?$")
_HEADINGS = ("args:", "arguments:", "parameters:", "params:")


def parameter_texts(doc: str) -> dict[str, str]:
    """What a docstring says about each parameter."""
    lines = doc.splitlines()
    texts: dict[str, list[str]] = {}
    for index, line in enumerate(lines):
        below = lines[index + 1] if index + 1 < len(lines) else ""
        if match := _REST.match(line.strip()):
            texts[match[1]] = [match[2], *_indented(lines[index + 1 :], _indent(line))]
        elif line.strip().lower() in _HEADINGS:
            _read_section(_indented(lines[index + 1 :], _indent(line), keep=True), _GOOGLE, texts)
        elif line.strip() == "Parameters" and below.strip().startswith("---"):
            _read_section(_until_heading(lines[index + 2 :]), _NUMPY, texts)
    joined = {name: " ".join(" ".join(parts).split()) for name, parts in texts.items()}
    return {name: text for name, text in joined.items() if text}


def _read_section(lines: list[str], entry: re.Pattern[str], texts: dict[str, list[str]]) -> None:
    margin = min((_indent(line) for line in lines if line.strip()), default=0)
    current: list[str] | None = None
    for line in lines:
        match = entry.match(line.strip()) if _indent(line) == margin else None
        if match:
            current = texts[match[1]] = list(match.groups()[1:])
        elif current is not None:
            current.append(line)


def _indented(lines: list[str], margin: int, *, keep: bool = False) -> list[str]:
    """The lines that belong to the one above them; blank lines between only with `keep`."""
    found = []
    for line in lines:
        if (line.strip() or not keep) and (not line.strip() or _indent(line) <= margin):
            break
        found.append(line)
    return found


def _until_heading(lines: list[str]) -> list[str]:
    for index, line in enumerate(lines[1:]):
        if line.strip().startswith("---"):
            return lines[:index]
    return lines


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# Defaults.


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
        return msgspec.field(default_factory=lambda: copy(default))
    return msgspec.field(default_factory=lambda: default)


def _is_pydantic_field(value: Any) -> bool:
    return type(value).__name__ == "FieldInfo" and type(value).__module__ == "pydantic.fields"


def _default_of(field: Any) -> Any:
    if field.is_required():
        return inspect.Parameter.empty
    return field.get_default(call_default_factory=True)


def _is_context(kind: Any, context_type: type) -> bool:
    """`Context`, `Context | None`, `Annotated[Context, ...]`."""
    if isinstance(kind, type):
        return issubclass(kind, context_type)
    return any(_is_context(option, context_type) for option in typing.get_args(kind)[:2])


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


# Problems.


def _mend(values: Any, error: Any) -> bool:
    """Put right what only has the wrong type because it was written as a string."""
    path, kind = error.instance_path, error.kind
    if kind.name in ("anyOf", "oneOf"):
        branches = [b for b in kind.context if b and all(_read(e) is not None for e in b)]
        return bool(branches) and sum(_mend(values, e) for e in branches[0]) > 0
    better = _read(error)
    if better is None or not path:
        return False
    for part in path[:-1]:
        values = values[part]
    if type(values[path[-1]]) is not str:
        return False
    values[path[-1]] = better
    return True


def _is_other(branch: list[Any], error: Any) -> bool:
    """Of a union: is it the whole value that has another type than this branch wants?"""
    return any(e.kind.name == "type" and e.instance_path == error.instance_path for e in branch)


def _read(error: Any) -> Any:
    """The number or boolean that a string was meant to be; None if it was not."""
    text, kind = error.instance, error.kind
    if type(text) is not str:
        return None
    match kind.name:
        case "type":
            options = (_parsed(text, wanted) for wanted in kind.types)
            return next((option for option in options if option is not None), None)
        case "enum":
            for wanted in ("integer", "number", "boolean"):
                value = _parsed(text, wanted)
                if value is not None and any(
                    value == option and isinstance(option, bool) == isinstance(value, bool)
                    for option in kind.options
                ):
                    return value
    return None


def _parsed(text: str, wanted: str) -> Any:
    match wanted:
        case "boolean":
            return {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
        case "integer" if re.fullmatch(r"-?\d{1,400}", text, re.ASCII):
            return int(text)
        case "integer" | "number" if _NUMBER.fullmatch(text):
            number = float(text)
            if wanted == "integer":
                return int(number) if number.is_integer() else None
            return number if math.isfinite(number) else None
    return None


_NUMBER = re.compile(r"-?\d{1,400}(\.\d+)?([eE][-+]?\d+)?", re.ASCII)


def reasons(cause: BaseException, name: str = "", root: str = "arguments") -> list[FieldError]:
    """What an exception says, field by field if it was one of pydantic's.

    `name` is the field that was looked at, `root` what all of it is called.
    """
    what, _, where = str(cause).partition(" - at `$")
    path = [name] if name else []
    path += [part for part in re.split(r"[.\[\]]+", where.rstrip("`")) if part]
    details = getattr(cause.__cause__ or cause, "errors", None)
    if not callable(details):
        return [FieldError(".".join(path) or root, what)]
    return [
        FieldError(".".join([*path, *map(str, detail["loc"])]) or root, str(detail["msg"]))
        for detail in details(include_url=False, include_context=False)
    ]


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"references to {uri} are not followed")
