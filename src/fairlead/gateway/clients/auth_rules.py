"""Rules that give the bearer of an OAuth access token a role: a client name with a view."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from ...policy.conditions.operators import Test, claim_values, value_test
from ...protocol.identity.token_principal import TokenPrincipal

__all__ = ["AuthRule", "TokenRoles"]


class AuthRule(Struct, frozen=True, kw_only=True, dict=True):
    """A rule for tokens. All conditions must hold; a rule without conditions matches every token.

    `claims` are tests of claims by path (`realm_access.roles`). A claim that is a list passes a
    test if one of its items does.

    Raises:
        InvalidTest: A test of a claim is invalid. Raised by the constructor.
    """

    client: str
    view: str | None = None
    admin: bool = False
    issuer: str | None = None
    groups: tuple[str, ...] = ()  # one of these groups must be in the claim `groups`
    scopes: tuple[str, ...] = ()  # all of these scopes must have been granted
    claims: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self._tests

    def matches(self, principal: TokenPrincipal) -> bool:
        """Return True if this rule applies to a token."""
        return principal.scopes.issuperset(self.scopes) and self.matches_apart_from_scopes(
            principal
        )

    def matches_apart_from_scopes(self, principal: TokenPrincipal) -> bool:
        """Return True if this rule would apply to a token with more scopes."""
        if self.issuer is not None and principal.issuer != self.issuer:
            return False
        if self.groups and not {*_texts(principal.claims.get("groups"))}.intersection(self.groups):
            return False
        return all(test(claim_values(principal.claims, path)) for path, test in self._tests)

    @cached_property
    def _tests(self) -> list[tuple[tuple[str, ...], Test]]:
        return [
            (tuple(path.split(".")), value_test(wanted)) for path, wanted in self.claims.items()
        ]


class TokenRoles:
    """The rules of a gateway, in order. The first rule that matches a token applies."""

    def __init__(self, rules: Sequence[AuthRule] = ()) -> None:
        self._rules = tuple(rules)
        self._by_client = {rule.client: rule for rule in rules}

    def role_of(self, principal: TokenPrincipal) -> str | None:
        """Return the client name for a token; None if no rule matches."""
        for rule in self._rules:
            if rule.matches(principal):
                return rule.client
        return None

    def scopes_for(self, principal: TokenPrincipal) -> tuple[str, ...]:
        """Return the scopes with which a rule would match a token that no rule matches; empty if
        no scopes suffice.

        The last such rule is used, because rules for more rights come first.
        """
        for rule in reversed(self._rules):
            if rule.scopes and rule.matches_apart_from_scopes(principal):
                return rule.scopes
        return ()

    def is_admin(self, role: str | None) -> bool:
        """Return True if a role may use the admin API."""
        rule = None if role is None else self._by_client.get(role)
        return rule is not None and rule.admin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenRoles) and other._rules == self._rules

    __hash__ = None  # type: ignore[assignment]  # compared, never used as a key


def _texts(claim: Any) -> list[str]:
    """Return the strings in a claim that is a string or a list."""
    several = claim if isinstance(claim, list) else [claim]
    return [one for one in several if isinstance(one, str)]
