"""What one client gets to see of the merged lists, and under which names."""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import force_setattr

from ...errors import ConfigError
from ...protocol.targets.targets import Patterns, Target

__all__ = ["View"]


class View(Struct, frozen=True, kw_only=True, dict=True):
    """A choice of servers, and of what they offer; the same for all who share it.

    `allow`, `deny` and `hide` are patterns (`*`, `?`, `[abc]`) for names of tools and prompts and
    for URIs of resources: what no `allow` matches is not there, and what a `deny` matches is not
    there either way. What `hide` matches is not listed, but can be used by those who know of it.
    `rename` gives a tool or prompt another name, and takes the merged one away.

    An `allow` goes by merged names, to the letter. A `deny` and a `hide` go by every name of an
    item (its server's own, the merged one, the new one) and by every way to write it.

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
                raise ConfigError(f"cannot rename {merged!r} to an empty name")
            if (other := given.setdefault(shown, merged)) != merged:
                raise ConfigError(f"{other!r} and {merged!r} cannot both be renamed to {shown!r}")
        force_setattr(self, "rename", MappingProxyType(dict(self.rename)))

    @classmethod
    def everything(cls) -> "View":
        """All servers, under the merged names."""
        return _EVERYTHING

    @classmethod
    def nothing(cls) -> "View":
        """No server, and nothing of what any server offers."""
        return _NOTHING

    def __hash__(self) -> int:
        return self._hash

    def includes(self, server: str) -> bool:
        return self.servers is None or server in self.servers

    def permits(self, target: Target) -> bool:
        """Return True if a tool, prompt or resource may be used."""
        merged = target.own if target.merged is None else target.merged
        return self._allow.allow(target, (merged,)) and not self._deny.deny(target)

    def permits_uri(self, uri: str) -> bool:
        """Return True if a resource may be read, however its URI is written."""
        return self.permits(Target("resource", uri, uri))

    def denies_uri(self, uri: str) -> bool:
        """Return True if a URI is forbidden by name, and not only not allowed."""
        return self._deny.deny(Target("resource", uri, uri))

    def hides(self, target: Target) -> bool:
        """Return True if a tool, prompt or resource is left out of lists."""
        return self._hide.deny(target)

    @cached_property
    def _hash(self) -> int:  # asked for with every page
        renamed = frozenset(self.rename.items())
        return hash((self.servers, self.allow, self.deny, renamed, self.hide))

    @cached_property
    def _allow(self) -> Patterns:
        return Patterns(self.allow)

    @cached_property
    def _deny(self) -> Patterns:
        return Patterns(self.deny)

    @cached_property
    def _hide(self) -> Patterns:
        return Patterns(self.hide)


_EVERYTHING = View()
_NOTHING = View(servers=(), allow=())
