"""What one client gets to see of the merged lists, and under which names."""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import translate
from functools import cached_property
from types import MappingProxyType
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import force_setattr

from ..errors import ConfigError

__all__ = ["View"]


class View(Struct, frozen=True, kw_only=True, dict=True):
    """A choice of servers, and of what they offer; the same for all who share it.

    `allow`, `deny` and `hide` are patterns (`*`, `?`, `[abc]`) for merged names of tools and
    prompts and for URIs of resources: what no `allow` matches is not there, and what a `deny`
    matches is not there either way. What `hide` matches is not listed, but can be used by those
    who know of it. `rename` gives a tool or prompt another name, and takes the merged one away.

    Raises:
        ConfigError: when built, if `rename` gives one name to two, or an empty one.
    """

    servers: tuple[str, ...] | None = None  # None: all of them
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    rename: Mapping[str, str] = {}  # merged name -> the name that is shown
    hide: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given: dict[str, str] = {}
        for merged, shown in self.rename.items():
            if not shown:
                raise ConfigError(f"{merged!r} is renamed to nothing")
            if (other := given.setdefault(shown, merged)) != merged:
                raise ConfigError(f"{other!r} and {merged!r} are both renamed to {shown!r}")
        force_setattr(self, "rename", MappingProxyType(dict(self.rename)))

    @classmethod
    def everything(cls) -> "View":
        """All servers, under the merged names."""
        return _EVERYTHING

    def __hash__(self) -> int:
        return self._hash

    def includes(self, server: str) -> bool:
        return self.servers is None or server in self.servers

    def permits(self, name: str) -> bool:
        """Whether the tool or prompt with this merged name may be used."""
        return self._allows(name) and not self._denies(name)

    def denies(self, name: str) -> bool:
        """Whether a tool or prompt is forbidden by name, and not only not allowed."""
        return self._denies(name)

    def permits_uri(self, uri: str) -> bool:
        """Whether this may be read, however it is written.

        `%2e`, `..` and upper case may say the same to a server and something else to a pattern.
        """
        plain = _plain(uri)
        return self._allows_uri(uri) and self._allows_uri(plain) and not self.denies_uri(uri)

    def denies_uri(self, uri: str) -> bool:
        """Whether this is forbidden by name, and not only not allowed."""
        return self._denies_uri(uri) or self._denies_uri(_plain(uri))

    def hides(self, name: str) -> bool:
        """Whether the tool, prompt or resource is left out of lists."""
        return self._hides(name)

    @cached_property
    def _hash(self) -> int:  # asked for with every page
        renamed = frozenset(self.rename.items())
        return hash((self.servers, self.allow, self.deny, renamed, self.hide))

    @cached_property
    def _allows(self) -> "_Matches":
        return _matcher(self.allow)

    @cached_property
    def _denies(self) -> "_Matches":
        return _matcher(self.deny)

    @cached_property
    def _allows_uri(self) -> "_Matches":
        return _matcher((*self.allow, *map(_plain, self.allow)))

    @cached_property
    def _denies_uri(self) -> "_Matches":
        # Scheme and host have no case, so a refusal has none; permission is given to the letter.
        return _matcher((*self.deny, *map(_plain, self.deny)), re.IGNORECASE)

    @cached_property
    def _hides(self) -> "_Matches":
        return _matcher(self.hide)


_EVERYTHING = View()
_Matches = Callable[[str], bool]


def _matcher(patterns: Iterable[str], flags: int = 0) -> _Matches:
    """Whether a text matches one of the patterns."""
    chosen = set(patterns)
    if "*" in chosen:
        return lambda _: True
    if not chosen:
        return lambda _: False
    match = re.compile("|".join(map(translate, sorted(chosen))), flags).match
    return lambda text: match(text) is not None


def _plain(uri: str) -> str:
    """A URI without escapes, doubled slashes and steps back."""
    end = min((at for at in (uri.find("?"), uri.find("#")) if at >= 0), default=len(uri))
    text, query = unquote(uri[:end]), unquote(uri[end:])
    start = _START.match(text)
    assert start is not None  # it matches anything
    path = text[start.end() :]
    kept: list[str] = []
    for step in path.split("/"):
        if step == "..":
            del kept[-1:]
        elif step not in ("", "."):
            kept.append(step)
    if path.endswith("/") or (path and not kept):
        kept.append("")
    return start[0] + "".join(f"/{step}" for step in kept) + query


_START = re.compile(r"[^/]*(?://[^/]*)?")  # scheme and host
