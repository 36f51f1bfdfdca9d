"""Access rules from a gateway's file: tokens and views, which may change while it runs."""

import hmac
from collections.abc import Callable, Container, Mapping
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...errors import ConfigError
from ...protocol.caller import UNNAMED, Principal
from ...protocol.identity.token_principal import TokenPrincipal
from ..auth_section import GatewayAuth
from ..catalog.views import View
from ..gateway_file import GatewayFile
from .auth_rules import TokenRoles
from .role_access import RoleAccessFactory, RoleStanding

__all__ = ["AccessHost", "ClientAccess"]

MAX_ADMITTED: Final = 10_000  # maximum number of tokens whose role is cached


class AccessHost(Protocol):
    """The methods of a gateway that apply changed access rules."""

    def show(
        self, views: Mapping[str, View], view: View, roles: Mapping[str, View] | None = None
    ) -> None:
        """Replace the views of clients and roles. `view` is for all other clients."""

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        """Close all connections of principals that may no longer use the gateway."""


class ClientAccess:
    """The client of each token and the view of each client, as in the current file.

    A token in the file belongs to the client whose entry contains it. An access token gets a role
    by the rules of the section `[auth]`.
    """

    def __init__(self, file: GatewayFile, *, names_only: bool = False) -> None:
        """`names_only` ignores the `token` of the file, which admits clients without a name."""
        self._names_only = names_only
        self._tokens = self._of(file)
        self._auth = file.auth
        self._factory: RoleAccessFactory | None = None  # the settings for access tokens
        self._public_url = None if file.auth is None else file.auth.public_url
        self._roles = _roles(file)
        # Called with tokens that no rule matches.
        self.refused: Callable[[TokenPrincipal], object] = lambda principal: None
        # Verified principals with and without their role, by identity.
        self._admitted: dict[int, tuple[TokenPrincipal, TokenPrincipal]] = {}
        self._removed: dict[str, View] = {}  # clients that were in an earlier version of the file
        self._seen = self._views(file)
        self._has_auth = file.auth is not None
        # False if no token is required
        self.guards = bool(self._tokens) or self._has_auth

    def verify(self, token: str) -> str | None:
        """Return the client of a token; None if the token is invalid."""
        given, whose = token.encode(), None
        # Compare with every token: the time must not reveal which one matched.
        for expected, name in self._tokens:
            if hmac.compare_digest(given, expected):
                whose = name
        return whose

    def admit(self, principal: TokenPrincipal) -> TokenPrincipal | None:
        """Return the principal of an access token with its role; None if no rule matches."""
        # A token is verified once and then used for many requests.
        if (known := self._admitted.get(id(principal))) is not None:
            return known[1]
        role = self._role_of(principal)
        if role is None:
            return None
        if len(self._admitted) >= MAX_ADMITTED:
            self._admitted.clear()
        admitted = principal.with_role(role)
        if principal.standing is not None:
            admitted = admitted.with_standing(RoleStanding(principal.standing, self.admit))
        # The key is kept, so that its id belongs to no other object.
        self._admitted[id(principal)] = principal, admitted
        return admitted

    def access(self) -> RoleAccessFactory | None:
        """Return the settings for access tokens; None without a section `[auth]`.

        Raises:
            ConfigError: A value of the section cannot be used.
        """
        if self._auth is None:
            return None
        self._factory = RoleAccessFactory(self._auth.server_auth(), self)
        return self._factory

    def scopes_for(self, principal: TokenPrincipal) -> tuple[str, ...]:
        """Return the scopes with which a rule would match a refused token; empty if none do."""
        if self._auth is None or principal.issuer not in self._auth.issuers:
            return ()
        return self._roles.scopes_for(principal)

    def report_refusal(self, principal: TokenPrincipal) -> None:
        """Call `refused` with a token that no rule matches."""
        self.refused(principal)

    def is_admin(self, principal: Principal) -> bool:
        """Return True if the rules give a principal access to the admin API."""
        return isinstance(principal, TokenPrincipal) and self._roles.is_admin(principal.role)

    @property
    def has_tokens(self) -> bool:
        """True if the file defines tokens."""
        return bool(self._tokens)

    def _role_of(self, principal: TokenPrincipal) -> str | None:
        # Checked here too, because clients of a removed issuer may be connected.
        if self._auth is None or principal.issuer not in self._auth.issuers:
            return None
        return self._roles.role_of(principal)

    async def follow(self, file: GatewayFile, gateway: AccessHost) -> bool:
        """Apply a file that may have changed; return True if it has changed.

        A removed token is refused immediately, and connections that were opened with it are closed.
        So are those of access tokens whose role changes or that the changed section `[auth]`
        refuses. Clients whose view changes are notified that their lists have changed.

        Raises:
            ConfigError: The change is not possible while the gateway runs. Nothing has changed.
        """
        tokens = self._of(file)
        if tokens and not self.guards:
            raise ConfigError(
                "the gateway was started without tokens: restart it to require them",
                path=file.path,
            )
        if file.auth is not None and not self._has_auth:
            raise ConfigError(
                "the gateway was started without [auth]: restart it to accept access tokens",
                path=file.path,
            )
        gone = {name for token, name in self._tokens if (token, name) not in tokens}
        known = {name for _, name in tokens}
        former = {*self._removed, *(name for _, name in self._tokens)}
        self._removed = dict.fromkeys(former - known, View.nothing())
        seen = self._views(file)
        roles = _roles(file)
        regrouped = roles != self._roles or _issuers(file.auth) != _issuers(self._auth)
        auth = self._applicable(file.auth)
        changed = auth != self._auth or tokens != self._tokens or seen != self._seen
        if auth != self._auth and self._factory is not None:
            self._factory.change(None if auth is None else auth.server_auth())
        # Tokens and views first, so that a removed client cannot connect again meanwhile.
        self._tokens = tokens
        self._auth, self._roles = auth, roles
        self._admitted.clear()
        if seen != self._seen:
            self._seen = seen
            gateway.show(*seen)
        if regrouped:
            await gateway.disconnect_clients(_Withdrawn(gone, self._role_of))
        elif gone:
            await gateway.disconnect_clients(gone)
        return changed

    def _applicable(self, auth: GatewayAuth | None) -> GatewayAuth | None:
        """Return the section `[auth]` with the `public_url` that was set at start-up.

        A changed one is ignored until a restart, because its host belongs to the settings that are
        read at start-up only.
        """
        if auth is None or self._public_url is None:
            return auth
        return replace(auth, public_url=self._public_url)

    def _of(self, file: GatewayFile) -> list[tuple[bytes, str]]:
        known = [(one.token.encode(), one.name) for one in file.clients]
        if file.token is not None and not self._names_only:
            known.append((file.token.encode(), UNNAMED))
        return known

    def _views(self, file: GatewayFile) -> tuple[dict[str, View], View, dict[str, View]]:
        """Return the view of each client, of all other clients, and of each role.

        Calls of a removed client may still be waiting. They must not get the view of other clients,
        so the client keeps an empty view.
        """
        return {**file.views, **self._removed}, file.settings.view, file.role_views


class _Withdrawn(Struct, frozen=True):
    """The principals that lose their access: removed clients, and tokens whose role changes."""

    clients: Container[str]
    role_of: Callable[[TokenPrincipal], str | None]

    def __contains__(self, principal: object) -> bool:
        if isinstance(principal, TokenPrincipal):
            return self.role_of(principal) != principal.role
        return isinstance(principal, str) and principal in self.clients


def _roles(file: GatewayFile) -> TokenRoles:
    return TokenRoles(() if file.auth is None else file.auth.rules)


def _issuers(auth: GatewayAuth | None) -> tuple[str, ...]:
    return () if auth is None else auth.issuers
