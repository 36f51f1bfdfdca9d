"""Files of `NAME=value` lines."""

import re

__all__ = ["read_dotenv"]

# Possessive throughout: the file may be a project's, and a long line must not take long.
_HEAD = re.compile(r"[ \t]*+(?:export[ \t]++)?([A-Za-z_][\w.-]*+)[ \t]*+=[ \t]*+")
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\.)*+)"|'([^']*+)')[ \t]*+(?:\#.*+)?$""")
_ESCAPES: dict[str, str] = {"n": "\n", "r": "\r", "t": "\t"}


def read_dotenv(text: str) -> dict[str, str]:
    """Return the variables of such a file; of two with one name the last one counts."""
    values = {}
    for line in text.replace("\r\n", "\n").split("\n"):
        if head := _HEAD.match(line):
            values[head[1]] = _value(line[head.end() :])
    return values


def _value(text: str) -> str:
    quoted = _QUOTED.match(text)
    if quoted is None:
        return text.partition("#")[0].rstrip(" \t")
    double, single = quoted.groups()
    if double is None:
        return str(single)
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), double)
