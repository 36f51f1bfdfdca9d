"""Shortening of a peer's text for error messages and log lines."""

from typing import Any

from ..limits import QUOTED_TEXT

__all__ = ["quoted", "shortened"]


def shortened(text: str, limit: int = QUOTED_TEXT.value) -> str:
    """Return `text`; if it is too long, its start and end with an ellipsis between them.

    The end is kept because validators put the reason after the value.
    """
    if len(text) <= limit:
        return text
    QUOTED_TEXT.hit()
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def quoted(value: Any, limit: int = QUOTED_TEXT.value) -> str:
    """Return the `repr` of a value, shortened to `limit` characters."""
    # A string is shortened first, so that `repr` does not copy all of a long string.
    if isinstance(value, str):
        return repr(shortened(value, limit))
    return shortened(repr(value), limit)
