"""Names for tools and prompts of many servers in one list.

Nobody takes a merged name apart again: a server and a tool of its may both have the character
that joins them. Who wants to know whose tool it is looks it up in the table that gave the name.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ..manager.naming import MAX_NAME

__all__ = ["MAX_NAME", "Pair", "full_name", "may_be_of", "merge_names"]

Pair = tuple[str, str]  # a server, and its own name for a tool or prompt

_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_TAIL: Final = 8  # hexadecimal digits of a hash, to begin with
_LONGEST_TAIL: Final = 32


def merge_names(pairs: Iterable[Pair]) -> dict[Pair, str]:
    """`<server>_<name>` for each pair, at most 64 characters, all different.

    A name that is too long ends in a hash of what it stands for, and so do all that would be the
    same: if one of them kept the short name, a server could choose the name of a tool so that it
    gets the calls meant for another's. The order of the pairs does not matter.
    """
    names = {pair: full_name(*pair) for pair in pairs}
    tails = dict.fromkeys(names, 0)
    again = [pair for pair, name in names.items() if len(name) > MAX_NAME] or _rivals(names)
    while again:
        for pair in again:
            # A tail that somebody has foreseen, and taken as a name, is followed by a longer one.
            tails[pair] = tails[pair] * 2 or _TAIL
            names[pair] = _with_tail(pair, tails[pair])
        again = _rivals(names)
    return names


def full_name(server: str, name: str) -> str:
    """What a merged name is made from, however long, and whether or not others have it too."""
    return f"{_plain(server)}_{name}"


def may_be_of(server: str, merged: str) -> bool:
    """Whether something of a server could have this name; so could something of another one."""
    whole = full_name(server, "")
    return merged.startswith(whole[: MAX_NAME - _LONGEST_TAIL - 1])


@lru_cache(maxsize=1024)
def _plain(server: str) -> str:
    return _OTHERS.sub("_", server).strip("_") or "_"


def _with_tail(pair: Pair, digits: int) -> str:
    text = f"{len(pair[0])} {pair[0]}{pair[1]}"
    tail = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[
        : min(digits, _LONGEST_TAIL)
    ]
    return f"{full_name(*pair)[: MAX_NAME - len(tail) - 1]}_{tail}"


def _rivals(names: dict[Pair, str]) -> list[Pair]:
    """All who share their name with another."""
    if len(set(names.values())) == len(names):
        return []
    by_name: dict[str, list[Pair]] = {}
    for pair, name in names.items():
        by_name.setdefault(name, []).append(pair)
    return [pair for pairs in by_name.values() if len(pairs) > 1 for pair in pairs]
