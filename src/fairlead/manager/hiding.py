"""Texts about entries, without the values that the entries hold."""

from collections.abc import Iterable, Iterator
from typing import Any

from ..observe.redact import REDACTED, redact

__all__ = ["hide", "values_of"]

_SHORTEST = 6  # shorter ones are no secrets, and would tear words apart


def hide(text: str, values: Iterable[str] = ()) -> str:
    """The text without these values, and without everything else that looks like a credential."""
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) >= _SHORTEST and value in text:
            text = text.replace(value, REDACTED)
    return redact(text)


def values_of(raw: dict[str, Any]) -> Iterator[str]:
    """What an entry as it stands in a file keeps in `env`, `headers` and other maps."""
    for held in raw.values():
        if isinstance(held, dict):
            yield from _texts(held)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
