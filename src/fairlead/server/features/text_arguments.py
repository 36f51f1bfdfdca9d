"""Functions whose arguments arrive as text: prompts and URI templates."""

import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import RpcError
from ...protocol.schema.validation import FieldError, reasons
from ...wire.error_codes import INVALID_PARAMS
from ..context.context import Context
from ..schema.annotations import read_notes, satisfies_limit
from ..schema.foreign_types import from_json
from ..schema.msgspec_types import to_msgspec_type
from ..schema.signature import context_parameter, require_bound, require_function, require_names

__all__ = ["TextParameter", "TextSignature"]

_MOST_PROBLEMS = 5  # maximum number of problems that an error about one argument lists


class TextParameter(Struct, frozen=True):
    """One parameter: its name, its type and the constraints on its text."""

    name: str
    kind: Any  # the type for msgspec, with the constraints of the annotation
    required: bool
    title: str | None = None
    description: str | None = None
    choices: tuple[str, ...] = ()  # all accepted texts, if they can be enumerated
    pattern: str | None = None  # pattern that the text must match; checked before msgspec checks it


class TextSignature:
    """Signature of a function that is called with a mapping of texts.

    Texts are converted to the annotated types: numbers and booleans from their text, `Literal` and
    enumerations from their values, other types (a list, a dataclass) from JSON.

    Raises:
        TypeError: The function has positional-only parameters, or is a generator, a class or a
            method without an object; or a limit of a parameter is invalid.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        require_function(function)
        require_bound(function)
        self.takes_any = False
        self.parameters: dict[str, TextParameter] = {}
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError):  # An unresolvable annotation, or an object with `__call__`.
            hints = {}
        self.context_name = context_parameter(hints, Context)
        for parameter in inspect.signature(function).parameters.values():
            require_names("the function", parameter, hints.get(parameter.name))
            if parameter.kind is parameter.VAR_KEYWORD:
                self.takes_any = True
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                continue
            if parameter.name == self.context_name:
                continue
            kind = hints.get(parameter.name, str)
            title, description = _words(kind)
            pattern = _pattern(kind)
            try:
                # msgspec would match a pattern with Python's `re`, see `arguments`.
                decoded = kind if pattern else to_msgspec_type(kind)
            except TypeError as exc:
                raise TypeError(f"parameter {parameter.name!r}: {exc}") from exc
            self.parameters[parameter.name] = TextParameter(
                parameter.name,
                decoded,
                parameter.default is parameter.empty,
                title,
                description,
                _choices(kind),
                pattern,
            )

    def arguments(self, given: Mapping[str, str], context: Context | None) -> dict[str, Any]:
        """Return keyword arguments for the function; texts without a parameter are left out.

        Raises:
            RpcError: -32602, an argument is missing or cannot be converted.
        """
        values: dict[str, Any] = {}
        for name, text in given.items():
            parameter = self.parameters.get(name)
            if parameter is not None:
                # `satisfies_limit` matches in linear time. msgspec's regular expressions
                # backtrack, so a client could block the event loop with its text.
                if parameter.pattern and not satisfies_limit(text, "pattern", parameter.pattern):
                    why = f"must match {parameter.pattern!r}"
                    raise RpcError(INVALID_PARAMS, f"{name}: {why}", {"argument": name})
                values[name] = _convert(name, text, parameter.kind)
            elif self.takes_any:
                values[name] = text
        missing = [n for n, p in self.parameters.items() if p.required and n not in values]
        if missing:
            raise RpcError(
                INVALID_PARAMS, f"Missing arguments: {', '.join(missing)}", {"missing": missing}
            )
        if self.context_name is not None:
            values[self.context_name] = context
        return values


def _convert(name: str, text: str, kind: Any) -> Any:
    try:
        value = msgspec.convert(text, kind, strict=False, dec_hook=from_json)
        # msgspec reads "nan" and "inf" as numbers; JSON does not have them.
        if isinstance(value, float) and not isfinite(value):
            raise msgspec.ValidationError(f"{text!r} is not a number")
        return value
    except (msgspec.ValidationError, TypeError) as plain:
        try:
            return msgspec.json.decode(text, type=kind, strict=False, dec_hook=from_json)
        except (msgspec.DecodeError, TypeError, RecursionError) as exc:
            why = _why(name, text, kind, plain, exc)
            raise RpcError(INVALID_PARAMS, f"{name}: {why}", {"argument": name}) from plain


def _why(name: str, text: str, kind: Any, plain: Exception, exc: Exception) -> str:
    """Return why a text is neither a value of this type itself (`plain`) nor its JSON (`exc`)."""
    if choices := _choices(kind):
        return f"must be one of {', '.join(choices)}"
    if isinstance(exc, msgspec.ValidationError) and text.lstrip()[:1] in ("[", "{"):
        # The text is JSON, but not of this type.
        return "; ".join(_problem(error, name) for error in reasons(exc, name)[:_MOST_PROBLEMS])
    if isinstance(plain.__cause__, ValueError):  # A type of pydantic has rejected the text.
        problems = "; ".join(_problem(error, name) for error in reasons(plain, name))
        return f"{problems}, as JSON text; got {text!r:.100}"
    expected, refused, _ = str(plain).partition(", got `str`")
    if not refused:
        return str(plain)
    form = " as JSON text" if "`array" in expected or "`object" in expected else ""
    return f"{expected}{form}, got {text!r:.100}"


def _problem(error: FieldError, name: str) -> str:
    place = "" if error.field == name else f" at {error.field}"
    return f"{error.constraint}{place}"


def _words(kind: Any) -> tuple[str | None, str | None]:
    """Return title and description from `Annotated`: a string, `msgspec.Meta` or similar."""
    title = description = None
    for extra in getattr(kind, "__metadata__", ()):
        if isinstance(extra, str):
            description = extra
        else:
            title = getattr(extra, "title", None) or title
            description = getattr(extra, "description", None) or description
    return title, description


def _pattern(kind: Any) -> str | None:
    if getattr(kind, "__origin__", None) is not str:
        return None
    limits, _, _ = read_notes(getattr(kind, "__metadata__", ()))
    pattern: str | None = limits.get("pattern")
    return pattern


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return tuple(str(member.value) for member in kind)
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return tuple(str(value) for value in typing.get_args(kind))
    if origin is typing.Annotated:
        return _choices(typing.get_args(kind)[0])
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(kind) if option is not types.NoneType]
        return _choices(options[0]) if len(options) == 1 else ()
    return ()
