"""Removal of secrets from texts that are displayed or logged."""

import re
from functools import cache

from .linear_regex import LinearPattern
from .token_patterns import (
    may_hold_token,
    replace_basic,
    replace_logins,
    replace_private_keys,
    replace_tokens,
)

__all__ = ["REDACTED", "is_folder", "is_secret_name", "redact"]

REDACTED = "[REDACTED]"

_SECRET = re.compile(
    r"(?i)authorization|cookie|token|secret|passw(?:or)?d|passphrase|api[_-]?key|credential|"
    r"private[_-]?key|pwd$"
)
# Variant for searching a whole text, in which a name may end anywhere: `pwd` without the anchor.
_SECRET_ANYWHERE = re.compile(_SECRET.pattern.replace("pwd$", "pwd"))
# Text length in characters from which the automaton is faster than the regular expression.
_LONG = 2048
# Names in the protocol and in model APIs that look like secrets but are not.
_KEEP = re.compile(r"(?i)progresstoken|nextcursor|max_?tokens")
_HEADER = re.compile(r"(?i)authorization|cookie")
# Shell variables. Their values are not secret if they are paths.
_FOLDERS = ("PWD", "OLDPWD")

# `word = value`, `"word": "value"`, `--word value`; also in JSON that is itself a string in
# JSON, where the quotes are escaped. The pattern matches any word, and the words are compared
# afterwards, so that each character is examined once and a long run of letters stays cheap.
_NAMED = re.compile(
    r"""(?<![\w.-])(?:([\w.-]++)(?:\\*+["'])?+\s*+(?:[:=]|%3[AaDd])\s*+|(--[\w.-]++)\s++(?!-))"""
)

# Values by their form: quoted, nested, a single word, the remaining line.
_OPENING = re.compile(r"""(\\*+)(["'])""")
_STRING = {quote: re.compile(rf"(?s){quote}(?:[^{quote}\\]|\\.)*+{quote}") for quote in "\"'"}
_NESTING = re.compile(r'(?s)"(?:[^"\\]|\\.)*+"|[\[\]{}]')
_WORD = re.compile(r"""(?i)((?:bearer\s|basic\s)?)[^\s"',;&}\]]+""")
_LINE = re.compile(r"()[^\r\n]+")  # value of a header
# value of a header in a quoted line
_QUOTED_LINE = re.compile(r"""()(?:[^\r\n"'\\]|\\.)+""")

_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{8,}")
_URL_USER = re.compile(
    r"""(?i)(?<![\w+.-])([a-z][a-z0-9+.-]*+://)([^\s/@:?#"<>]*+)(:[^\s/?#"<>]*)?@"""
)


def redact(text: str) -> str:
    """Return the text with everything masked that looks like a credential."""
    has_token = may_hold_token(text.encode("utf-8", "replace"))
    # Private keys are removed first: the other patterns would replace only the first word of a key.
    if has_token:
        text = replace_private_keys(text, REDACTED)
    text = _BEARER.sub(rf"\g<1>{REDACTED}", _without_named(text))
    # Substring tests, which are much faster than the patterns they guard.
    if "asic" in text or "ASIC" in text:
        text = replace_basic(text, REDACTED)
    if "@" in text:
        text = replace_logins(_URL_USER.sub(_replace_user, text), REDACTED)
    return replace_tokens(text, REDACTED) if has_token else text


def is_secret_name(name: str) -> bool:
    """Return True if values with this name are secret."""
    return _SECRET.search(name) is not None and _KEEP.search(name) is None


def is_folder(name: str, value: str) -> bool:
    """Return True for a shell's working directory (`PWD`), which is not a password."""
    return name in _FOLDERS and value.startswith("/")


def _may_name_secret(text: str) -> bool:
    if len(text) < _LONG:
        return _SECRET_ANYWHERE.search(text) is not None
    return _linear().matches(text)


@cache
def _linear() -> LinearPattern:
    """Return an automaton for the same pattern, which searches 60 KB in 0.1 ms instead of 5 ms."""
    return LinearPattern(_SECRET_ANYWHERE.pattern)


def _without_named(text: str) -> str:
    """Return the text without values whose names indicate secrets."""
    # Checked first, because comparing every name would take ten times as long.
    if not _may_name_secret(text):
        return text
    pieces: list[str] = []
    done = position = 0
    while match := _NAMED.search(text, position):
        name, position = match[1] or match[2], match.end()
        if not is_secret_name(name) or is_folder(name, text[position : position + 1]):
            continue
        start, end = _value(text, match, is_header=_HEADER.search(name) is not None)
        if start < end:
            pieces += (text[done:start], REDACTED)
            done = position = end
    return "".join((*pieces, text[done:])) if pieces else text


def _value(text: str, named: re.Match[str], *, is_header: bool) -> tuple[int, int]:
    """Return the start and end of a value.

    If the end is unclear, the latest possible end is returned.
    """
    start = named.end()
    if opening := _OPENING.match(text, start):
        return opening.end(), _end_of_string(text, opening)
    if text[start : start + 1] in ("{", "["):
        return start, _end_of_nesting(text, start)
    kind = _WORD
    if is_header:
        # The values of these headers contain spaces, so the whole line is secret.
        before = text[max(named.start() - 1, 0) : named.start()]
        kind = _QUOTED_LINE if before in ('"', "'") else _LINE
    found = kind.match(text, start)
    return (start, start) if found is None else (found.end(1), found.end())


def _end_of_string(text: str, opening: re.Match[str]) -> int:
    escape, quote = opening[1], opening[2]
    if not escape:
        string = _STRING[quote].match(text, opening.start())
        return len(text) if string is None else string.end() - 1
    closing = re.compile(rf"(?<!\\){re.escape(escape + quote)}").search(text, opening.end())
    return len(text) if closing is None else closing.start()


def _end_of_nesting(text: str, start: int) -> int:
    depth = 0
    for token in _NESTING.finditer(text, start):
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
            if depth == 0:
                return token.end()
    return len(text)


def _replace_user(match: re.Match[str]) -> str:
    scheme, user, password = match.groups()
    if password:
        return f"{scheme}{user}:{REDACTED}@"
    # `https://token@host` contains a credential instead of a user name; `ssh://git@host` does not.
    return f"{scheme}{REDACTED}@" if scheme.lower().startswith("http") else match[0]
