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
    """What an entry as it stands in a file keeps in `env`, `headers` and the like."""
    for key, held in raw.items():
        if isinstance(held, dict) and key != "tools":
            for value in held.values():
                if isinstance(value, str):
                    yield value
                elif isinstance(value, dict | list):
                    yield from values_of(
                        {"": dict(enumerate(value))} if isinstance(value, list) else {"": value}
                    )
