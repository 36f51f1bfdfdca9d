"""Tests of principals that are created from OAuth access tokens."""

import time
from typing import Any

import pytest

from fairlead.protocol.identity.principal_scopes import missing_scopes
from fairlead.protocol.identity.scoped_name import ScopedName
from fairlead.protocol.identity.token_principal import TOKEN_PRINCIPAL, TokenPrincipal

A = "https://a.example"


def test_a_renewed_token_has_the_same_principal() -> None:
    old = TokenPrincipal(issuer=A, subject="ann", client="app", scopes=frozenset({"read"}))
    new = TokenPrincipal(issuer=A, subject="ann", client="app", scopes=frozenset({"write"}))
    assert old == new
    assert hash(old) == hash(new)


@pytest.mark.parametrize(
    "other",
    [
        TokenPrincipal(issuer="https://b.example", subject="ann", client="app"),
        TokenPrincipal(issuer=A, subject="bob", client="app"),
        TokenPrincipal(issuer=A, subject="ann", client="tool"),
        TokenPrincipal(issuer=A, subject="ann"),
        TokenPrincipal(issuer=A, subject="ann app"),
        TokenPrincipal(issuer=f"{A} ann", subject="app"),
        f"{TOKEN_PRINCIPAL}{A} ann app",
    ],
)
def test_principals_with_different_issuers_clients_or_subjects_are_not_equal(other: object) -> None:
    assert TokenPrincipal(issuer=A, subject="ann", client="app") != other


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(
    ("given", "scopes"),
    [
        ("mcp:readwrite", {"mcp:readwrite"}),
        ("read  write", {"read", "write"}),
        (["read", "write"], {"read", "write"}),
        ("", set()),
        (None, set()),
    ],
)
def test_scopes_of_a_principal_may_be_a_string_or_a_list(given: Any, scopes: set[str]) -> None:
    """A string must not grant the scopes that are parts of it, and None must not grant all."""
    principal = TokenPrincipal(issuer=A, subject="ann", scopes=given)
    assert principal.scopes == scopes
    assert missing_scopes(principal, ["mcp:read"]) == ("mcp:read",)
    assert ScopedName("ann", given).scopes == scopes


@pytest.mark.parametrize("expires", ["2999", True, float("nan"), float("inf"), 1e12])
def test_a_principal_with_an_expiry_that_is_not_a_time_is_unusable(expires: Any) -> None:
    assert TokenPrincipal(issuer=A, subject="ann", expires=expires).fault is not None
    assert TokenPrincipal(issuer=A, subject="ann", expires=time.time()).fault is None


@pytest.mark.parametrize("subject", ["", "ann"])
def test_a_principal_without_a_subject_is_unusable(subject: str) -> None:
    fault = TokenPrincipal(issuer=A, subject=subject).fault
    assert fault == (None if subject else "its `subject` is missing")


def test_the_name_of_a_token_principal_contains_its_encoded_parts() -> None:
    principal = TokenPrincipal(issuer=A, subject="ann b", client="app")
    assert str(principal) == principal.name == "oauth:https://a.example ann%20b app"


def test_a_token_expires_at_its_expiry_time() -> None:
    now = time.time()
    assert TokenPrincipal(issuer=A, subject="ann", expires=now - 1).has_expired()
    assert not TokenPrincipal(issuer=A, subject="ann", expires=now + 60).has_expired()
    assert not TokenPrincipal(issuer=A, subject="ann").has_expired()


def test_principals_with_different_roles_are_not_equal() -> None:
    plain = TokenPrincipal(
        issuer=A,
        subject="ann",
        client="app",
        scopes=frozenset({"read"}),
        claims={"a": 1},
        expires=1,
    )
    staff = plain.with_role("staff")
    assert staff == plain.with_role("staff")
    assert staff != plain
    assert staff != plain.with_role("guests")
    assert (str(staff), staff.scopes, staff.claims) == (str(plain), plain.scopes, plain.claims)
    assert (staff.role, staff.expires) == ("staff", plain.expires)
