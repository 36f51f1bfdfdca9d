"""Regular expressions of operators, run in linear time on text that clients and servers chose.

Rules and redaction take patterns in the syntax of Python's `re`, which may take exponential time.
They run on RE2 instead. It has no look-around and no backreferences; a pattern with one of them is
refused when it is read. What RE2 spells or means otherwise is translated: `\\d`, `\\w` and `\\s`
stand for all of Unicode, `$` also matches before a line end at the end of the text, `{,3}` is
`{0,3}` and `\\Z` the end of the text. `\\b` and `\\B` go by ASCII letters only.
"""

from typing import Any, Final

__all__ = ["LinearPattern"]

# What stands for a set of characters: in brackets, or by itself in brackets of its own.
_SETS: Final = {
    "d": r"\p{Nd}",
    "w": r"\p{L}\p{N}_",
    "s": r"\s\x0b\x1c-\x1f\x{85}\p{Z}",
}


class LinearPattern:
    """A compiled pattern.

    Raises:
        ValueError: when built, for a pattern that is invalid, or that cannot run in linear time.
    """

    __slots__ = ("_ends", "_search", "_sub", "text")

    def __init__(self, text: str) -> None:
        import re2  # type: ignore[import-untyped]  # loaded by the first rule with a pattern

        self.text = text
        options = re2.Options()
        options.log_errors = False  # they go to stderr otherwise
        try:
            compiled = re2.compile(_translated(text), options)
        except re2.error as exc:
            raise ValueError(_refusal(text, exc)) from None
        self._search: Any = compiled.search
        self._sub: Any = compiled.sub
        self._ends = "$" in text

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text."""
        data = text.encode("utf-8", "replace")
        if self._search(data) is not None:
            return True
        return self._ends and data.endswith(b"\n") and self._search(data[:-1]) is not None

    def matches_bytes(self, data: bytes) -> bool:
        """Return whether the pattern matches anywhere in a text that is encoded already."""
        return self._search(data) is not None

    def replace(self, text: str, by: str) -> str:
        """Return the text with every match replaced; `by` is taken as it stands."""
        data = text.encode("utf-8", "replace")
        if self._search(data) is None:
            return text
        literal = by.encode()
        replaced: bytes = self._sub(lambda _: literal, data)
        return replaced.decode("utf-8", "replace")


def _refusal(text: str, exc: Exception) -> str:
    import re
    import warnings

    why = exc.args[0] if exc.args else ""
    why = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except re.error as plain:
        return f"{text!r} is no regular expression: {plain}"
    except (OverflowError, RecursionError):
        pass
    return (
        f"{text!r} cannot run in linear time: {why}. Look-around, backreferences, possessive "
        "repeats, comments and repeats over 1000 are not supported; write two conditions instead, "
        "one of them with `not_matches`"
    )


def _translated(text: str) -> str:
    """Return the same pattern in RE2's syntax."""
    parts: list[str] = []
    at, in_brackets, opened = 0, False, -1
    while at < len(text):
        character = text[at]
        if character == "\\" and at + 1 < len(text):
            parts.append(_escape(text, at, in_brackets))
            at += 6 if text[at + 1] == "u" else 10 if text[at + 1] == "U" else 2
            continue
        if in_brackets:
            # The first character may be a closing bracket that stands for itself.
            if character == "]" and at > opened + 1 + (text[opened + 1] == "^"):
                in_brackets = False
            elif character == "[":
                character = r"\["  # RE2 has classes like [:alpha:] there, Python has not
        elif character == "[":
            in_brackets, opened = True, at
        elif text.startswith("{,", at):
            character = "{0"
        parts.append(character)
        at += 1
    return "".join(parts)


def _escape(text: str, at: int, in_brackets: bool) -> str:
    letter = text[at + 1]
    if letter in _SETS:
        return _SETS[letter] if in_brackets else f"[{_SETS[letter]}]"
    if letter in "DWS" and not in_brackets:
        return f"[^{_SETS[letter.lower()]}]"
    if letter == "Z":
        return r"\z"
    if letter in "uU":
        digits = text[at + 2 : at + (6 if letter == "u" else 10)]
        return rf"\x{{{digits}}}"
    if in_brackets and letter == "b":
        return r"\x08"
    return text[at : at + 2]
