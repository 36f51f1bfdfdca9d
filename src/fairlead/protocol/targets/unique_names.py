"""Unique names for the tools and prompts of many servers: short, plain and stable.

There are two policies. `assign_names` is for models: if several items have the same name, one of
them keeps it. `merge_names` is for a gateway, whose servers do not trust each other: no item keeps
the shared name. The server of a name is looked up in the table that assigned the name. It is never
derived from the name, because the names of servers and tools may contain the separator.
"""

import hashlib
import re
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Final

__all__ = ["Pair", "assign_names", "full_name", "may_belong_to", "merge_names", "tool_names"]

MAX_NAME: Final = 64  # maximum name length in characters that all model providers accept
_TAIL: Final = 8  # number of hexadecimal digits in the shortest hash
# Number of hexadecimal digits in the longest hash, which leaves half of the name readable.
_LONGEST_TAIL: Final = 32
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")

Pair = tuple[str, str]  # a server, and the name that it uses for a tool or prompt


# Names for models


def tool_names(server: str, tools: Iterable[str]) -> list[str]:
    """Return `mcp_<server>_<tool>` for each tool: letters, digits, `_` and `-`, at most 64
    characters.

    If the name of a tool starts with the name of its server, the prefix is not repeated.
    """
    own = _plain(server)
    start, lower, length = f"mcp_{own}_", own.lower(), len(own)
    names = []
    for tool in tools:
        plain = _plain(tool)
        if len(plain) > length + 1 and plain[length] in "_-" and plain[:length].lower() == lower:
            plain = plain[length + 1 :]
        name = start + plain
        names.append(name if len(name) <= MAX_NAME else _with_tail(name, f"{server}\0{tool}"))
    return names


def assign_names(
    wanted: Mapping[str, Iterable[Pair]], taken: Container[str] = ()
) -> dict[Pair, str]:
    """Return a unique name for each tool, independent of the order in which they were found.

    If several tools would get the same name, the tool whose name needed no change keeps it; the
    others get a hash of their real names as a suffix. A name with a suffix never equals a name in
    `taken`; otherwise a server could predict it and receive calls meant for another server.
    """
    names: dict[Pair, str] = {}
    given: set[str] = set()
    for name in sorted(wanted):
        first, *others = sorted(wanted[name], key=_precedence)
        names[first] = name
        for pair in others:
            tailed = _with_tail(name, "\0".join(pair))
            while tailed in wanted or tailed in taken or tailed in given:
                tailed = _with_tail(tailed, "\0".join((tailed, *pair)))
            given.add(tailed)
            names[pair] = tailed
    return names


def _precedence(pair: Pair) -> tuple[bool, Pair]:
    return tuple(map(_plain, pair)) != pair, pair


# Names in the lists of a gateway


def merge_names(pairs: Iterable[Pair]) -> dict[Pair, str]:
    """Return `<server>_<name>` for each pair, at most 64 characters, all different.

    A name that is too long ends in a hash of the pair, and so do all names that would be equal: if
    one of them kept the short name, a server could name a tool so that it receives calls meant for
    another server. The order of the pairs does not matter.
    """
    names = {pair: full_name(*pair) for pair in pairs}
    tails = dict.fromkeys(names, 0)
    again = [pair for pair, name in names.items() if len(name) > MAX_NAME] or _rivals(names)
    while again:
        for pair in again:
            # If a server already uses the predicted name for another tool, a longer suffix is used.
            tails[pair] = min(tails[pair] * 2 or _TAIL, _LONGEST_TAIL)
            # The text includes the length of the server's name, so it differs for any two pairs.
            text = f"{len(pair[0])} {pair[0]}{pair[1]}"
            names[pair] = _with_tail(full_name(*pair), text, tails[pair])
        again = _rivals(names)
    return names


def full_name(server: str, name: str) -> str:
    """Return the text of a merged name before it is shortened or made unique."""
    return f"{_plain_server(server)}_{name}"


def may_belong_to(server: str, merged: str) -> bool:
    """Return True if a merged name could belong to this server. Several servers may qualify."""
    whole = full_name(server, "")
    return merged.startswith(whole[: MAX_NAME - _LONGEST_TAIL - 1])


def _rivals(names: dict[Pair, str]) -> list[Pair]:
    """Return all pairs whose merged names are not unique."""
    if len(set(names.values())) == len(names):
        return []
    by_name: dict[str, list[Pair]] = {}
    for pair, name in names.items():
        by_name.setdefault(name, []).append(pair)
    return [pair for pairs in by_name.values() if len(pairs) > 1 for pair in pairs]


def _plain(text: str) -> str:
    # A cheap check that is true for most names.
    if not (text.isascii() and text.isidentifier()):
        text = _OTHERS.sub("_", text)
    return text.strip("_") or "_"


_plain_server = lru_cache(maxsize=1024)(_plain)


def _with_tail(name: str, text: str, digits: int = _TAIL) -> str:
    """Return a name of limited length that ends with a text's hash."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: MAX_NAME - digits - 1]}_{digest[:digits]}"
