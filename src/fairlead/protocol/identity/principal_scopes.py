"""Scopes of principals, and the check for scopes that a request lacks."""

from collections.abc import Iterable

from ..caller import ANONYMOUS, UNNAMED, Principal
from .scoped_name import ScopedName
from .token_principal import TokenPrincipal

__all__ = ["granted_scopes", "missing_scopes", "scope_tuple"]


def scope_tuple(scopes: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return configured scopes as a tuple; a string is split at spaces."""
    if scopes is None:
        return ()
    return tuple(dict.fromkeys(scopes.split() if isinstance(scopes, str) else scopes))


def granted_scopes(principal: Principal) -> frozenset[str] | None:
    """Return the scopes of a principal, or None if its requests are not limited by scopes.

    Requests are unlimited if clients are not authenticated, and with the owner's token
    (`auth_token`). A configured name without scopes has an empty set.
    """
    if isinstance(principal, TokenPrincipal | ScopedName):
        return principal.scopes
    if principal is ANONYMOUS or principal is UNNAMED:
        return None
    return frozenset()


def missing_scopes(principal: Principal, needed: Iterable[str]) -> tuple[str, ...]:
    """Return the required scopes that a principal lacks, in order."""
    granted = granted_scopes(principal)
    if granted is None:
        return ()
    return tuple(scope for scope in dict.fromkeys(needed) if scope not in granted)
