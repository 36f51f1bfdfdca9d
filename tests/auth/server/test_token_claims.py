"""Claims that distinguish access tokens from other tokens of the same issuer."""

from typing import Any

import pytest

from fairlead.auth.server.token_claims import BadToken, verdict_of
from fairlead.protocol.identity.token_principal import TokenPrincipal

ISSUER = "https://login.example"


def judge(**claims: Any) -> str:
    given = {"sub": "ann", **claims}
    return verdict_of(given, ISSUER, until=1.0, expires=None, implied={}).principal.subject


@pytest.mark.parametrize("claim", ["typ", "token_use", "token_type", "tokenName"])
@pytest.mark.parametrize(
    "kind",
    [
        *("refresh", "Refresh", "refresh_token", "REFRESH-TOKEN", "RefreshToken", "refresh+jwt"),
        *("id", "ID", "id_token", "IdToken", "Offline", "Logout", "logout+jwt"),
        "urn:ietf:params:oauth:token-type:refresh_token",
        "urn:ietf:params:oauth:token-type:id_token",
        "urn:ietf:params:oauth:token-type:id-jag",
        *("authorization_code", "oauth-id-jag+jwt"),
    ],
)
def test_refresh_tokens_and_id_tokens_of_the_issuer_are_refused(claim: str, kind: str) -> None:
    with pytest.raises(BadToken, match="not an access token"):
        judge(**{claim: kind})


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"token_type": "Bearer"},
        {"token_type": "DPoP"},
        {"typ": "Bearer", "token_use": "access"},
        {"token_use": "access_token", "tokenName": "access_token"},
        {"token_type": "urn:ietf:params:oauth:token-type:access_token"},
        {"token_type": "urn:example:validated_token"},
        {"token_use": ["access", "id"], "typ": None},
    ],
)
def test_every_usual_type_claim_of_an_access_token_is_accepted(claims: dict[str, Any]) -> None:
    assert judge(**claims) == "ann"


@pytest.mark.parametrize("claim", ["at_hash", "c_hash", "s_hash", "events"])
def test_tokens_with_claims_of_id_and_logout_tokens_are_refused(claim: str) -> None:
    with pytest.raises(BadToken, match="not an access token"):
        judge(**{claim: "x"})


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("claim", ["client_id", "azp", "appid", "cid"])
def test_the_client_of_a_token_is_read_from_any_claim_that_names_it(claim: str) -> None:
    """Otherwise, a session would be shared by all clients of a user."""
    made = {"sub": "ann", "azp": None, claim: "app"}
    verdict = verdict_of(made, ISSUER, until=1.0, expires=None, implied={})
    assert verdict.principal == TokenPrincipal(issuer=ISSUER, subject="ann", client="app")


@pytest.mark.parametrize(
    "binding",
    [{"x5t#S256": "x"}, {"jkt": "x", "x5t#S256": "y"}, {"jkt": ""}, {"jkt": 5}, {}, [], "x", 0],
    ids=str,
)
def test_a_token_that_is_bound_to_anything_but_one_key_is_refused(binding: Any) -> None:
    """The token of a certificate would otherwise be accepted without the certificate."""
    with pytest.raises(BadToken, match="unsupported key binding"):
        judge(cnf=binding)


def test_a_token_of_a_client_has_the_client_as_its_subject() -> None:
    assert judge(sub=None, client_id="app") == "app"


@pytest.mark.parametrize("subject", ["", 5, ["ann"], "x" * 1025])
def test_an_invalid_subject_is_not_replaced_by_the_client(subject: Any) -> None:
    """With the client as a substitute, the token would get the rights of the client itself."""
    with pytest.raises(BadToken, match="names no subject"):
        judge(sub=subject, client_id="app")
