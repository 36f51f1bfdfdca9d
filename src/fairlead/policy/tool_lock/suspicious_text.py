"""Detection of text in a tool definition that may secretly manipulate the model.

The result is a hint for reviewers, not a guarantee: hostile text may match none of these patterns,
and harmless text may match some.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ...observe.safe_display import hidden_characters

__all__ = ["find_suspicious_text"]

MAX_FOUND: Final = 20  # maximum number of findings per tool
MAX_DEPTH: Final = 50  # maximum number of nested levels that are searched

# Line breaks, and visible signs around numbers, which Unicode classifies as format characters.
_SEEN: Final = frozenset(
    "\r\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
_HARMLESS: Final = ("Zs", "Cn")  # spaces, and characters that Python's Unicode table lacks
# The first character of a Unicode plane without visible characters.
_INVISIBLE: Final = "\U000e0000"

_INSTRUCTIONS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), what)
    for pattern, what in (
        (
            r"\b(ignore|disregard|forget|override)\b.{0,40}"
            r"\b(previous|prior|above|earlier|other|all|any)\b.{0,30}\b(instruction|prompt|rule)",
            "tells the model to ignore instructions",
        ),
        (
            r"\b(do not|don't|never|without)\b.{0,30}"
            r"\b(tell|telling|inform|informing|mention|mentioning|notify|show|reveal|ask|asking)"
            r"\b.{0,20}\b(the |a )?(user|human|person)\b",
            "tells the model to hide something from the user",
        ),
        (
            r"<\s{0,8}/?\s{0,8}(important|system|secret|instructions?|assistant|hidden)\s{0,8}>"
            r"|\[/?(INST|SYSTEM)\]|<\|[a-z_]+\|>",
            "contains markup of a prompt",
        ),
        (
            r"\b(before|prior to|instead of|after)\b.{0,40}\b(using|calling|use|call|invoking)\b"
            r".{0,60}\b(you must|always|first|read|send|include|pass)\b",
            "tells the model what to do before or after other tools",
        ),
        (
            r"(~/|/home/|/etc/|%USERPROFILE%)?\.?(ssh/|id_rsa\b|aws/credentials|cursor/mcp\.json"
            r"|etc/passwd|\.env\b)",
            "names files that contain secrets",
        ),
        (
            r"\b(you are|act as|pretend to be)\b.{0,40}\b(assistant|model|ai|agent|system)\b"
            r"|\bsystem prompt\b",
            "addresses the model or its system prompt",
        ),
    )
)


def find_suspicious_text(tool: Mapping[str, Any]) -> list[str]:
    """Return the suspicious passages in a tool's name, descriptions and schemas,
    with their paths.
    """
    found: list[str] = []
    for where, text in _texts(tool, "", 0):
        for what in (*_hidden(text), *_instructions(text)):
            found.append(f"{where or 'the tool'}: {what}")
            if len(found) >= MAX_FOUND:
                return found
    return found


def _texts(value: Any, where: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield all strings and member names, because models read both."""
    if isinstance(value, str):
        yield where, value
    elif depth > MAX_DEPTH:
        return
    elif isinstance(value, Mapping):
        for name, held in value.items():
            inner = f"{where}.{_spelled(name)}" if where else _spelled(name)
            if not str(name).isascii():
                yield inner, str(name)
            yield from _texts(held, inner, depth + 1)
    elif isinstance(value, list | tuple):
        for index, held in enumerate(value):
            yield from _texts(held, f"{where}[{index}]", depth + 1)


def _hidden(text: str) -> Iterator[str]:
    found = [
        f"U+{ord(sign):04X}"
        for sign in hidden_characters(text)
        if sign >= _INVISIBLE or (sign not in _SEEN and unicodedata.category(sign) not in _HARMLESS)
    ]
    if found:
        noun = "hidden character" if len(found) == 1 else "hidden characters"
        yield f"{len(found)} {noun} ({', '.join(sorted(set(found))[:5])})"


def _instructions(text: str) -> Iterator[str]:
    for pattern, what in _INSTRUCTIONS:
        # Only the start of a long text is searched, to limit the running time.
        if pattern.search(text[:20_000]):
            yield what


def _spelled(name: object) -> str:
    return str(name).encode("ascii", "backslashreplace").decode()[:50]
