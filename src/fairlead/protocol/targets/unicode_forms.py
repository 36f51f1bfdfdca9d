"""Unicode normalisation in linear time.

Normalisation sorts consecutive combining marks, which takes quadratic time in their number. Real
text has a few in a row; Unicode Annex 15 (Stream-Safe Text Format) allows 30.
"""

import unicodedata
from itertools import compress
from typing import Final

__all__ = ["nfkc", "without_long_mark_runs"]

MOST_MARKS: Final = 30  # consecutive marks
# Not marks themselves, but they decompose into marks only.
_BECOME_MARKS: Final = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")


def nfkc(text: str) -> str | None:
    """Return the compatibility form of a text; None if it has too many consecutive marks."""
    if text.isascii():
        return text
    if len(text) > MOST_MARKS and not all(_kept(text)):
        return None
    return unicodedata.normalize("NFKC", text)


def without_long_mark_runs(text: str) -> str:
    """Return a text without the marks beyond the limit of consecutive ones."""
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
