"""Verification with arbitrary documents of authorization servers: a verdict or a known error."""

import asyncio
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairlead.auth.guarded_fetch import FetchedDocument, GuardedFetcher
from fairlead.auth.server.issuer_keys import IssuerKeys
from fairlead.auth.server.token_claims import (
    LEEWAY,
    BadToken,
    TokenVerdict,
    WrongAudience,
    audience_forms,
)
from fairlead.auth.server.token_verifiers import (
    FunctionVerifier,
    IntrospectionVerifier,
    JwtVerifier,
)
from fairlead.errors import AuthorizationError
from fairlead.protocol.identity.token_principal import TokenPrincipal
from tests.support.token_issuer import TokenMint

HERE = "https://mcp.example/mcp"
AUDIENCES = audience_forms([HERE])
MINT = TokenMint()
KEY = MINT.key.as_dict(private=False)
METADATA = {"issuer": MINT.issuer, "jwks_uri": f"{MINT.issuer}/jwks"}
GOOD = {"active": True, "iss": MINT.issuer, "sub": "ann", "aud": HERE, "exp": 9_999_999_999}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
bounded = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)


class ScriptedFetcher(GuardedFetcher):
    """A fetcher whose responses come from the test instead of the network."""

    def __init__(self, *replies: tuple[int, dict[str, Any] | None]) -> None:
        super().__init__()
        self._replies = [*replies]

    async def get(self, url: str, *args: Any, **options: Any) -> FetchedDocument:
        status, document = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        return FetchedDocument(url, status, {}, document)

    async def post_form(self, url: str, *args: Any, **options: Any) -> FetchedDocument:
        return await self.get(url)


def changed(good: dict[str, Any], *more: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return variants of a document: members replaced, removed and added."""
    names = st.sampled_from([*good, *more])
    return st.tuples(st.dictionaries(names, values), st.sets(names)).map(
        lambda parts: {k: v for k, v in {**good, **parts[0]}.items() if k not in parts[1]}
    )


def introspected(status: int, document: dict[str, Any] | None, **options: Any) -> TokenVerdict:
    async def ask() -> TokenVerdict:
        fetcher = ScriptedFetcher((status, document))
        verifier = IntrospectionVerifier(
            "https://as.example/i",
            fetcher,
            client_id="c",
            client_secret="s",
            issuers=[MINT.issuer],
            **options,
        )
        return await verifier.verify("opaque", AUDIENCES)

    return asyncio.run(ask())


@pytest.mark.covers("AUT-06")
@bounded
@given(changed(GOOD, "scope", "scp", "cnf", "nbf", "client_id", "token_use", "events"))
@example(GOOD)
def test_an_arbitrary_introspection_response_accepts_or_refuses_the_token(
    document: dict[str, Any],
) -> None:
    try:
        verdict = introspected(200, document)
    except (BadToken, AuthorizationError):
        return
    assert (document["active"], verdict.principal.issuer) == (True, MINT.issuer)
    assert HERE in document["aud"]
    assert isinstance(verdict.principal.subject, str)
    assert all(isinstance(scope, str) for scope in verdict.principal.scopes)


@pytest.mark.parametrize(
    ("status", "document"),
    [(500, GOOD), (404, None), (200, None), (200, {}), (200, {**GOOD, "active": "true"})],
    ids=str,
)
def test_an_introspection_response_without_active_is_a_temporary_failure(
    status: int, document: dict[str, Any] | None
) -> None:
    with pytest.raises(AuthorizationError) as caught:
        introspected(status, document)
    assert caught.value.temporary


def test_an_introspection_response_without_audience_must_declare_an_access_token() -> None:
    """`oidc-provider` describes a refresh token like this, without `aud` and `token_type`."""
    refresh = {"active": True, "iss": MINT.issuer, "sub": "ann", "client_id": "app", "scope": "a"}
    for kind in ({}, {"token_type": None}, {"token_type": "refresh_token"}):
        with pytest.raises(BadToken):
            introspected(200, {**refresh, **kind}, require_audience=False)
    for kind in ({"token_type": "Bearer"}, {"token_use": "access_token"}):
        verdict = introspected(200, {**refresh, **kind}, require_audience=False)
        assert verdict.principal.subject == "ann"


def test_an_audience_that_is_present_is_compared_although_none_is_required() -> None:
    other = {**GOOD, "aud": "https://other.example/mcp", "token_type": "Bearer"}
    with pytest.raises(WrongAudience):
        introspected(200, other, require_audience=False)


def test_a_verdict_ends_no_later_than_its_token() -> None:
    end = time.time() + 5
    assert introspected(200, {**GOOD, "exp": end}).until == end + LEEWAY

    async def verify(token: str) -> TokenPrincipal:
        return TokenPrincipal(issuer="i", subject="s", expires=end)

    verdict = asyncio.run(FunctionVerifier(verify).verify("token", ()))
    assert verdict.until == end


def verified(*replies: tuple[int, dict[str, Any] | None]) -> TokenVerdict:
    """Verify a valid token with the metadata and key set that an issuer sends."""

    async def judge() -> TokenVerdict:
        issuer = IssuerKeys(MINT.issuer, ScriptedFetcher(*replies))
        try:
            return await JwtVerifier([issuer]).verify(MINT.token(HERE), AUDIENCES)
        finally:
            await issuer.close()

    return asyncio.run(judge())


@pytest.mark.covers("AUT-06")
@bounded
@given(st.lists(values | changed(KEY, "alg", "key_ops", "x5c"), max_size=4))
@example([KEY])
def test_a_token_is_accepted_or_refused_with_an_arbitrary_key_set(keys: list[Any]) -> None:
    try:
        verdict = verified((200, METADATA), (200, {"keys": keys}))
    except (BadToken, AuthorizationError):
        # An invalid key must not affect the other keys.
        assert KEY not in keys
        return
    assert verdict.principal.subject == "alice"
    assert any(isinstance(one, dict) and one.get("x") == KEY["x"] for one in keys)


@bounded
@given(st.none() | changed(METADATA, "authorization_endpoint", "scopes_supported"))
def test_a_token_is_accepted_or_refused_with_arbitrary_issuer_metadata(
    document: dict[str, Any] | None,
) -> None:
    try:
        verified((200, document), (200, {"keys": [KEY]}))
    except (BadToken, AuthorizationError):
        assert document != METADATA
        return
    assert document is not None
    assert document["issuer"] == MINT.issuer


@bounded
@given(
    st.integers(0, 2), st.integers(0, 400), st.integers(1, 255), st.sampled_from(["flip", "cut"])
)
def test_a_token_with_a_changed_character_or_a_truncated_part_is_refused(
    part: int, place: int, mask: int, kind: str
) -> None:
    """Change one character of a part of the token, or cut the part off at any place."""
    pieces = MINT.token(HERE).split(".")
    piece = pieces[part]
    # Some bits of the last character of a signature are unused.
    place %= len(piece) - 1
    other = chr(ord(piece[place]) ^ mask) if kind == "flip" else ""
    pieces[part] = piece[:place] + other + (piece[place + 1 :] if kind == "flip" else "")

    async def judge() -> None:
        issuer = IssuerKeys(MINT.issuer, ScriptedFetcher((200, METADATA), (200, MINT.jwks)))
        await JwtVerifier([issuer]).verify(".".join(pieces), AUDIENCES)

    with pytest.raises(BadToken) as caught:
        asyncio.run(judge())
    assert json.dumps(str(caught.value)).isascii()
