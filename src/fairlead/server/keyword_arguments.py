"""Checks of keyword arguments that users may misspell."""

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

__all__ = ["named_arguments", "require_known"]

F = TypeVar("F", bound=Callable[..., Any])


def require_known(given: Iterable[str], known: Collection[str]) -> None:
    """Check the names of keyword arguments.

    Raises:
        TypeError: A name is unknown; the message contains the closest known one.
    """
    if any(name not in known for name in given):
        # Loaded on first use: only errors need it.
        from ..suggestions import check_keywords

        check_keywords(given, known)


def named_arguments(function: F) -> F:
    """Decorate a function so that errors for unknown keyword arguments suggest the closest name."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = [name for name in names if name != "self"]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        require_known(kwargs, known)
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]
