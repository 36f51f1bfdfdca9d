r"""Operators' regular expressions, run in linear time on text from clients and servers.

Rules and redaction accept patterns in the syntax of Python's `re`, which may take exponential time.
The patterns run on RE2 instead, which has no look-around and no backreferences; a pattern that uses
them is refused when it is compiled. Differences in syntax are translated: `\d`, `\w` and `\s` match
all of Unicode, `$` also matches before a line end at the end of the text, `{,3}` is `{0,3}` and
`\Z` is the end of the text. `\b` and `\B` recognise ASCII letters only.
"""

from typing import Any, Final

__all__ = ["LinearPattern"]

# Character sets in the syntax of RE2, to be placed inside brackets.
_SETS: Final = {
    "d": r"\p{Nd}",
    "w": r"\p{L}\p{N}_",
    "s": r"\s\x0b\x1c-\x1f\x{85}\p{Z}",
}


class LinearPattern:
    """A compiled pattern.

    Raises (when created):
        ValueError: The pattern is invalid or cannot run in linear time.
    """

    __slots__ = ("_ends", "_search", "_sub", "text")

    def __init__(self, text: str) -> None:
        import re2  # type: ignore[import-untyped]  # imported by the first rule with a pattern

        self.text = text
        options = re2.Options()
        # RE2 would write errors to stderr.
        options.log_errors = False
        try:
            compiled = re2.compile(_translated(text), options)
        except re2.error as exc:
            raise ValueError(_refusal(text, exc)) from None
        self._search: Any = compiled.search
        self._sub: Any = compiled.sub
        self._ends = "$" in text

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches anywhere in a text."""
        data = text.encode("utf-8", "replace")
        if self._search(data) is not None:
            return True
        # In RE2, `$` matches only at the very end; in Python, also before a final line break.
        return self._ends and data.endswith(b"\n") and self._search(data[:-1]) is not None

    def matches_bytes(self, data: bytes) -> bool:
        """Return True if the pattern matches anywhere in encoded text."""
        return self._search(data) is not None

    def replace(self, text: str, by: str) -> str:
        """Return the text with every match replaced with the literal text `by`."""
        data = text.encode("utf-8", "replace")
        # Most texts have no match; they are returned without a copy.
        if self._search(data) is None:
            return text
        literal = by.encode()
        # A function, because backslashes in a replacement string would be group references.
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
            # Python's own message for a syntax error names the position, RE2's does not.
            re.compile(text)
    except re.error as plain:
        return f"{text!r} is not a regular expression: {plain}"
    except (OverflowError, RecursionError):
        pass
    return (
        f"{text!r} cannot run in linear time: {why}. Look-around, backreferences, possessive "
        "repeats, comments and repeats over 1000 are not supported; use two conditions instead, "
        "one of them with `not_matches`"
    )


def _translated(text: str) -> str:
    """Translate a pattern to RE2's syntax."""
    parts: list[str] = []
    at, in_brackets, opened = 0, False, -1
    while at < len(text):
        character = text[at]
        if character == "\\" and at + 1 < len(text):
            parts.append(_escape(text, at, in_brackets))
            at += 6 if text[at + 1] == "u" else 10 if text[at + 1] == "U" else 2
            continue
        if in_brackets:
            # The first character may be a closing bracket that is an ordinary character.
            if character == "]" and at > opened + 1 + (text[opened + 1] == "^"):
                in_brackets = False
            # RE2 has classes like [:alpha:] inside brackets; Python does not.
            elif character == "[":
                character = r"\["
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
