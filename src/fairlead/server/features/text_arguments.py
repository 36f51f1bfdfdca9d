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
from ...wire.error_codes import INVALID_PARAMS
from ..context.context import Context
from ..schema.annotations import read_notes, satisfies_limit
from ..schema.signature import context_parameter, require_function, require_names

__all__ = ["TextParameter", "TextSignature"]


class TextParameter(Struct, frozen=True):
    """One parameter: its name, its type and the constraints on its text."""

    name: str
    kind: Any
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
        TypeError: The function has positional-only parameters, or is a generator.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        require_function(function)
        self.takes_any = False
        self.parameters: dict[str, TextParameter] = {}
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError):  # An unresolvable annotation, or an object with `__call__`.
            hints = {}
        self.context_name = context_parameter(hints, Context)
        for parameter in inspect.signature(function).parameters.values():
            require_names("the function", parameter)
            if parameter.kind is parameter.VAR_KEYWORD:
                self.takes_any = True
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                continue
            if parameter.name == self.context_name:
                continue
            kind = hints.get(parameter.name, str)
            title, description = _words(kind)
            self.parameters[parameter.name] = TextParameter(
                parameter.name,
                kind,
                parameter.default is parameter.empty,
                title,
                description,
                _choices(kind),
                _pattern(kind),
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
        value = msgspec.convert(text, kind, strict=False)
        # msgspec reads "nan" and "inf" as numbers; JSON does not have them.
        if isinstance(value, float) and not isfinite(value):
            raise msgspec.ValidationError(f"{text!r} is not a number")
        return value
    except (msgspec.ValidationError, TypeError) as plain:
        try:
            return msgspec.json.decode(text, type=kind, strict=False)
        except (msgspec.DecodeError, TypeError, RecursionError):
            choices = _choices(kind)
            why = f"must be one of {', '.join(choices)}" if choices else str(plain)
            raise RpcError(INVALID_PARAMS, f"{name}: {why}", {"argument": name}) from plain


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
