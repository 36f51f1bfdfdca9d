"""Checks of arguments and settings that users write: their names and the types of their values."""

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, TypeVar, Union, overload

__all__ = [
    "Hints",
    "check_types",
    "lazy_hints",
    "make_settings",
    "named_arguments",
    "named_settings",
    "require_known",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
# Loads remedies for names that other libraries use. A function, because only errors need them.
Hints = Callable[[], Mapping[str, str]]


def lazy_hints(module: str, name: str) -> Hints:
    """Return a function that loads a table of hints from a module. Only errors need it."""

    def load() -> Mapping[str, str]:
        hints: Mapping[str, str] = getattr(import_module(module), name)
        return hints

    return load


def require_known(given: Iterable[str], known: Collection[str], hints: Hints | None = None) -> None:
    """Check the names of keyword arguments.

    Raises:
        TypeError: A name is unknown; the message contains the remedy, or the closest known name.
    """
    for name in given:
        if name not in known:
            # Loaded on first use: only errors need it.
            from .suggestions import unknown_name

            remedy = hints().get(name) if hints is not None else None
            if remedy is not None:
                raise TypeError(f"unknown keyword argument {name!r}: {remedy}")
            if (with_unit := f"{name}_seconds") in known:
                raise TypeError(f"unknown keyword argument {name!r}: did you mean {with_unit!r}?")
            raise TypeError(unknown_name("keyword argument", name, known))


@overload
def named_arguments(function: F) -> F: ...
@overload
def named_arguments(
    *, hints: Hints | None = None, unchecked: Collection[str] = (), form: str = ""
) -> Callable[[F], F]: ...


def named_arguments(
    function: Callable[..., Any] | None = None,
    *,
    hints: Hints | None = None,
    unchecked: Collection[str] = (),
    form: str = "",
) -> Any:
    """Decorate a function so that it checks the names and the types of its arguments.

    Annotations other than basic types are not checked, and neither are the arguments in
    `unchecked`. `form` is the correct form of a decorator that needs arguments; the error for
    missing arguments shows it.
    """
    if function is None:
        return functools.partial(named_arguments, hints=hints, unchecked=unchecked, form=form)
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = [name for name in names if name not in ("self", "cls")]
    positional = names[: code.co_argcount]
    kinds = {k: v for k, v in function.__annotations__.items() if k not in unchecked}
    has_others = bool(code.co_flags & 8)  # accepts `**others`, and checks their names itself
    is_method = positional[:1] in (("self",), ("cls",))
    needed = positional[is_method : len(positional) - len(function.__defaults__ or ())]
    shown = function.__qualname__.removesuffix(".__init__")
    if form.startswith("@"):  # the class of the method may be a base class that users do not know
        shown = form.partition("(")[0]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not has_others:
            require_known(kwargs, known, hints)
        _check_count(shown, len(positional) - is_method, len(args) - is_method)
        given = {**dict(zip(positional, args, strict=False)), **kwargs}
        # Without parentheses, the decorated function is the first argument.
        if form and (set(needed) - given.keys() or callable(given[needed[0]])):
            raise TypeError(f"{shown} needs {' and '.join(needed)}: use {form}")
        _check(kinds, given)
        return function(*args, **kwargs)

    return checked


def named_settings(settings: type[T]) -> type[T]:
    """Make the constructor of a dataclass check the names and the types of the settings."""
    create: Any = settings.__init__

    @functools.wraps(create)
    def init(self: T, *args: Any, **given: Any) -> None:
        fields = settings.__dataclass_fields__  # type: ignore[attr-defined]
        require_known(given, fields)
        _check_count(settings.__name__, sum(not f.kw_only for f in fields.values()), len(args))
        create(self, *args, **given)
        check_types(self)

    settings.__init__ = init  # type: ignore[assignment, method-assign]
    return settings


def make_settings(
    kind: type[T],
    options: Mapping[str, Any],
    hints: Hints | None = None,
    given: T | None = None,
) -> T:
    """Return the given settings object, or a new one after a check of the options.

    Raises:
        TypeError: An option is unknown or has the wrong type for its setting, or both settings and
        options are given.
        ValueError: A value is invalid.
    """
    require_known(options, inspect.signature(kind).parameters, hints)
    if given is not None:
        if options:
            raise TypeError(f"pass either {kind.__name__} or options, not both")
        return given
    settings = kind(**options)
    check_types(settings)
    return settings


def check_types(settings: object) -> None:
    """Check the values of a settings object against the annotations of its class.

    Raises:
        TypeError: A value has the wrong type for its setting.
        ValueError: A number is negative or not finite, or a value is not one of several choices.
    """
    kinds: dict[str, Any] = {}
    for kind in reversed(type(settings).__mro__):
        kinds.update(inspect.get_annotations(kind))
    _check(kinds, {name: getattr(settings, name) for name in kinds})


def _check_count(name: str, most: int, given: int) -> None:
    if given > most:
        arguments = "argument" if most == 1 else "arguments"
        raise TypeError(
            f"{name} takes at most {most} positional {arguments}, not {given}: "
            "pass the others by name"
        )


def _check(kinds: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        kind = kinds.get(name, Any)
        if not _fits(value, kind):
            raise TypeError(f"{name} must be {_described(kind, name)}, not {_shown(name, value)}")
        if typing.get_origin(kind) is Literal and value not in typing.get_args(kind):
            raise ValueError(f"{name} must be {_described(kind, name)}, not {value!r}")
        if type(value) in (int, float) and not 0 <= value < math.inf:
            unit = " seconds" if name.endswith(_SECONDS) else ""
            raise ValueError(f"{name} must be 0 or more{unit}, not {value!r}")


def _fits(value: Any, kind: Any) -> bool:
    """Return False if a value has the wrong type. Unknown annotations accept any value."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, type) or isinstance(kind, str):
        return True
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is Literal:
        return isinstance(value, tuple({type(one) for one in inner}))
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_fits(one, inner[1]) for one in value.values())
    if origin in (list, tuple, Sequence):
        is_sequence = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        return is_sequence and all(_fits(one, inner[0]) for one in value)
    if origin is Callable:
        return callable(value)
    if getattr(kind, "_is_protocol", False):
        return callable(value) or "__call__" not in vars(kind)
    if isinstance(kind, type):
        return isinstance(value, kind)
    return value is None if kind is None else True


def _shown(name: str, value: object) -> str:
    """Return a value for an error message, or only its type if it may be secret or is long."""
    text = repr(value)
    if "token" in name or "secret" in name or len(text) > 200:
        return f"a value of type {type(value).__name__}"
    return text


def _described(kind: Any, name: str = "") -> str:
    """Return the expected type of a value, such as "a number of seconds or None"."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is float and name.endswith(_SECONDS):
        return "a number of seconds"
    if kind in _NAMES:
        return _NAMES[kind]
    if origin in (Union, types.UnionType):
        return " or ".join(_described(option, name) for option in inner)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (dict, Mapping):
        return f"a dict of {_plural(inner[1])}"
    if origin in (list, tuple, Sequence):
        return f"a list or tuple of {_plural(inner[0])}"
    return "a function" if origin is Callable else getattr(kind, "__name__", str(kind))


def _plural(kind: Any) -> str:
    if kind is Any or isinstance(kind, TypeVar):
        return "any values"
    if kind in _NAMES:
        return _NAMES[kind].removeprefix("a ") + "s"
    return f"{_described(kind)} objects" if isinstance(kind, type) else _described(kind)


_SECONDS = ("timeout", "seconds", "ttl", "delay", "interval", "heartbeat", "idle", "retry")
_NAMES: dict[Any, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    None: "None",
    type(None): "None",
}
