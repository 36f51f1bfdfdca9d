"""Type aliases (`type Names = list[str]`) and the replacement of type variables."""

import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, Union

__all__ = ["alias_of", "alias_value", "substituted", "variable_type"]


def alias_of(kind: Any) -> Any:
    """Return the alias of `Alias` and `Alias[int]`, or None for other types."""
    alias = typing.get_origin(kind) or kind
    # By name: typing_extensions has its own class before Python 3.14.
    return alias if type(alias).__name__ == "TypeAliasType" else None


def alias_value(kind: Any) -> Any:
    """Return the type that an alias stands for.

    Raises:
        NameError: The alias contains an unknown name.
    """
    alias = alias_of(kind)
    value = alias.__value__
    if isinstance(value, str):
        names = vars(sys.modules[alias.__module__])
        holder: Any = types.SimpleNamespace(__annotations__={"value": value})
        value = typing.get_type_hints(holder, names, include_extras=True)["value"]
    arguments = typing.get_args(kind)
    return substituted(value, dict(zip(alias.__type_params__, arguments, strict=False)))


def substituted(kind: Any, values: Mapping[Any, Any]) -> Any:
    """Return a type whose type variables are replaced by the given types, or by `Any`."""
    if isinstance(kind, TypeVar):
        return values.get(kind, Any)
    parameters = getattr(kind, "__parameters__", ())
    if not values or not parameters or isinstance(kind, type):
        return kind
    return kind[tuple(values.get(p, Any) for p in parameters)]


def variable_type(variable: TypeVar) -> Any:
    """Return the type of values of a free type variable: its default, bound or constraints."""
    default = getattr(variable, "__default__", None)
    if isinstance(default, type):
        return default
    if variable.__constraints__:
        return Union[variable.__constraints__]  # noqa: UP007 - built at run time
    return variable.__bound__ or Any
