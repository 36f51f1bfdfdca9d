"""DPoP proofs of a client; `tests/auth/server/test_proof_check.py` tests their verification."""

import base64
import json

import pytest

from fairlead.auth.dpop import DpopKey, choose_proof_algorithm, proof_target
from fairlead.auth.server.proof_check import verify_proof

URL = "https://h.example/mcp"


def test_each_proof_has_its_own_id() -> None:
    key = DpopKey()

    def proof_id() -> str:
        proof = key.proof("POST", URL, access_token="t")
        claims = verify_proof(
            proof, method="POST", url=URL, access_token="t", thumbprint=key.thumbprint
        )
        return str(claims["jti"])

    assert len({proof_id() for _ in range(5)}) == 5


@pytest.mark.parametrize("algorithm", ["ES256", "ES384"])
def test_a_stored_key_creates_proofs_for_the_same_public_key(algorithm: str) -> None:
    key = DpopKey(algorithm=algorithm)
    again = DpopKey(key.private)
    assert again.thumbprint == key.thumbprint
    proof = again.proof("POST", URL, access_token="t")
    verify_proof(proof, method="POST", url=URL, access_token="t", thumbprint=key.thumbprint)
    header = proof.partition(".")[0]
    assert json.loads(base64.urlsafe_b64decode(header + "=="))["alg"] == algorithm


def test_the_algorithm_of_proofs_is_one_that_all_servers_support() -> None:
    assert choose_proof_algorithm(None, None) == "ES256"
    assert choose_proof_algorithm(["RS256", "ES256"], None) == "ES256"
    assert choose_proof_algorithm(["ES512", "ES384", "ES256"], ["PS256", "ES384"]) == "ES384"
    assert choose_proof_algorithm(["ES256"], ["ES384"]) is None
    assert choose_proof_algorithm([]) == "ES256"


def test_the_url_in_a_proof_has_no_query_and_no_default_port() -> None:
    assert proof_target("HTTP://[::1]:80/Mcp?a=1#b") == "http://[::1]/Mcp"
    assert proof_target("wss://h.example:443/ws?a=1") == "https://h.example/ws"
    assert proof_target("ws://h.example:8080/ws") == "http://h.example:8080/ws"
