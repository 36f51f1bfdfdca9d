"""Responses of token and registration endpoints, and the authentication of clients."""

import math

import pytest

from fairlead.auth.metadata import AuthorizationServer
from fairlead.auth.token_response import (
    EARLY,
    LONGEST,
    ClientRegistration,
    TokenSet,
    choose_auth_method,
    client_authentication,
    read_registration,
    read_token_response,
    refusal,
)
from fairlead.errors import AuthorizationError

NOW = 1_000_000.0
ISSUER = "https://as.example"


def read(document: object, status: int = 200, **options: object) -> TokenSet:
    return read_token_response(status, document, issuer=ISSUER, now=NOW, **options)  # type: ignore[arg-type]


def test_all_members_of_a_token_response_are_read() -> None:
    document = {
        "access_token": "t",
        "token_type": "bearer",
        "expires_in": 60,
        "scope": "a b",
        "refresh_token": "r",
    }
    assert read(document) == TokenSet("t", "Bearer", ("a", "b"), NOW + 60, "r", 60)


def test_missing_members_of_a_token_response_have_safe_defaults() -> None:
    found = read({"access_token": "t", "token_type": "Bearer"}, requested=["x"], refresh_token="r")
    assert found == TokenSet("t", "Bearer", ("x",), None, "r")


@pytest.mark.parametrize(
    ("seconds", "expiry"),
    [
        (0, NOW),
        (-5, NOW),
        ("60", NOW + 60),
        (1e300, NOW + LONGEST),
        (math.inf, NOW + LONGEST),
        (math.nan, None),
        (True, None),
        ("soon", None),
        (None, None),
    ],
)
def test_unusual_token_lifetimes_are_limited_or_treated_as_unknown(
    seconds: object, expiry: float | None
) -> None:
    document = {"access_token": "t", "token_type": "Bearer", "expires_in": seconds}
    assert read(document).expires_at == expiry


def test_a_token_is_not_fresh_shortly_before_its_expiry() -> None:
    tokens = TokenSet("t", "Bearer", expires_at=NOW)
    assert not tokens.is_fresh(NOW - EARLY)
    assert tokens.is_fresh(NOW - EARLY - 1)
    assert tokens.is_valid(NOW - 1)
    assert not tokens.is_valid(NOW)


@pytest.mark.parametrize(
    ("lifetime", "early"), [(3600, EARLY), (60, EARLY), (20, 10), (1, 0.5), (0, 0)]
)
def test_tokens_with_a_short_lifetime_are_renewed_after_half_of_it(
    lifetime: float, early: float
) -> None:
    tokens = TokenSet("t", "Bearer", expires_at=NOW, lifetime=lifetime)
    assert tokens.fresh_until == NOW - early


@pytest.mark.parametrize(
    ("document", "status", "code", "temporary"),
    [
        ({"error": "invalid_grant"}, 400, "invalid_grant", False),
        ({"error": "invalid_grant", "access_token": "t"}, 200, "invalid_grant", False),
        (None, 503, "", True),
        ("<html>", 200, "", False),
        ({"message": "nope"}, 429, "", True),
    ],
)
def test_an_error_is_recognised_in_a_response_with_any_status(
    document: object, status: int, code: str, temporary: bool
) -> None:
    with pytest.raises(AuthorizationError) as caught:
        read(document, status)
    assert (caught.value.error, caught.value.temporary) == (code, temporary)


@pytest.mark.parametrize("document", [None, {}, {"error": "a sentence"}])
def test_a_successful_status_without_tokens_is_reported_as_an_invalid_response(
    document: object,
) -> None:
    what = "refused the request: HTTP 200 with an invalid response"
    assert what in str(refusal("the request", document, 200, issuer=ISSUER, step="token"))


def test_the_error_description_of_a_server_is_not_shown() -> None:
    with pytest.raises(AuthorizationError) as caught:
        read({"error": "invalid_grant", "error_description": "bad secret s3cr3t"}, 400)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        {"token_type": "Bearer"},
        {"access_token": 5, "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": "a" * (1 << 16), "token_type": "Bearer"},
        {"access_token": "a b", "token_type": "Bearer"},
        {"access_token": "a\r\nb", "token_type": "Bearer"},
        {"access_token": "t"},
        {"access_token": "t", "token_type": "mac"},
        {"access_token": "t", "token_type": "DPoP"},
    ],
)
def test_tokens_of_an_unusable_type_or_form_are_refused(document: object) -> None:
    with pytest.raises(AuthorizationError, match="no usable access token"):
        read(document)


def test_a_bound_token_is_accepted_if_a_proof_was_sent() -> None:
    document = {"access_token": "t", "token_type": "dpop"}
    assert read(document, sent_proof=True).token_type == "DPoP"


@pytest.mark.parametrize(
    ("supported", "client", "method"),
    [
        (None, ClientRegistration("c", "s"), "client_secret_basic"),
        (["client_secret_post"], ClientRegistration("c", "s"), "client_secret_post"),
        (["none"], ClientRegistration("c", "s", origin="dynamic"), "none"),
        (["client_secret_basic"], ClientRegistration("c"), "none"),
        (["none"], ClientRegistration("c", "s", "client_secret_post"), "client_secret_post"),
        (["none"], ClientRegistration("c", "s", "client_secret_post", "dynamic"), "none"),
    ],
)
def test_registration_and_metadata_determine_the_authentication_method(
    supported: list[str] | None, client: ClientRegistration, method: str
) -> None:
    server = AuthorizationServer(ISSUER, token_endpoint_auth_methods_supported=supported)
    assert choose_auth_method(server, client) == method


def test_basic_credentials_are_form_encoded_before_base64() -> None:
    client = ClientRegistration("a:b", "p/q r")
    fields, headers = client_authentication("client_secret_basic", client)
    assert fields == {"client_id": "a:b"}
    # base64 of "a%3Ab:p%2Fq%20r"
    assert headers == {"Authorization": "Basic YSUzQWI6cCUyRnElMjBy"}


def test_client_credentials_are_form_fields_unless_the_method_is_basic() -> None:
    client = ClientRegistration("c", "s")
    assert client_authentication("client_secret_post", client)[0] == {
        "client_id": "c",
        "client_secret": "s",
    }
    assert client_authentication("none", client) == ({"client_id": "c"}, {})
    assert client_authentication("private_key_jwt", client, "jwt")[0] == {
        "client_id": "c",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": "jwt",
    }


def test_a_registration_is_read_with_the_expiry_of_its_secret() -> None:
    document = {"client_id": "c", "client_secret": "s", "client_secret_expires_at": 50}
    client = read_registration(document, ISSUER)
    assert client == ClientRegistration("c", "s", None, "dynamic", 50.0)
    assert client.is_usable(49)
    assert not client.is_usable(50)


@pytest.mark.parametrize("document", [None, {}, {"client_id": ""}, {"error": "invalid_x"}])
def test_a_registration_without_a_client_id_is_refused(document: object) -> None:
    with pytest.raises(AuthorizationError) as caught:
        read_registration(document, ISSUER)
    assert caught.value.step == "registration"
