"""Text from a peer, cut to a length that fits into an error message or a log line."""

from typing import Any

from ..limits import QUOTED_TEXT

__all__ = ["quoted", "shortened"]


def shortened(text: str, limit: int = QUOTED_TEXT.value) -> str:
    """Return `text` if it is short, else its beginning and its end with an ellipsis between.

    The end is kept because messages of validators put the reason behind the value.
    """
    if len(text) <= limit:
        return text
    QUOTED_TEXT.hit()
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def quoted(value: Any, limit: int = QUOTED_TEXT.value) -> str:
    """Return the `repr` of a value, shortened; of a long string only what is shown is read."""
    if isinstance(value, str):
        return repr(shortened(value, limit))
    return shortened(repr(value), limit)
