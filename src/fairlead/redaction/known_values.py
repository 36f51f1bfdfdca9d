"""Secrets with known values, found in all the forms in which programs may repeat them."""

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

__all__ = ["SHORTEST", "KnownValues"]

SHORTEST: Final = 6  # minimum length in characters; shorter values would match ordinary text
# minimum length of a line in a multi-line secret that is redacted separately
_SHORTEST_LINE: Final = 16

# Characters that percent-encoders leave unchanged: two sets in Python, encodeURIComponent,
# encodeURI and HTML forms.
_SAFE: Final = ("", "/", "!'()*~", ";/?:@&=+$,#!'()*~", "*-._")
# Text that was encoded several times has several backslashes before the `u`.
_ESCAPED: Final = re.compile(r"\\{1,8}u([0-9A-Fa-f]{4})")


class KnownValues:
    """Set of secret values.

    A value is found unchanged, in base64 (both alphabets, at any offset within the encoded data),
    in hexadecimal, percent-encoded, or escaped for JSON.
    """

    def __init__(self) -> None:
        self.values: set[str] = set()
        self._forms: set[str] = set()
        # A value has up to forty forms, and a pattern of a few hundred alternatives takes
        # microseconds per byte. The text is therefore read as integers of eight (or four) bytes at
        # aligned offsets. A text that contains a form contains one of the first eight (or four)
        # windows of the form at such an offset, so one set lookup per integer decides.
        self._eights: set[int] = set()
        self._fours: set[int] = set()
        self._short: tuple[bytes, ...] = ()  # forms too short for such a window at every offset
        self._pattern: re.Pattern[str] | None = None
        self._escaped: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> set[str]:
        """Add values and return the new ones. Values that are too short are skipped."""
        new = {value for value in values if len(value) >= SHORTEST} - self.values
        if new:
            self.values |= new
            short: set[bytes] = set(self._short)
            for form in {form for value in new for form in _forms(value)} - self._forms:
                self._forms.add(form)
                raw = form.encode("utf-8", "replace")
                # Any `2 * width - 1` consecutive bytes contain a complete aligned window.
                if len(raw) >= 15:
                    self._eights.update(_starts(raw, 8))
                elif len(raw) >= 7:
                    self._fours.update(_starts(raw, 4))
                else:
                    short.add(raw)
            self._short = tuple(short)
            self._pattern = self._escaped = None
        return new

    def may_be_in(self, raw: bytes) -> bool:
        """Return False if the bytes certainly contain none of the forms.

        The bytes are read only once.
        """
        view, size = memoryview(raw), len(raw)
        if self._eights and not self._eights.isdisjoint(view[: size & ~7].cast("Q")):
            return True
        if self._fours and not self._fours.isdisjoint(view[: size & ~3].cast("I")):
            return True
        return bool(self._short) and any(form in raw for form in self._short)

    def replace(self, text: str, by: str) -> str:
        """Replace every form of every value."""
        if self.may_be_in(text.encode("utf-8", "replace")):
            if self._pattern is None:
                # The longest form is tried first, because a form may be the prefix of another form.
                longest_first = sorted(self._forms, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))
            text = self._pattern.sub(by, text)
        if "\\u" in text and self.may_be_in(_unescaped(text).encode("utf-8", "replace")):
            if self._escaped is None:
                longest_first = sorted(self.values, key=len, reverse=True)
                self._escaped = re.compile("|".join(map(_with_escapes, longest_first)))
            text = self._escaped.sub(by, text)
        return text


def _starts(form: bytes, width: int) -> Iterator[int]:
    for start in range(width):
        yield int.from_bytes(form[start : start + width], sys.byteorder)


def _forms(value: str) -> Iterator[str]:
    """Yield the forms in which a value may be written."""
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    for text in (value, *(line for line in lines if _is_secret_line(line))):
        # Encoded once and twice, because tool results often contain JSON as a string.
        yield text
        for ascii_only in (False, True):
            once = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
            twice = json.dumps(once)[1:-1]
            yield from (once, once.replace("/", "\\/"), twice, twice.replace("/", "\\/"))
        raw = text.encode("utf-8", "replace")
        yield from _in_base64(raw)
        yield from (raw.hex(), raw.hex().upper())
        for safe in _SAFE:
            encoded = quote(text, safe=safe, errors="replace")
            yield from (encoded, _lower_escapes(encoded), quote(encoded, safe=""))
        yield quote_plus(text, errors="replace")
        yield "".join(f"%{byte:02X}" for byte in raw)
        yield "".join(f"%{byte:02x}" for byte in raw)


def _is_secret_line(line: str) -> bool:
    """Return True if the line is long enough and not the header or footer of a PEM key."""
    return len(line) >= _SHORTEST_LINE and not line.startswith("-----")


def _in_base64(raw: bytes) -> Iterator[str]:
    """Yield the part of the base64 form that does not depend on the surrounding data."""
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode()
        first = -(-before * 8 // 6)  # characters that depend on the bytes before the value
        # index from which characters depend on the bytes after the value
        last = (before + len(raw)) * 8 // 6
        certain = encoded[first:last]
        yield from (certain, certain.replace("+", "-").replace("/", "_"))
        yield certain.replace("/", "\\/")


def _lower_escapes(encoded: str) -> str:
    return re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)


def _unescaped(text: str) -> str:
    plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    # Joins surrogate pairs that were written as two escapes.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _with_escapes(value: str) -> str:
    r"""Return a pattern that finds a value in JSON even if its characters are `\u` escapes."""
    return "".join(f"(?:{re.escape(char)}|{_escape(char)})" for char in value)


def _escape(char: str) -> str:
    r"""Return a pattern for a character's `\u` escape, or for two escapes if it is above U+FFFF."""
    raw = char.encode("utf-16-be", "surrogatepass").hex()
    numbers = (raw[start : start + 4] for start in range(0, len(raw), 4))
    return "".join(rf"\\{{1,8}}u(?i:{number})" for number in numbers)
