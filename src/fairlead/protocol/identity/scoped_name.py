"""Names of configured clients whose tokens are limited to certain scopes."""

from collections.abc import Iterable

from .token_principal import TokenStanding, scope_set

__all__ = ["ScopedName"]


class ScopedName(str):
    """The name of a configured client whose token is limited to certain scopes.

    It equals the plain name; the scopes are those of the token sent with the request.
    """

    __slots__ = ("scopes", "standing")
    scopes: frozenset[str]
    standing: TokenStanding | None  # None: the token is valid as long as the process runs

    def __new__(
        cls, name: str, scopes: str | Iterable[str] = (), standing: TokenStanding | None = None
    ) -> "ScopedName":
        made = super().__new__(cls, name)
        made.scopes = scope_set(scopes)
        made.standing = standing
        return made

    def with_standing(self, standing: TokenStanding) -> "ScopedName":
        """Return a copy whose token is verified again with `standing`."""
        return ScopedName(self, self.scopes, standing)
