"""Attempts with an authorization code, and the redirects that end them."""

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from fairlead.auth.authorization_code import (
    AuthorizationAttempt,
    begin_attempt,
    code_of,
    pkce_challenge,
)
from fairlead.auth.metadata import AuthorizationServer
from fairlead.errors import AuthorizationError

ISSUER = "https://as.example"


def attempt(**members: object) -> AuthorizationAttempt:
    server = AuthorizationServer(
        issuer=ISSUER,
        **{"authorization_endpoint": f"{ISSUER}/authorize?tenant=1", **members},  # type: ignore[arg-type]
    )
    made, _ = begin_attempt(
        server,
        client_id="c",
        redirect_uri="http://127.0.0.1:1/callback",
        scopes=["a", "b"],
        resource="https://h/mcp",
    )
    return made


def redirect(**params: str) -> str:
    return f"http://127.0.0.1:1/callback?{urlencode(params)}"


@pytest.mark.covers("AUT-04")
def test_the_pkce_challenge_is_that_of_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert pkce_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_the_login_url_has_all_parameters_and_those_of_the_endpoint() -> None:
    made = attempt()
    assert parse_qs(urlsplit(made.url).query) == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": ["c"],
        "redirect_uri": ["http://127.0.0.1:1/callback"],
        "state": [made.state],
        "code_challenge": [pkce_challenge(made.verifier)],
        "code_challenge_method": ["S256"],
        "scope": ["a b"],
        "resource": ["https://h/mcp"],
    }


def test_each_login_attempt_has_its_own_state_and_verifier() -> None:
    one, other = attempt(), attempt()
    assert one.state != other.state
    assert one.verifier != other.verifier


@pytest.mark.parametrize(
    "endpoint",
    [
        None,
        "",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "http://as.example/authorize",
        "https://as.example/a b",
        "https://as.example/a\nb",
        "https://as.example/$(x)\x00",
        "https:///authorize",
        "calc.exe",
    ],
)
def test_an_authorization_endpoint_that_is_no_https_url_is_refused(endpoint: str | None) -> None:
    with pytest.raises(AuthorizationError, match="expected an https URL"):
        attempt(authorization_endpoint=endpoint)


def test_the_code_is_read_from_the_redirect_of_the_attempt() -> None:
    made = attempt()
    assert code_of(made, redirect(code="x", state=made.state)) == "x"


@pytest.mark.covers("AUT-04")
@pytest.mark.parametrize(
    ("announced", "iss", "accepted"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, "https://other.example", False),
        (False, ISSUER, True),
        (False, None, True),
        (False, "https://other.example", False),
        (False, f"{ISSUER}/", False),
        (True, ISSUER.upper(), False),
    ],
)
def test_the_issuer_of_a_redirect_is_checked(
    announced: bool, iss: str | None, accepted: bool
) -> None:
    made = attempt(authorization_response_iss_parameter_supported=announced)
    params = {"code": "x", "state": made.state, **({} if iss is None else {"iss": iss})}
    if accepted:
        assert code_of(made, redirect(**params)) == "x"
        return
    with pytest.raises(AuthorizationError, match="another authorization server"):
        code_of(made, redirect(**params))


@pytest.mark.parametrize("state", ["", "other"])
def test_a_redirect_of_another_login_is_refused(state: str) -> None:
    with pytest.raises(AuthorizationError, match="wrong state"):
        code_of(attempt(), redirect(code="x", state=state))


@pytest.mark.parametrize("name", ["code", "state", "iss"])
def test_a_redirect_with_a_repeated_parameter_is_refused(name: str) -> None:
    made = attempt()
    url = redirect(code="x", state=made.state, iss=ISSUER) + f"&{name}=y"
    with pytest.raises(AuthorizationError, match="twice"):
        code_of(made, url)


def test_an_error_in_a_redirect_is_raised_with_its_code() -> None:
    made = attempt()
    url = redirect(error="access_denied", error_description="no\x1b[31m", state=made.state)
    with pytest.raises(AuthorizationError) as caught:
        code_of(made, url)
    assert caught.value.error == "access_denied"
    assert str(caught.value) == "login refused: access_denied no[31m"


def test_an_error_in_a_redirect_from_another_issuer_is_not_shown() -> None:
    made = attempt()
    url = redirect(error="visit evil.example", state=made.state, iss="https://evil.example")
    with pytest.raises(AuthorizationError) as caught:
        code_of(made, url)
    assert "visit" not in str(caught.value)
    assert caught.value.error == ""
