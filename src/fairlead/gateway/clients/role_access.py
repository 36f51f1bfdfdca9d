"""Access of OAuth tokens to the endpoints of a gateway, limited to tokens that have a role."""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from ...protocol.caller import Principal
from ...protocol.identity.token_principal import TokenPrincipal, TokenStanding
from ...transport.http.server.token_access import AccessControl, RequestRefusal, TokenAccess

if TYPE_CHECKING:
    from ...auth.server.access_control import ServerAccess
    from ...auth.server.server_auth import ServerAuth

__all__ = ["RoleAccessFactory", "RoleStanding"]

# No challenge is sent, because another login of the same user would be refused as well.
_FORBIDDEN: Final = RequestRefusal(
    403,
    "This gateway has no rule for your access token; ask its operator for access",
    ((b"connection", b"close"),),
    reason="no_rule",
)


class TokenAdmission(Protocol):
    """The decision on the role of each token."""

    def admit(self, principal: TokenPrincipal) -> TokenPrincipal | None:
        """Return the principal of an access token with its role; None if no rule matches."""
        ...

    def scopes_for(self, principal: TokenPrincipal) -> Sequence[str]:
        """Return the scopes with which a rule would match a refused token; empty if none do."""
        ...

    def report_refusal(self, principal: TokenPrincipal) -> None:
        """Report a token that no rule matches."""
        ...


class RoleStanding:
    """The verdict on a token and its role, for streams that stay open after their request."""

    def __init__(
        self, inner: TokenStanding, admit: Callable[[TokenPrincipal], TokenPrincipal | None]
    ) -> None:
        self._inner = inner
        self._admit = admit

    def due(self) -> float:
        return self._inner.due()

    async def check(self) -> object:
        found = await self._inner.check()
        return self._admit(found) if isinstance(found, TokenPrincipal) else found

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        return self._inner.watch(changed)


class RoleAccessFactory:
    """Access settings that refuse tokens without a role, and that may change at runtime."""

    def __init__(self, tokens: "ServerAuth", admission: TokenAdmission) -> None:
        """`tokens` are the settings that verify access tokens."""
        self._tokens: ServerAuth | None = tokens
        self._admission = admission
        self._opened: list[ServerAccess] = []

    def open_access(self, scopes: Callable[[], Sequence[str]]) -> AccessControl:
        """Return the access control of one application."""
        assert self._tokens is not None
        opened = self._tokens.open_access(scopes)
        self._opened.append(opened)
        return _RoleControl(opened, self._admission)

    def change(self, tokens: "ServerAuth | None") -> None:
        """Apply other settings from the next request on; None refuses all access tokens.

        Streams stay open if their tokens are still accepted.
        """
        for opened in self._opened:
            if tokens is None:
                opened.refuse_all()
            else:
                tokens.change_access(opened, self._tokens)
        self._tokens = tokens


class _RoleControl:
    def __init__(self, inner: AccessControl, admission: TokenAdmission) -> None:
        self._inner = inner
        self._admission = admission

    @property
    def base(self) -> str | None:
        return self._inner.base

    def endpoint(self, path: str, aliases: Mapping[str, str]) -> TokenAccess:
        return _RoleAccess(self._inner.endpoint(path, aliases), self._admission)

    def reserve(self, path: str) -> None:
        self._inner.reserve(path)

    def unused(self, path: str) -> TokenAccess | None:
        found = self._inner.unused(path)
        return None if found is None else _RoleAccess(found, self._admission)

    def listens_at(self, url: str | None) -> None:
        self._inner.listens_at(url)

    def check_address(self) -> None:
        self._inner.check_address()

    def metadata(self, path: str) -> bytes | None:
        return self._inner.metadata(path)

    def forget(self, path: str) -> None:
        self._inner.forget(path)

    async def close(self) -> None:
        await self._inner.close()


class _RoleAccess:
    def __init__(self, inner: TokenAccess, admission: TokenAdmission) -> None:
        self._inner = inner
        self._admission = admission

    @property
    def names(self) -> Container[str] | None:
        return self._inner.names

    def verify_now(
        self, headers: Mapping[bytes, bytes], method: str, path: str | None
    ) -> Principal | RequestRefusal | None:
        found = self._inner.verify_now(headers, method, path)
        return self._admission.admit(found) if isinstance(found, TokenPrincipal) else found

    async def verify(
        self, headers: Mapping[bytes, bytes], method: str, path: str | None
    ) -> Principal | RequestRefusal:
        found = await self._inner.verify(headers, method, path)
        if not isinstance(found, TokenPrincipal):
            return found
        admitted = self._admission.admit(found)
        return self._refusal(found, path) if admitted is None else admitted

    def _refusal(self, principal: TokenPrincipal, path: str | None) -> RequestRefusal:
        """Return the 403 for a token that no rule matches; its challenge names the scopes with
        which one would.
        """
        self._admission.report_refusal(principal)
        scopes = self._admission.scopes_for(principal)
        return self._inner.refuse_scopes(principal, scopes, path) or _FORBIDDEN

    def refuse_scopes(
        self, principal: Principal, scopes: Sequence[str], path: str | None = None
    ) -> RequestRefusal | None:
        # Clients with a token of the file have no scopes; their view decides what they may use.
        if not isinstance(principal, TokenPrincipal):
            return None
        return self._inner.refuse_scopes(principal, scopes, path)
