"""Principal of a client that proved its identity with an OAuth access token."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

__all__ = ["TOKEN_PRINCIPAL", "TokenPrincipal", "TokenStanding", "scope_set"]

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
        scopes: str | Iterable[str] | None = frozenset(),
        claims: Mapping[str, Any] | None = None,
        expires: float | None = None,
        role: str | None = None,
        standing: TokenStanding | None = None,
    ) -> None:
        """Create a principal. `expires` is a Unix time; `client` is None if the issuer does not
        name the client. A string of `scopes` is split at spaces, like the claim `scope`. Without
        `standing`, only `expires` ends the streams of the token.
        """
        self.issuer = issuer
        self.subject = subject
        self.client = client
        self.scopes = scope_set(scopes)
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

    def with_scopes(self, scopes: Iterable[str]) -> "TokenPrincipal":
        """Return a copy that has these scopes."""
        found = self._copy(self.role, self.standing)
        found.scopes = scope_set(scopes)
        return found

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

    @property
    def fault(self) -> str | None:
        """The reason why no request can have this principal, or None.

        Functions of programs create principals from claims that may be missing.
        """
        if not isinstance(self.subject, str) or not self.subject:
            return "its `subject` is missing"
        end = self.expires
        # Booleans are integers in Python; the bound excludes NaN, which never expires.
        is_time = isinstance(end, int | float) and not isinstance(end, bool) and end < 1e11
        return None if end is None or is_time else "its `expires` is not a Unix time"

    def has_expired(self) -> bool:
        """Return True if the token of this principal is no longer valid."""
        return self.expires is not None and time.time() >= self.expires


def scope_set(scopes: str | Iterable[str] | None) -> frozenset[str]:
    """Return scopes as a set; a string is split at spaces.

    Programs pass claims on as they are: a string that is not split would contain every scope that
    is a part of it, and None would be read as unlimited.
    """
    if isinstance(scopes, frozenset):
        return scopes
    return frozenset(scopes.split() if isinstance(scopes, str) else scopes or ())


def _encoded(part: str) -> str:
    """Return a name component without spaces,
    so that a subject cannot imitate the end of a name.
    """
    return part.replace("%", "%25").replace(" ", "%20")
