"""Different spellings of a name that servers may treat as equal."""

import re
import unicodedata
from functools import lru_cache
from itertools import compress
from typing import Final

from ...limits import TARGET_LENGTH

__all__ = [
    "UnclearError",
    "fold",
    "is_short",
    "name_forms",
    "nfkc",
    "normalize_name",
    "without_long_mark_runs",
]

MOST_MARKS: Final = 30  # maximum number of consecutive combining marks
# Not combining marks themselves, but they decompose into marks only.
_BECOME_MARKS: Final = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")


def nfkc(text: str) -> str | None:
    """Return the compatibility form of a text;
    None if it has too many consecutive combining marks.
    """
    if text.isascii():
        return text
    if len(text) > MOST_MARKS and not all(_kept(text)):
        return None
    return unicodedata.normalize("NFKC", text)


def without_long_mark_runs(text: str) -> str:
    """Return a text without the combining marks that exceed the limit on consecutive marks."""
    if text.isascii() or len(text) <= MOST_MARKS:
        return text
    return "".join(compress(text, _kept(text)))


def _kept(text: str) -> list[bool]:
    kept, run = [], 0
    for character in text:
        is_mark = unicodedata.combining(character) or character in _BECOME_MARKS
        run = run + 1 if is_mark else 0
        kept.append(run <= MOST_MARKS)
    return kept


_CACHED: Final = 256  # maximum length of a name whose normal form is cached, in characters

# Characters without a glyph: controls, and characters that Unicode marks as ignorable.
_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_PLAIN_NAME: Final = re.compile(r"[!-~]*")


def normalize_name(name: str) -> str:
    """Return a name in compatibility form (NFKC), without invisible characters and outer spaces.

    A name that is too long, or that cannot be normalised in linear time, is returned unchanged.
    """
    if len(name) <= _CACHED:
        return _normal_name(name)
    return _normal_form(name)


def name_forms(name: str) -> tuple[str, ...] | None:
    """Return the forms of a name, starting with the name as sent; None if the name is unclear."""
    if _PLAIN_NAME.fullmatch(name) and len(name) <= TARGET_LENGTH.value:
        return (name,)
    if not is_short(name):
        return None
    try:
        normal = fold(name)
    except UnclearError:
        return None
    return (name,) if normal == name else (name, normal)


@lru_cache(maxsize=4096)
def _normal_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else _normal_form(name)


def _normal_form(name: str) -> str:
    try:
        return fold(name) if is_short(name) else name
    except UnclearError:
        return name


class UnclearError(ValueError):
    """Raised for a text whose normalization would take too long."""


def fold(text: str) -> str:
    """Remove invisible characters and apply NFKC, until the text does not change.

    Raises:
        UnclearError: The text has too many combining marks in a row.
    """
    # NFKC can produce characters that must be removed in another round.
    while True:
        folded = nfkc(_INVISIBLE.sub("", text))
        if folded is None:
            raise UnclearError
        folded = folded.strip()
        if folded == text:
            return text
        text = folded


def is_short(text: str) -> bool:
    """Return True if a text is short enough to be examined;
    otherwise count the limit as reached.
    """
    if len(text) > TARGET_LENGTH.value:
        TARGET_LENGTH.hit()
        return False
    return True
