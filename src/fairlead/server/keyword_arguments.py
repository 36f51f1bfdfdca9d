"""Decorator of functions with optional keyword arguments that users may misspell."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..suggestions import check_keywords

__all__ = ["named_arguments"]

F = TypeVar("F", bound=Callable[..., Any])


def named_arguments(function: F) -> F:
    """Decorate a function, so that unknown keyword arguments are errors with the closest name."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check_keywords(kwargs, [name for name in known if name != "self"])
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]
