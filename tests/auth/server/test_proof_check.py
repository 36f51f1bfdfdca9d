"""Verification of DPoP proofs: every proof is accepted or refused with a known error."""

import asyncio
import base64
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OctKey, RSAKey

from fairlead.auth.challenge import parse_challenges
from fairlead.auth.dpop import DpopKey, token_hash
from fairlead.auth.server import proof_check
from fairlead.auth.server.proof_check import (
    NONCE_AGE,
    WINDOW,
    BadProof,
    NonceDemanded,
    ProofCheck,
    verify_proof,
)
from fairlead.auth.server.server_auth import ServerAuth, TokenIssuer
from fairlead.errors import ConfigError
from fairlead.protocol.sealed_state import KEYS_VARIABLE, KeyRing
from fairlead.transport.http.server.token_access import RequestRefusal
from tests.support.token_issuer import TokenMint

BASE = "https://h.example"
URL = f"{BASE}/mcp"
KEY = ECKey.generate_key("P-256")
MINE = KEY.thumbprint()
DEEP = "[" * 3000 + "]" * 3000
bounded = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)


def claims(**changes: Any) -> dict[str, Any]:
    usual = {"jti": "x", "htm": "POST", "htu": URL, "iat": int(time.time()), "ath": token_hash("t")}
    return {**usual, **changes}


def signed(payload: Any, header: dict[str, Any] | None = None, key: Any = KEY) -> str:
    """Return a proof with a valid signature; `payload` is text or claims."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    head: dict[str, Any] = {"typ": "dpop+jwt", "alg": "ES256"}
    head |= {"jwk": key.as_dict(private=False), **(header or {})}
    body = f"{encoded(json.dumps(head).encode())}.{encoded(text.encode())}"
    # Signed without checks of the library: some of these proofs are wrong on purpose.
    return f"{body}.{encoded(jws.JWSRegistry.algorithms[head['alg']].sign(body.encode(), key))}"


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def verify(proof: str, **options: Any) -> dict[str, Any]:
    usual = {"method": "POST", "url": URL, "access_token": "t", "thumbprint": MINE}
    return verify_proof(proof, **{**usual, **options})


def test_a_proof_is_accepted_for_its_request_and_token() -> None:
    key = DpopKey()
    proof = key.proof("POST", f"{URL}?x=1#y", nonce="n", access_token="t")
    found = verify(proof, thumbprint=key.thumbprint)
    assert (found["htu"], found["nonce"]) == (URL, "n")


@pytest.mark.parametrize(
    "options",
    [
        {"method": "GET"},
        {"url": "https://h.example/other"},
        {"url": "http://h.example/mcp"},
        {"access_token": "other"},
        {"thumbprint": "other"},
    ],
)
def test_a_proof_is_refused_for_another_method_url_token_or_key(options: dict[str, Any]) -> None:
    with pytest.raises(BadProof):
        verify(signed(claims()), **options)


@pytest.mark.parametrize("offset", [WINDOW + 10, -WINDOW - 10])
def test_a_proof_outside_the_time_window_is_refused(offset: float) -> None:
    with pytest.raises(BadProof, match="too old"):
        verify(signed(claims()), now=time.time() + offset)


@pytest.mark.parametrize(
    "url", ["https://H.example:443/mcp", "https://h.example/mcp/", "wss://h.example/mcp"]
)
def test_a_proof_may_contain_an_equivalent_spelling_of_the_request_url(url: str) -> None:
    verify(signed(claims(htu=url)))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("jti", ["", None, 5, "\ud800", "\udc00x"]),
        ("iat", ["now", None, True, 10**400, float("nan"), -1]),
        ("htu", [5, None, "http://[", "https://h.example:x/mcp", "ws://h.example/mcp"]),
        ("ath", ["", None, token_hash("other")]),
    ],
)
def test_a_proof_with_an_invalid_claim_is_refused(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(BadProof):
            verify(signed(claims(**{name: value})))


def test_malformed_proofs_and_proofs_with_unsuitable_keys_are_refused() -> None:
    other = ECKey.generate_key("P-256")
    for proof in (
        signed(claims(), {"typ": "JWT"}),
        signed(claims(), {"jwk": KEY.as_dict(private=True)}),
        signed(claims(), {"crit": ["b64"], "b64": True}),
        signed(claims(), {"alg": "HS256"}, OctKey.generate_key(256)),
        signed(claims(), {"jwk": other.as_dict(private=False)}),
        signed(claims(), {"jwk": KEY.as_dict(private=False)}, other),
        signed(claims(), key=other),
        signed(json.dumps(claims())[:-1] + ',"a":' + DEEP + "}"),
        signed("[1]"),
        *("a.b.c", "", "é.é.é", "x" * 10_000),
    ):
        with pytest.raises(BadProof):
            verify(proof)


def test_a_proof_with_a_foreign_key_is_refused_before_the_key_is_imported() -> None:
    """The time of a refusal does not depend on the size of a key that the client chose."""
    jwk = {"kty": "RSA", "n": "_" * 4000, "e": "_" * 1000}
    head, body = ({"typ": "dpop+jwt", "alg": "RS256", "jwk": jwk}, claims())
    proof = f"{encoded(json.dumps(head).encode())}.{encoded(json.dumps(body).encode())}.AAAA"
    assert len(proof) < 8192
    with pytest.raises(BadProof, match="another key"):
        verify(proof)


def test_a_key_of_unacceptable_size_is_refused_although_a_token_is_bound_to_it() -> None:
    with pytest.warns(SecurityWarning):
        key = RSAKey.generate_key(1024)
    with pytest.raises(BadProof, match="signature"):
        verify(signed(claims(), {"alg": "RS256"}, key), thumbprint=key.thumbprint())
    key = RSAKey.generate_key(2048)
    verify(signed(claims(), {"alg": "RS256"}, key), thumbprint=key.thumbprint())


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from([10**400, -(10**400), "\ud800", "\udc00x", URL, "POST"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
changes = st.dictionaries(
    st.sampled_from(["jti", "htm", "htu", "iat", "ath", "nonce", "exp"]), values, max_size=4
)
MINT = TokenMint()


@pytest.mark.covers("AUT-06")
@bounded
@given(changes, st.booleans())
@example({"jti": "\ud800"}, False)
@example({"nonce": "1.\ud800"}, True)
@example({"iat": 10**400}, False)
def test_a_proof_with_arbitrary_claims_is_accepted_or_gets_a_dpop_challenge(
    changed: dict[str, Any], nonces: bool
) -> None:
    issuer = TokenIssuer(MINT.issuer, jwks=MINT.jwks)
    auth = ServerAuth(issuer=issuer, public_url=BASE, dpop="required", dpop_nonce=nonces)
    access = auth.open_access().endpoint("/mcp")
    token = MINT.token(URL, cnf={"jkt": MINE})
    proof = signed({**claims(ath=token_hash(token)), **changed})
    given = {b"authorization": f"DPoP {token}".encode(), b"dpop": proof.encode()}
    found = asyncio.run(access.verify(given, "POST", None))
    if isinstance(found, RequestRefusal):
        (header,) = [value for name, value in found.headers if name == b"www-authenticate"]
        (challenge,) = parse_challenges(header.decode())
        assert (found.status, challenge.scheme.lower()) == (401, "dpop")
        assert challenge.error in ("invalid_dpop_proof", "use_dpop_nonce")
    else:
        assert not nonces


def test_processes_with_the_same_keys_accept_the_nonces_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several workers share one address; a client repeats a request once for a nonce."""

    def accepts(one: ProofCheck, nonce: str | None) -> bool:
        proof = signed(claims(nonce=nonce, jti=f"{nonce} {id(one)}"))
        try:
            one.check(proof, method="POST", url=URL, token="t", key=MINE)
        except NonceDemanded:
            return False
        return True

    alone = ProofCheck(nonces=True)
    keys = base64.b64encode(bytes(32)).decode()
    monkeypatch.setenv(KEYS_VARIABLE, f"old:{keys}")
    first, second = ProofCheck(nonces=True), ProofCheck(nonces=True)
    assert accepts(first, first.nonce())
    assert accepts(second, first.nonce())
    assert not accepts(first, alone.nonce())
    assert not accepts(first, KeyRing.from_environment().seal(b"", ttl=60))  # a `requestState`
    now = time.time()
    late = first.nonce()
    monkeypatch.setattr(proof_check.time, "time", lambda: now + NONCE_AGE + 2)
    assert not accepts(first, late)
    monkeypatch.setenv(KEYS_VARIABLE, "broken")
    with pytest.raises(ConfigError, match=KEYS_VARIABLE):
        ProofCheck(nonces=True)


def test_a_repeated_proof_is_refused() -> None:
    check = ProofCheck(nonces=False)
    proof = signed(claims())
    check.check(proof, method="POST", url=URL, token="t", key=MINE)
    with pytest.raises(BadProof, match="used before"):
        check.check(proof, method="POST", url=URL, token="t", key=MINE)
