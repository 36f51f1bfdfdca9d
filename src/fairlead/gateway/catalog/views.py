"""Views: the part of the merged lists that a client may see, and the names it sees."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import force_setattr

from ...errors import ConfigError
from ...protocol.caller import Caller, Principal
from ...protocol.identity.token_principal import TokenPrincipal
from ...protocol.targets.targets import Patterns, Target

__all__ = ["ClientViews", "View"]


class View(Struct, frozen=True, kw_only=True, dict=True):
    """A selection of servers and of their items, shared by all clients with this view.

    `allow`, `deny` and `hide` are patterns (`*`, `?`, `[abc]`) for names of tools and prompts and
    for URIs of resources. An item is available if an `allow` and no `deny` matches it. An item that
    a `hide` matches is not listed, but can be used by name. `rename` replaces the merged name of a
    tool or prompt.

    An `allow` is compared exactly with the merged name. A `deny` or `hide` is compared with every
    name of an item (the server's own name, the merged name, the new name) in all equivalent
    spellings.

    Raises:
        ConfigError: `rename` assigns an empty name, or one name to two items. Raised by the
            constructor.
    """

    servers: tuple[str, ...] | None = None  # None: all servers
    allow: tuple[str, ...] = ("*",)  # patterns of items that clients may use
    deny: tuple[str, ...] = ()  # patterns of items that do not exist for clients
    rename: Mapping[str, str] = {}  # displayed names by merged name
    hide: tuple[str, ...] = ()  # patterns of items that are not listed, but can be used

    def __post_init__(self) -> None:
        given: dict[str, str] = {}
        for merged, shown in self.rename.items():
            if not shown:
                raise ConfigError(f"cannot rename {merged!r} to an empty name")
            if (other := given.setdefault(shown, merged)) != merged:
                raise ConfigError(f"{other!r} and {merged!r} cannot both be renamed to {shown!r}")
        # The view is hashed, so later changes to the given mapping must not reach it.
        force_setattr(self, "rename", MappingProxyType(dict(self.rename)))

    @classmethod
    def everything(cls) -> "View":
        """Return the view of all servers under their merged names."""
        return _EVERYTHING

    @classmethod
    def nothing(cls) -> "View":
        """Return the view without any server or item."""
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
        """Return True if a resource may be read, in any spelling of its URI."""
        return self.permits(Target("resource", uri, uri))

    def denies_uri(self, uri: str) -> bool:
        """Return True if a `deny` pattern matches a URI, regardless of the `allow` patterns."""
        return self._deny.deny(Target("resource", uri, uri))

    def hides(self, target: Target) -> bool:
        """Return True if a tool, prompt or resource is not listed."""
        return self._hide.deny(target)

    @cached_property
    def selects_items(self) -> bool:
        """True if only some items of the servers are available or listed."""
        return (self.allow, self.deny, self.hide) != (("*",), (), ())

    # Cached, because every list request needs the hash.
    @cached_property
    def _hash(self) -> int:
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


class ClientViews:
    """Views by principal. Principals without a view of their own share the default view.

    An access token has the view of its role. Client names and role names are looked up separately.
    """

    def __init__(
        self, views: Mapping[str, View], default: View, roles: Mapping[str, View] | None = None
    ) -> None:
        self._views = dict(views)
        self._default = default
        self._roles = dict(roles or {})

    def __iter__(self) -> Iterator[View]:
        yield self._default
        yield from self._views.values()
        yield from self._roles.values()

    def view_for(self, principal: Principal) -> View:
        """Return the view of a principal."""
        if isinstance(principal, str):
            return self._views.get(principal, self._default)
        if isinstance(principal, TokenPrincipal) and principal.role is not None:
            # Calls of a role that was removed may still be waiting.
            return self._roles.get(principal.role, _NOTHING)
        return self._default

    def view_of(self, caller: Caller) -> View:
        """Return the view of the sender of a request."""
        return self.view_for(caller.principal)

    def replace(
        self, views: Mapping[str, View], default: View, roles: Mapping[str, View] | None = None
    ) -> None:
        """Replace all views."""
        self._views, self._default, self._roles = dict(views), default, dict(roles or {})
