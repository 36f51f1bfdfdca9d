"""The header of tokens whose signature is valid."""

import asyncio
import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlead.protocol.identity.token_principal import TokenPrincipal
from tests.attacks.auth.test_hostile_documents import JSON
from tests.attacks.test_access_tokens import HERE, MINT, refused, verdict


def signed(**header: Any) -> str:
    """Return a token with a valid signature and any header, also one that no library would sign."""
    head = {"alg": "ES256", "kid": MINT.key.kid, **header}
    text = ".".join(encoded(json.dumps(part).encode()) for part in (head, MINT.claims(HERE)))
    made = MINT.key.private_key.sign(text.encode(), ec.ECDSA(SHA256()))
    pair = utils.decode_dss_signature(made)
    return f"{text}.{encoded(b''.join(number.to_bytes(32) for number in pair))}"


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize(
    "header",
    [{}, *({"typ": kind} for kind in (None, "JWT", "at+jwt", "AT+JWT", "application/at+jwt"))],
    ids=str,
)
async def test_every_type_header_of_an_access_token_is_accepted(header: dict[str, Any]) -> None:
    assert isinstance(await verdict(signed(**header)), TokenPrincipal)


@pytest.mark.parametrize(
    "header",
    [
        *({"typ": kind} for kind in ("dpop+jwt", "oauth-id-jag+jwt", "logout+jwt", "id_token", "")),
        *({"typ": kind} for kind in (5, True, ["at+jwt"], {"at+jwt": 1})),
        {"crit": ["more"], "more": 1},
        {"crit": []},
        {"kid": 7},
        {"kid": "another"},
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": ["ES256"]},
        {"alg": "es256"},
    ],
    ids=str,
)
async def test_tokens_with_an_unsuitable_type_algorithm_key_or_critical_header_are_refused(
    header: dict[str, Any],
) -> None:
    """The signature is valid, so the header is the only reason to refuse the token."""
    assert (await refused(signed(**header)))[0] == 401


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["typ", "alg", "kid", "crit", "jwk", "jku", "x5c", "b64", "cty", "zip"]),
        JSON,
        max_size=4,
    )
)
@example({"typ": ["at+jwt"]})
@example({"typ": {}})
def test_a_signed_token_with_any_header_is_accepted_or_refused(header: dict[str, Any]) -> None:
    found = asyncio.run(_judged(signed(**header)))
    assert isinstance(found, TokenPrincipal) or found.status == 401


async def _judged(token: str) -> Any:
    return await verdict(token)


async def test_keys_in_the_header_of_a_token_are_ignored() -> None:
    """The token is verified with the keys of its issuer only."""
    other = ec.generate_private_key(ec.SECP256R1()).public_key().public_numbers()
    jwk = {"kty": "EC", "crv": "P-256", "x": encoded(other.x.to_bytes(32)), "y": "AA"}
    token = signed(jwk=jwk, jku="https://evil.example/keys", x5u="https://evil.example/cert")
    assert isinstance(await verdict(token), TokenPrincipal)
