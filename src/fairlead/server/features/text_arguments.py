"""Functions whose arguments arrive as text: those of prompts and of URI templates."""

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

__all__ = ["TextParameter", "TextSignature"]


class TextParameter(Struct, frozen=True):
    """One parameter: what it is called, and what its text is turned into."""

    name: str
    kind: Any
    required: bool
    title: str | None = None
    description: str | None = None
    choices: tuple[str, ...] = ()  # the only texts it takes, where they can be listed
    pattern: str | None = None  # that its text matches; checked before the decoder runs it


class TextSignature:
    """How a function is called with a mapping of texts.

    Types are converted: numbers and booleans from their text, `Literal` and enumerations from
    their values, anything else (a list, a dataclass) from JSON.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.context_name: str | None = None
        self.takes_any = False
        self.parameters: dict[str, TextParameter] = {}
        self._read(function)

    def arguments(self, given: Mapping[str, str], context: Context | None) -> dict[str, Any]:
        """Keyword arguments for the function; texts that it has no parameter for are left out.

        Raises:
            RpcError: -32602, for what does not fit.
        """
        values: dict[str, Any] = {}
        for name, text in given.items():
            parameter = self.parameters.get(name)
            if parameter is not None:
                if parameter.pattern and not satisfies_limit(text, "pattern", parameter.pattern):
                    why = f"it does not match {parameter.pattern!r}"
                    raise RpcError(INVALID_PARAMS, f"{name}: {why}", {"argument": name})
                values[name] = _convert(name, text, parameter.kind)
            elif self.takes_any:
                values[name] = text
        missing = [n for n, p in self.parameters.items() if p.required and n not in values]
        if missing:
            raise RpcError(INVALID_PARAMS, f"Missing: {', '.join(missing)}", {"missing": missing})
        if self.context_name is not None:
            values[self.context_name] = context
        return values

    def _read(self, function: Callable[..., Any]) -> None:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError):  # not resolvable, or an object with `__call__`
            hints = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                self.takes_any = True
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                continue
            kind = hints.get(parameter.name, str)
            if _is_context(kind):
                self.context_name = parameter.name
                continue
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


def _convert(name: str, text: str, kind: Any) -> Any:
    try:
        value = msgspec.convert(text, kind, strict=False)
        if isinstance(value, float) and not isfinite(value):
            raise msgspec.ValidationError(f"{text!r} is no number")
        return value
    except (msgspec.ValidationError, TypeError) as plain:
        try:
            return msgspec.json.decode(text, type=kind, strict=False)
        except (msgspec.DecodeError, TypeError, RecursionError):
            choices = _choices(kind)
            why = f"one of {', '.join(choices)}" if choices else str(plain)
            raise RpcError(INVALID_PARAMS, f"{name}: {why}", {"argument": name}) from plain


def _is_context(kind: Any) -> bool:
    """`Context`, `Context | None`, `Annotated[Context, ...]`."""
    if isinstance(kind, type):
        return issubclass(kind, Context)
    return any(_is_context(option) for option in typing.get_args(kind)[:2])


def _words(kind: Any) -> tuple[str | None, str | None]:
    """Title and description from `Annotated`: a string, `msgspec.Meta`, or anything alike."""
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
