"""Rules that map access tokens to client names."""

from typing import Any

import pytest

from fairlead.gateway.clients.auth_rules import AuthRule, TokenRoles
from fairlead.policy.conditions.operators import InvalidTest
from fairlead.protocol.identity.token_principal import TokenPrincipal

A, B = "https://a.example", "https://b.example"


def token(*scopes: str, issuer: str = A, **claims: Any) -> TokenPrincipal:
    return TokenPrincipal(issuer=issuer, subject="ann", scopes=frozenset(scopes), claims=claims)


@pytest.mark.parametrize(
    ("rule", "matching", "other"),
    [
        (AuthRule(client="c", issuer=A), token(), token(issuer=B)),
        (AuthRule(client="c", issuer=A), token(), token(issuer=A + "/")),
        (AuthRule(client="c", scopes=("r", "w")), token("r", "w", "x"), token("r")),
        (AuthRule(client="c", groups=("a", "b")), token(groups=["z", "b"]), token(groups=["z"])),
        (AuthRule(client="c", groups=("a",)), token(groups="a"), token()),
        (AuthRule(client="c", groups=("a",)), token(groups="a"), token(groups={"a": 1})),
        (AuthRule(client="c", claims={"org": "x"}), token(org="x"), token(org="X")),
        (AuthRule(client="c", claims={"org": "x"}), token(org=["y", "x"]), token(org=["y"])),
        (AuthRule(client="c", claims={"org": ["x", "y"]}), token(org="y"), token(org="z")),
        (AuthRule(client="c", claims={"ok": True}), token(ok=True), token(ok=1)),
        (
            AuthRule(client="c", claims={"realm_access.roles": "x"}),
            token(realm_access={"roles": ["w", "x"]}),
            token(realm_access=["x"]),
        ),
        (
            AuthRule(client="c", claims={"https://a.example/roles": "x"}),
            token(**{"https://a.example/roles": ["x"]}),
            token(roles=["x"]),
        ),
        (
            AuthRule(client="c", claims={"email": {"like": "*@a.example"}}),
            token(email="ann@a.example"),
            token(email="ann@a.example.evil"),
        ),
        (
            AuthRule(client="c", scopes=("r",), claims={"org": "x"}),
            token("r", org="x"),
            token("r", org="y"),
        ),
    ],
)
def test_a_rule_matches_if_all_of_its_conditions_hold(
    rule: AuthRule, matching: TokenPrincipal, other: TokenPrincipal
) -> None:
    assert rule.matches(matching)
    assert not rule.matches(other)


def test_the_first_matching_rule_applies() -> None:
    rules = TokenRoles(
        [
            AuthRule(client="admins", groups=("ops",), admin=True),
            AuthRule(client="writers", scopes=("write",)),
            AuthRule(client="admins", issuer=B, admin=True),
        ]
    )
    assert rules.role_of(token("write", groups=["ops"])) == "admins"
    assert rules.role_of(token("write", issuer=B)) == "writers"
    assert rules.role_of(token(issuer=B)) == "admins"
    assert rules.role_of(token("read")) is None
    assert (rules.is_admin("admins"), rules.is_admin("writers")) == (True, False)
    assert (rules.is_admin("ops"), rules.is_admin(None)) == (False, False)


def test_the_scopes_of_the_last_rule_that_would_match_are_requested() -> None:
    rules = TokenRoles(
        [
            AuthRule(client="admins", issuer=A, scopes=("admin",), admin=True),
            AuthRule(client="readers", issuer=A, scopes=("read",)),
            AuthRule(client="staff", issuer=A, groups=("staff",)),
            AuthRule(client="partners", issuer=B, groups=("x",), scopes=("read",)),
        ]
    )
    assert rules.scopes_for(token("other")) == ("read",)
    assert rules.scopes_for(token("other", issuer=B)) == ()
    assert rules.scopes_for(token("other", issuer=B, groups="x")) == ("read",)


def test_tokens_have_no_role_if_there_are_no_rules() -> None:
    assert TokenRoles().role_of(token("write", groups=["ops"])) is None


def test_a_rule_without_conditions_matches_every_token() -> None:
    assert AuthRule(client="c").matches(token())


def test_an_unknown_operator_in_a_claim_condition_is_refused() -> None:
    with pytest.raises(InvalidTest):
        AuthRule(client="c", claims={"org": {"lik": "x"}})
