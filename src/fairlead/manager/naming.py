"""Names for the tools of many servers, as model providers accept them: short, plain and stable."""

import hashlib
import logging
import re
from collections.abc import Iterable
from functools import lru_cache

__all__ = ["MAX_NAME", "assign_names", "tool_name"]

MAX_NAME = 64
_TAIL = 8  # hexadecimal digits of a hash

_OTHERS = re.compile(r"[^A-Za-z0-9_-]+")

log = logging.getLogger("fairlead.manager")

Pair = tuple[str, str]  # a server's name and one of its tools


def tool_name(server: str, tool: str) -> str:
    """`mcp_<server>_<tool>`, reduced to letters, digits, `_` and `-`, at most 64 characters.

    A tool that repeats its server's name says it once.
    """
    plain_server, plain_tool = _plain(server), _plain(tool)
    length = len(plain_server)
    if (
        len(plain_tool) > length + 1
        and plain_tool[length] in "_-"
        and plain_tool[:length].lower() == plain_server.lower()
    ):
        plain_tool = plain_tool[length + 1 :]
    name = f"mcp_{plain_server}_{plain_tool}"
    return name if len(name) <= MAX_NAME else _with_tail(name, (server, tool))


def assign_names(pairs: Iterable[Pair]) -> dict[Pair, str]:
    """A name of its own for each tool, the same whatever order they were found in.

    Of several that would have one name, the one that needed no change keeps it; the others get a
    tail made from what they are really called.
    """
    wanted: dict[str, list[Pair]] = {}
    for pair in set(pairs):
        wanted.setdefault(tool_name(*pair), []).append(pair)
    names: dict[Pair, str] = {}
    for name, rivals in wanted.items():
        if len(rivals) > 1:
            rivals.sort(key=_precedence)
        names[rivals[0]] = name
        for rival in rivals[1:]:
            names[rival] = _with_tail(name, rival)
            log.info("%s of %s is called %s: %s is taken", rival[1], rival[0], names[rival], name)
    return names


def _precedence(pair: Pair) -> tuple[bool, Pair]:
    return tuple(map(_plain, pair)) != pair, pair


@lru_cache(maxsize=16384)
def _plain(text: str) -> str:
    return _OTHERS.sub("_", text).strip("_") or "_"


def _with_tail(name: str, pair: Pair) -> str:
    digest = hashlib.sha256("\0".join(pair).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: MAX_NAME - _TAIL - 1]}_{digest[:_TAIL]}"
