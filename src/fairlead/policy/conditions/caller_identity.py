"""Facts about a message's principal that conditions compare."""

from collections.abc import Callable

from ...protocol.caller import principal_name
from ...protocol.identity.token_principal import TokenPrincipal
from .facts import Facts
from .operators import Test, claim_values

__all__ = ["claim_test", "identity_names", "token_issuer", "token_scopes", "token_subject"]


def identity_names(facts: Facts) -> str | tuple[str, ...] | None:
    """Return the principal's name, and its role if it has an access token."""
    principal = facts.exchange.caller.principal
    if isinstance(principal, TokenPrincipal) and principal.role is not None:
        return principal.name, principal.role
    return principal_name(principal)


def token_issuer(facts: Facts) -> str | None:
    """Return the access token's issuer; None if there is no token."""
    token = _token(facts)
    return None if token is None else token.issuer


def token_subject(facts: Facts) -> str | None:
    """Return the access token's subject; None if there is no token."""
    token = _token(facts)
    return None if token is None else token.subject


def token_scopes(facts: Facts) -> tuple[str, ...]:
    """Return the access token's scopes."""
    token = _token(facts)
    return () if token is None else tuple(token.scopes)


def claim_test(path: tuple[str, ...], test: Test) -> Callable[[Facts], bool]:
    """Return a condition on a claim in the access token."""

    def holds(facts: Facts) -> bool:
        token = _token(facts)
        return test(() if token is None else claim_values(token.claims, path))

    return holds


def _token(facts: Facts) -> TokenPrincipal | None:
    principal = facts.exchange.caller.principal
    return principal if isinstance(principal, TokenPrincipal) else None
