"""Names for the tools of many servers, as model providers accept them: short, plain and stable."""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping

__all__ = ["MAX_NAME", "Pair", "assign_names", "tool_name", "tool_names"]

MAX_NAME = 64
_TAIL = 8  # hexadecimal digits of a hash

_OTHERS = re.compile(r"[^A-Za-z0-9_-]+")

Pair = tuple[str, str]  # a server's name and one of its tools


def tool_name(server: str, tool: str) -> str:
    """`mcp_<server>_<tool>`, reduced to letters, digits, `_` and `-`, at most 64 characters.

    A tool that repeats its server's name says it once.
    """
    return tool_names(server, (tool,))[0]


def tool_names(server: str, tools: Iterable[str]) -> list[str]:
    """The same for all tools of a server, in their order."""
    own = _plain(server)
    start, lower, length = f"mcp_{own}_", own.lower(), len(own)
    names = []
    for tool in tools:
        plain = _plain(tool)
        if len(plain) > length + 1 and plain[length] in "_-" and plain[:length].lower() == lower:
            plain = plain[length + 1 :]
        name = start + plain
        names.append(name if len(name) <= MAX_NAME else _with_tail(name, (server, tool)))
    return names


def assign_names(
    wanted: Mapping[str, Iterable[Pair]], taken: Container[str] = ()
) -> dict[Pair, str]:
    """A name of its own for each tool that wants one, whatever order they were found in.

    Of several that want the same, the one that needed no change keeps it; the others get a tail
    made from what they are really called. No tail makes a name that is `taken`: a server could
    guess it, and answer in another's place.
    """
    names: dict[Pair, str] = {}
    given: set[str] = set()
    for name in sorted(wanted):
        first, *others = sorted(wanted[name], key=_precedence)
        names[first] = name
        for pair in others:
            tailed = _with_tail(name, pair)
            while tailed in wanted or tailed in taken or tailed in given:
                tailed = _with_tail(tailed, (tailed, *pair))
            given.add(tailed)
            names[pair] = tailed
    return names


def _precedence(pair: Pair) -> tuple[bool, Pair]:
    return tuple(map(_plain, pair)) != pair, pair


def _plain(text: str) -> str:
    if not (text.isascii() and text.isidentifier()):  # most are, and asking is cheap
        text = _OTHERS.sub("_", text)
    return text.strip("_") or "_"


def _with_tail(name: str, words: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: MAX_NAME - _TAIL - 1]}_{digest[:_TAIL]}"
