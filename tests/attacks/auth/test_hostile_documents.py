"""Oversized, deeply nested, truncated or mistyped documents of an authorization server.

Each document is used within its limits or raises `AuthorizationError`. Other exceptions and
unlimited time or memory are errors.
"""

import asyncio
import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey

from fairlead.auth.authorization_code import begin_attempt, check_browser_url, code_of
from fairlead.auth.challenge import parse_challenges, pick_challenge
from fairlead.auth.client.interactive_login import _device_code
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.metadata import (
    AuthorizationServer,
    check_issuer,
    check_resource,
    read_authorization_server,
    read_protected_resource,
    server_metadata_urls,
)
from fairlead.auth.server.key_set import read_key_set
from fairlead.auth.token_response import LONGEST, read_registration, read_token_response
from fairlead.errors import AuthorizationError
from fairlead.wire.json import read_json
from tests.support.scripted_provider import request, responding, scripted_provider

ISSUER = "https://as.example"
NOW = 1_000_000.0

URLS = st.one_of(
    st.sampled_from(
        [
            "https://[::1",
            "https://h:99999/x",
            "https://h:port",
            "//h",
            "",
            "javascript:alert(1)",
            "https://h/a b",
            "https://\x00",
            "https://h\\@evil",
            "https://" + "a" * 300,
            "https://[fe80::1%25eth0]/",
            "https://xn--/",
            "https://h/\ud7ff",
            "https://h/?" + "a=b&" * 500,
        ]
    ),
    st.text(max_size=50).map("https://".__add__),
    st.text(max_size=50),
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.just(10**400), st.just(-(10**400)))
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | URLS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def documents(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), JSON | URLS, max_size=len(names))


@given(documents("resource", "authorization_servers", "scopes_supported"))
@example({"resource": "https://h:port/mcp", "authorization_servers": ["https://[::1"]})
def test_arbitrary_resource_metadata_raises_only_authorization_error(
    document: dict[str, Any],
) -> None:
    found = read_protected_resource(document)
    if found is not None:
        with contextlib.suppress(AuthorizationError):
            check_resource(found.resource, "https://h/mcp")
        with contextlib.suppress(AuthorizationError):
            server_metadata_urls(found.authorization_servers[0])


@given(URLS)
def test_an_arbitrary_authorization_endpoint_raises_only_authorization_error(url: str) -> None:
    server = AuthorizationServer(ISSUER, authorization_endpoint=url)
    with contextlib.suppress(AuthorizationError):
        attempt, _ = begin_attempt(
            server, client_id="c", redirect_uri="http://127.0.0.1/", scopes=[], resource=None
        )
        assert attempt.url.startswith(("https://", "http://127.0.0.1", "http://localhost"))
        assert attempt.url.isascii()


@given(
    st.integers(100, 599),
    documents("access_token", "token_type", "expires_in", "scope", "refresh_token", "error") | JSON,
)
@example(200, {"access_token": "t", "token_type": "Bearer", "expires_in": 10**400})
@example(200, {"access_token": "t", "token_type": "Bearer", "expires_in": "²"})
@example(200, {"access_token": "t", "token_type": "Bearer", "expires_in": "9" * 5000})
def test_an_arbitrary_token_response_raises_only_authorization_error(
    status: int, document: Any
) -> None:
    with contextlib.suppress(AuthorizationError):
        tokens = read_token_response(status, document, issuer=ISSUER, now=NOW)
        assert tokens.access_token.isascii()
        assert tokens.expires_at is None or NOW <= tokens.expires_at <= NOW + LONGEST


@given(documents("client_id", "client_secret", "client_secret_expires_at", "error") | JSON)
@example({"client_id": "c", "client_secret_expires_at": 10**400})
@example({"client_id": "c", "client_secret_expires_at": True})
def test_an_arbitrary_client_registration_raises_only_authorization_error(document: Any) -> None:
    with contextlib.suppress(AuthorizationError):
        read_registration(document, ISSUER).is_usable(NOW)


WORDS = st.sampled_from(["RSA", "EC", "OKP", "oct", "P-256", "Ed25519", "sig", "enc", "RS256", ""])
KEYS = st.dictionaries(
    st.sampled_from(["kty", "use", "kid", "alg", "key_ops", "n", "e", "crv", "x", "y", "k", "d"]),
    WORDS | st.text(st.sampled_from("ABCabc019-_="), max_size=400) | JSON,
)
GOOD_KEY = ECKey.generate_key("P-256", {"kid": "good"}).as_dict(private=False)


@given(JSON | st.fixed_dictionaries({"keys": JSON | st.lists(KEYS | JSON, max_size=5)}))
def test_reading_an_arbitrary_key_set_raises_no_exception(document: Any) -> None:
    read_key_set(document)


@given(st.lists(KEYS | JSON, max_size=5), st.lists(KEYS | JSON, max_size=5))
@example(
    [{"kty": "RSA", "n": "AA", "e": "AQAB"}], [{"kty": "EC", "crv": "P-256", "x": "", "y": ""}]
)
def test_invalid_keys_in_a_key_set_do_not_hide_a_valid_one(
    before: list[Any], after: list[Any]
) -> None:
    found = read_key_set({"keys": [*before, GOOD_KEY, *after]})
    assert found is not None
    assert "good" in {key.id for key in found.keys}


@given(documents("device_code", "user_code", "verification_uri", "expires_in", "interval") | JSON)
@example(
    {
        "device_code": "d",
        "user_code": "u",
        "verification_uri": "https://h",
        "expires_in": 10**400,
        "interval": 10**400,
    }
)
def test_an_arbitrary_device_code_response_raises_only_authorization_error(document: Any) -> None:
    with contextlib.suppress(AuthorizationError):
        _, code, pause = _device_code(document, 200, ISSUER)
        assert 1 <= pause <= 60
        assert code.expires_in <= LONGEST
        check_browser_url(code.url, ISSUER)


@given(st.text(max_size=200) | URLS)
@example("http://[::1?state=x")
@example("http://h/?code=a&state=%ED%A0%80")
def test_arbitrary_pasted_text_raises_only_authorization_error(text: str) -> None:
    server = AuthorizationServer(ISSUER, authorization_endpoint=f"{ISSUER}/authorize")
    attempt, _ = begin_attempt(
        server, client_id="c", redirect_uri="http://127.0.0.1/", scopes=[], resource=None
    )
    with pytest.raises(AuthorizationError):
        code_of(attempt, text)


@pytest.mark.parametrize(
    "issuer",
    [
        "https://as.example/",
        "https://AS.example",
        "https://as.example:443",
        "HTTPS://as.example",
        "https://as.example/.",
        "https://as.example?",
        "https://as.example#",
        "https://as.example ",
        "https://as.example\x00",
        "https://%61s.example",
        "http://as.example",
        "https://as.example.",
        "https://\u0430s.example",  # a Cyrillic letter
    ],
)
def test_an_issuer_that_almost_matches_is_refused(issuer: str) -> None:
    with pytest.raises(AuthorizationError, match="name another issuer"):
        check_issuer(AuthorizationServer(issuer), ISSUER)


@pytest.mark.parametrize(
    "resource",
    [
        "https://h.example/mcp2",
        "https://h.example/mc",
        "https://h.example/mcp/x",
        "https://h.example.evil/mcp",
        "https://h.example:8443/mcp",
        "http://h.example/mcp",
        "https://h.example@evil/mcp",
        "https://user@evil/mcp",
        "https://h.example\\@evil/mcp",
        "https://[/mcp",
        "https://h.example:x/mcp",
        "",
    ],
)
def test_a_resource_identifier_that_almost_matches_is_refused(resource: str) -> None:
    with pytest.raises(AuthorizationError, match="name another resource"):
        check_resource(resource, "https://h.example/mcp")


@pytest.mark.parametrize(
    "value",
    [
        "Bearer " + ", ".join(f'resource_metadata="http://h/{n}"' for n in range(5000)),
        'Bearer realm="' + "\\" * 100_000,
        "Bearer " + "a=" * 50_000,
        "Bearer " + "a" * 100_000,
        "Bearer '" * 20_000,
        "," * 200_000,
        "Bearer a = " * 20_000,
        '"' * 100_000,
    ],
    ids=range(8),
)
def test_parsing_a_long_challenge_takes_less_than_half_a_second(value: str) -> None:
    begin = time.perf_counter()
    pick_challenge(parse_challenges(value))
    assert time.perf_counter() - begin < 0.5


DEEP = b'{"a":' * 40_000
BODIES = {
    "cut": b'{"issuer": "https://as',
    "deep": DEEP,
    "deep and complete": DEEP + b"1" + b"}" * 40_000,
    "a list": b"[]",
    "null": b"null",
    "empty": b"",
    "html": b"<!doctype html><h1>Sign in</h1>",
    "too large": b'{"a": "' + b"x" * (300 << 10) + b'"}',
    "repeated members": b'{"issuer": "https://a", "issuer": "https://b", "resource": 1}',
    "not UTF-8": b'{"issuer": "\xff\xfe"}',
    "long number": b'{"issuer": "x", "expires_in": ' + b"9" * 100_000 + b"}",
    "a lone surrogate": b'{"client_id": "\\ud800", "access_token": "\\ud800"}',
    "mistyped": json.dumps(
        {"issuer": [1], "resource": {}, "client_id": 5, "access_token": {}, "token_type": 1}
    ).encode(),
}


@pytest.mark.parametrize("step", ["resource", "metadata", "register", "token"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_login_fails_with_an_error_if_a_document_is_malformed(
    step: str, body: bytes
) -> None:
    async with scripted_provider() as provider:
        provider.scripts[step] = responding(200, body)
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        with pytest.raises(AuthorizationError) as caught:
            await authorizer.log_in()
        assert "127.0.0.1" in str(caught.value)  # where
        assert caught.value.step in ("discovery", "registration", "token")
        assert sum(provider.steps.values()) <= 10


@settings(max_examples=40, deadline=None)
@given(
    step=st.sampled_from(["resource", "metadata", "register", "token"]),
    status=st.sampled_from([200, 201, 204, 400, 401, 404, 429, 500, 503]),
    body=JSON.map(lambda value: json.dumps(value, default=str).encode()) | st.binary(max_size=50),
)
def test_a_login_with_any_response_succeeds_or_raises_only_authorization_error(
    step: str, status: int, body: bytes
) -> None:
    asyncio.run(log_in_at(step, status, body))


async def log_in_at(step: str, status: int, body: bytes) -> None:
    async with scripted_provider() as provider:
        provider.scripts[step] = responding(status, b"" if status == 204 else body)
        authorizer = OAuthAuthorizer(provider.url, authorize=provider.user())
        with contextlib.suppress(AuthorizationError):
            assert (await request(provider, authorizer))[0] in (200, 401)


@pytest.mark.parametrize("text", ['{"a": 1e999}', '{"a": NaN}', '{"a": "\\ud800"}'])
def test_json_with_non_standard_values_is_rejected(text: str) -> None:
    assert read_json(text.encode(), dict[str, Any], None) is None


def test_server_metadata_with_many_scopes_is_accepted() -> None:
    scopes = [f"scope:{number}" for number in range(2000)]
    found = read_authorization_server({"issuer": ISSUER, "scopes_supported": scopes})
    assert found is not None
    assert found.scopes_supported == scopes
