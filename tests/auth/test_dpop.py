"""DPoP proofs of a client, and their verification."""

import time
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from fairlead.auth.dpop import WINDOW, BadProof, DpopKey, proof_target, token_hash, verify_proof

URL = "https://h.example/mcp"


def verify(proof: str, **options: Any) -> dict[str, Any]:
    usual = {"method": "POST", "url": URL, "access_token": "t", "thumbprint": None}
    return verify_proof(proof, **{**usual, **options})


def test_a_proof_is_accepted_for_its_request_and_token() -> None:
    key = DpopKey()
    proof = key.proof("POST", f"{URL}?x=1#y", nonce="n", access_token="t")
    claims = verify(proof, thumbprint=key.thumbprint)
    assert (claims["htu"], claims["nonce"]) == (URL, "n")


def test_each_proof_has_its_own_id() -> None:
    key = DpopKey()
    ids = {verify(key.proof("POST", URL, access_token="t"))["jti"] for _ in range(5)}
    assert len(ids) == 5


def test_a_stored_key_signs_as_before() -> None:
    key = DpopKey()
    again = DpopKey(key.private)
    assert again.thumbprint == key.thumbprint
    verify(again.proof("POST", URL, access_token="t"), thumbprint=key.thumbprint)


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
def test_a_proof_is_refused_for_anything_else(options: dict[str, Any]) -> None:
    with pytest.raises(BadProof):
        verify(DpopKey().proof("POST", URL, access_token="t"), **options)


@pytest.mark.parametrize("offset", [WINDOW + 10, -WINDOW - 10])
def test_a_proof_is_refused_outside_its_time(offset: float) -> None:
    with pytest.raises(BadProof, match="too old"):
        verify(DpopKey().proof("POST", URL, access_token="t"), now=time.time() + offset)


@pytest.mark.parametrize("url", ["https://H.example:443/mcp", "https://h.example/mcp/"])
def test_spellings_of_the_same_url_are_accepted(url: str) -> None:
    verify(DpopKey().proof("POST", url, access_token="t"))


def signed(header: dict[str, Any], key: Any = None, **changes: Any) -> str:
    made = key or ECKey.generate_key("P-256")
    claims = {
        "jti": "x",
        "htm": "POST",
        "htu": URL,
        "iat": int(time.time()),
        "ath": token_hash("t"),
        **changes,
    }
    usual = {"typ": "dpop+jwt", "alg": "ES256"}
    if "jwk" not in header:
        usual["jwk"] = made.as_dict(private=False)
    full = {**usual, **header}
    return jwt.encode(full, claims, made, algorithms=[full["alg"]])


def test_the_helper_of_these_tests_makes_valid_proofs() -> None:
    assert verify(signed({}))["jti"] == "x"


def test_symmetric_keys_private_keys_and_other_types_are_refused() -> None:
    private = ECKey.generate_key("P-256")
    shared = OctKey.generate_key(256)
    foreign = ECKey.generate_key("P-256").as_dict(private=False)
    bad = [
        signed({"typ": "JWT"}),
        signed({"alg": "HS256", "jwk": shared.as_dict(private=False)}, shared),
        signed({"jwk": private.as_dict(private=True)}, private),
        signed({"jwk": foreign}),
        signed({}, jti=""),
        signed({}, iat="now"),
        signed({}, htu=5),
        "a.b.c",
        "",
        "x" * 10_000,
    ]
    for proof in bad:
        with pytest.raises(BadProof):
            verify(proof)


def test_the_target_of_a_proof_has_no_query_and_no_default_port() -> None:
    assert proof_target("HTTP://[::1]:80/Mcp?a=1#b") == "http://[::1]/Mcp"
