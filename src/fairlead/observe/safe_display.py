"""Text from files and servers, made safe for display in terminals, logs and pages.

A name may contain characters that control a terminal, that change the direction of the text, or
that are invisible, so that two different names look alike or part of a line is hidden. This module
replaces each of these characters with a visible form.
"""

import json
import math
import re
import unicodedata
from typing import Any

__all__ = ["escape_json", "hidden_characters", "json_text", "prose", "safe", "visible"]

# Control characters are shown as their Unicode control pictures; those from U+0080 on have none.
_PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "\u2421"}
_PICTURES |= dict.fromkeys(map(chr, range(0x80, 0xA0)), "\ufffd")

# Blank characters that Unicode calls printable: fillers, grapheme joiners, variation selectors.
_BLANK = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4\U0001d159"
)
_SELECTORS = frozenset([*map(chr, range(0xFE00, 0xFE10)), *map(chr, range(0xE0100, 0xE01F0))])

# Characters that are examined one by one. The excluded ranges contain no hidden characters: ASCII
# and Latin letters, Greek, Cyrillic, kana, ideographs, Hangul. Most text is skipped without a
# function call per character.
_ASCII = " -~"
_LETTERS = "\xa1-\xac\xae-\u02ff\u0370-\u058f\u3041-\u3163\u3400-\u9fff\uac00-\ud7a3"
_SUSPECT = re.compile(f"[^\\n\\t{_ASCII}{_LETTERS}]")
_SUSPECT_IN_LINE = re.compile(f"[^{_ASCII}{_LETTERS}]")

_JOINER, _AS_TEXT, _AS_EMOJI, _KEYCAP = "\u200d", "\ufe0e", "\ufe0f", "\u20e3"


def safe(text: str) -> str:
    """Return a text of one or more lines without control characters and hidden characters."""
    return _SUSPECT.sub(_in_text, text.replace("\r\n", "\n"))


def visible(text: str) -> str:
    """Return one line with control characters, hidden characters, line breaks and tabs escaped."""
    return _SUSPECT_IN_LINE.sub(_in_line, text)


def prose(text: str) -> str:
    """Return the same as `safe`, but keep spaces of any width.

    Used for prose, such as descriptions.
    """
    return _SUSPECT.sub(_in_prose, text.replace("\r\n", "\n"))


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Encode a value as JSON in which hidden characters are escaped for display in a terminal.

    A program that decodes the text gets the same value, except that infinite numbers and NaN become
    `null`.
    """
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), indent=indent, ensure_ascii=False)
    return escape_json(text)


def escape_json(text: str) -> str:
    """Return JSON with the same value but with hidden characters escaped."""
    return _SUSPECT.sub(_in_json, text)


def hidden_characters(text: str) -> list[str]:
    """Return the characters that control a terminal or are invisible, in order of occurrence."""
    return [match[0] for match in _SUSPECT.finditer(text) if _is_hidden(match)]


def _in_text(match: re.Match[str]) -> str:
    sign = match[0]
    if (picture := _PICTURES.get(sign)) is not None:
        return picture
    return _escaped(sign) if _is_hidden(match) else sign


def _in_prose(match: re.Match[str]) -> str:
    return match[0] if unicodedata.category(match[0]) == "Zs" else _in_text(match)


def _in_line(match: re.Match[str]) -> str:
    return _escaped(match[0]) if _is_hidden(match) else match[0]


def _in_json(match: re.Match[str]) -> str:
    if match[0] == "\r":  # a line break between values; inside a string it would be escaped
        return " "
    return json.dumps(match[0])[1:-1] if _is_hidden(match) else match[0]


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape").decode()


def _is_hidden(match: re.Match[str]) -> bool:
    """Return True if a character controls the terminal, or is invisible at its position."""
    sign, text = match[0], match.string
    if sign.isprintable() and sign not in _BLANK and sign not in _SELECTORS:
        return False
    before = text[max(match.start() - 2, 0) : match.start()]
    after = text[match.end() : match.end() + 1]
    if sign == _JOINER:  # joins the parts of an emoji, such as the members of a family
        base = before[-2:-1] if before[-1:] == _AS_EMOJI else before[-1:]
        return not (_is_symbol(base) and _is_symbol(after))
    if sign in (_AS_TEXT, _AS_EMOJI):  # after a character that has a text form and an emoji form
        is_key = before[-1:] in tuple("#*0123456789") and after == _KEYCAP
        return not (is_key or _is_symbol(before[-1:]))
    return True


def _is_symbol(sign: str) -> bool:
    """Return True if a character is an emoji or can be displayed as one."""
    return sign != "" and unicodedata.category(sign) in ("So", "Sm", "Sk") and not sign.isascii()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
