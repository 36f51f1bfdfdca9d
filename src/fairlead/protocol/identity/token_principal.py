"""Principal of a client that proved its identity with an OAuth access token."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["TOKEN_PRINCIPAL", "TokenPrincipal", "TokenStanding"]

# Prefix for names of token principals. Names from configuration and from `verify_token` must not
# start with it, so that a configured client and an issuer's subject never have the same name.
TOKEN_PRINCIPAL = "oauth:"


class TokenStanding(Protocol):
    """The current verdict on a token, for streams that stay open after their request."""

    def due(self) -> float:
        """Return the Unix time at which `check` must be called; it may have passed already.

        Also renew old keys in the background, because no request may arrive to do so for a long
        time.
        """
        ...

    async def check(self) -> object:
        """Verify the token again; return its principal, or None if requests with it are refused.

        Raises:
            AuthorizationError: The authorization server cannot be reached now.
        """
        ...

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Call `changed` when verdicts are withdrawn, until the returned function is called."""
        ...


class TokenPrincipal:
    """An issuer's subject that uses a particular OAuth client, with the facts of its current token.

    Two principals are equal if issuer, subject, client and role are equal: a session survives the
    renewal of a token, while the scopes, claims and expiry are those of the token sent with the
    request.

    `role` is the name that a gateway's configuration assigns to the token. A token with a different
    role cannot use this principal's sessions and connections.
    """

    __slots__ = (
        *("claims", "client", "expires", "issuer", "name", "role", "scopes", "standing"),
        "subject",
    )

    def __init__(
        self,
        *,
        issuer: str,
        subject: str,
        client: str | None = None,
        scopes: frozenset[str] = frozenset(),
        claims: Mapping[str, Any] | None = None,
        expires: float | None = None,
        role: str | None = None,
        standing: TokenStanding | None = None,
    ) -> None:
        """Create a principal. `expires` is a Unix time; `client` is None if the issuer does not
        name the client. Without `standing`, only `expires` ends the streams of the token.
        """
        self.issuer = issuer
        self.subject = subject
        self.client = client
        self.scopes = scopes
        self.claims: Mapping[str, Any] = {} if claims is None else claims
        self.expires = expires
        self.role = role
        self.standing = standing
        parts = (issuer, subject) if client is None else (issuer, subject, client)
        self.name = TOKEN_PRINCIPAL + " ".join(map(_encoded, parts))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TokenPrincipal)
            and other.name == self.name
            and other.role == self.role
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"TokenPrincipal({self.name!r})"

    def with_role(self, role: str) -> "TokenPrincipal":
        """Return a copy that has this role."""
        return self._copy(role, self.standing)

    def with_standing(self, standing: TokenStanding) -> "TokenPrincipal":
        """Return a copy whose token is verified again with `standing`."""
        return self._copy(self.role, standing)

    def _copy(self, role: str | None, standing: TokenStanding | None) -> "TokenPrincipal":
        return TokenPrincipal(
            issuer=self.issuer,
            subject=self.subject,
            client=self.client,
            scopes=self.scopes,
            claims=self.claims,
            expires=self.expires,
            role=role,
            standing=standing,
        )

    def facts(self) -> dict[str, Any]:
        """Return plain data for logs and tapes, without the claims,
        which may contain personal data.
        """
        facts = {
            "role": self.role,
            "issuer": self.issuer,
            "subject": self.subject,
            "client_id": self.client,
            "scopes": sorted(self.scopes),
        }
        return {name: value for name, value in facts.items() if value is not None}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "TokenPrincipal":
        """Return the principal that `facts` describes; its claims and expiry are not restored."""
        role, client = facts.get("role"), facts.get("client_id")
        return cls(
            issuer=str(facts.get("issuer", "")),
            subject=str(facts.get("subject", "")),
            client=None if client is None else str(client),
            scopes=frozenset(map(str, facts.get("scopes") or ())),
            role=None if role is None else str(role),
        )

    def has_expired(self) -> bool:
        """Return True if the token of this principal is no longer valid."""
        return self.expires is not None and time.time() >= self.expires


def _encoded(part: str) -> str:
    """Return a name component without spaces,
    so that a subject cannot imitate the end of a name.
    """
    return part.replace("%", "%25").replace(" ", "%20")
