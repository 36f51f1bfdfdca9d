"""Names of clients, and the names that are reserved for other principals.

Principals have different sources: one token of the owner, configured tokens, functions that verify
tokens, and issuers of access tokens. A name from one source never equals a principal of another,
because sessions and limits belong to the principal.
"""

from typing import Final

from .token_principal import TOKEN_PRINCIPAL

__all__ = ["UNNAMED", "is_reserved"]


class _Unnamed(str):
    """The type of `UNNAMED`, so that no name from another source is identical to it."""

    __slots__ = ()


# Principal of a token that is not assigned to a particular client: the owner's. It is not limited
# by scopes, so code compares it with `is`; the name is for display.
UNNAMED: Final = _Unnamed("token")


def is_reserved(name: str) -> bool:
    """Return True if a client must not have this name."""
    return not name or name == UNNAMED or name.startswith(TOKEN_PRINCIPAL)
