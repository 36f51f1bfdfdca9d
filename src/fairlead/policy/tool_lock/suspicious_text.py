"""Detection of text in a tool that may address the model and escape a reviewer.

The result is a hint for reviewers, not a guarantee: hostile text may contain none of these marks,
and harmless text may contain some.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["find_suspicious_text"]

MAX_FOUND: Final = 20
MAX_DEPTH: Final = 50

# Characters that are invisible or change how the text is displayed.
_ZERO_WIDTH: Final = {0x00AD, 0x034F, 0x061C, 0x180E, *range(0x200B, 0x2010), 0x2060, 0x2061}
_ZERO_WIDTH_TOO: Final = {0x2062, 0x2063, 0x2064, 0xFEFF, 0x115F, 0x1160, 0x3164, 0xFFA0}
_BIDI: Final = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F}
_JOINER: Final = 0x200D
_COLOURED: Final = "\ufe0f"  # the variation selector for emoji
# Signs around numbers. They are visible, although Unicode classifies them as format characters.
_SEEN: Final = {*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}

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
    """Return the suspicious parts of a tool's name, descriptions and schemas, with their paths."""
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
    kinds: dict[str, list[str]] = {}
    if text.isascii() and text.isprintable():
        return
    for index, character in enumerate(text):
        kind = _kind(character, text[index - 1] if index else "")
        if kind is not None:
            kinds.setdefault(kind, []).append(f"U+{ord(character):04X}")
    for kind, codes in kinds.items():
        yield f"{len(codes)} {kind} ({', '.join(sorted(set(codes))[:5])})"


def _kind(character: str, before: str) -> str | None:
    code = ord(character)
    if 0xE0000 <= code <= 0xE007F:
        return "invisible tag characters"
    if code in _BIDI:
        return "characters that change the text direction"
    if code in _ZERO_WIDTH or code in _ZERO_WIDTH_TOO:
        emoji = before == _COLOURED or (before and unicodedata.category(before) in ("So", "Sk"))
        joins = code == _JOINER and emoji
        return None if joins else "zero-width characters"  # zero-width joiners combine emoji
    if 0xFE00 <= code <= 0xFE0E or 0xE0100 <= code <= 0xE01EF:
        return "variation selectors"
    category = unicodedata.category(character)
    if category == "Cf" and code not in _SEEN:
        return "zero-width characters"
    if category in ("Zl", "Zp"):
        return "Unicode line separators"
    if category == "Co":
        return "private-use characters"
    if category == "Cc" and character not in "\t\n\r":
        return "control characters"
    return None


def _instructions(text: str) -> Iterator[str]:
    for pattern, what in _INSTRUCTIONS:
        # Only the start of a long text is searched, to limit the time that this takes.
        if pattern.search(text[:20_000]):
            yield what


def _spelled(name: object) -> str:
    return str(name).encode("ascii", "backslashreplace").decode()[:50]
