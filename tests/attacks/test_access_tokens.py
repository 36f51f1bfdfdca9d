"""Forged, foreign and malformed access tokens, keys and proofs."""

import asyncio
import base64
import hmac
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.jws import JWSRegistry

from fairlead.auth.dpop import DpopKey
from fairlead.auth.server.access_control import EndpointAccess
from fairlead.auth.server.key_set import read_key_set
from fairlead.auth.server.server_auth import ServerAuth, TokenIssuer
from fairlead.auth.server.token_claims import BadToken, parse_token
from fairlead.protocol.caller import Principal
from fairlead.protocol.identity.token_principal import TokenPrincipal
from fairlead.transport.http.server.token_access import RequestRefusal
from tests.support.token_issuer import TokenMint

BASE = "https://mcp.example"
HERE = f"{BASE}/mcp"
MINT = TokenMint()
OTHER = TokenMint("https://other.example")


def access(**options: Any) -> EndpointAccess:
    issuers = [TokenIssuer(mint.issuer, jwks=mint.jwks) for mint in (MINT, OTHER)]
    auth = ServerAuth(**{"issuer": issuers, "public_url": BASE, **options})
    return auth.open_access().endpoint("/mcp")


async def verdict(
    token: str, scheme: str = "Bearer", one: EndpointAccess | None = None, **headers: str
) -> Principal | RequestRefusal:
    given = {b"authorization": f"{scheme} {token}".encode()}
    given |= {name.encode(): value.encode() for name, value in headers.items()}
    return await (one or access()).verify(given, "POST", None)


async def refused(token: str, **options: Any) -> tuple[int, str]:
    found = await verdict(token, **options)
    assert isinstance(found, RequestRefusal), found
    return found.status, found.message


def unsigned(header: dict[str, Any], signature: str = "") -> str:
    parts = [header, MINT.claims(HERE)]
    texts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts]
    return ".".join([*texts, signature])


def dated(claims: dict[str, Any]) -> dict[str, Any]:
    """Return the claims with times relative to now as timestamps."""
    now = int(time.time())
    return {
        name: now + int(value.total_seconds()) if isinstance(value, timedelta) else value
        for name, value in claims.items()
    }


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"aud": [HERE, "https://else.example"]},
        {"aud": f"{HERE}/"},
        {"aud": "HTTPS://MCP.example:443/mcp"},
        {"exp": timedelta(seconds=-10)},
        {"exp": 4102444800.5},
        {"iat": timedelta(seconds=20), "nbf": timedelta(seconds=20)},
        {"client_id": None, "azp": "app"},
    ],
    ids=str,
)
async def test_valid_tokens_are_accepted(claims: dict[str, Any]) -> None:
    found = await verdict(MINT.token(claims.pop("aud", HERE), **dated(claims)))
    assert found == TokenPrincipal(issuer=MINT.issuer, subject="alice", client="app")


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": BASE},
        {"aud": f"{BASE}/mcp/other"},
        {"aud": f"{BASE}//mcp"},
        {"aud": "https://mcp.example.evil/mcp"},
        {"aud": "https://evil@mcp.example/mcp"},
        {"aud": f" {HERE}"},
        {"aud": f"{HERE}\n"},
        {"aud": "https://mcp.exa\tmple/mcp"},
        {"aud": "https://mcp.example/%6dcp"},
        {"aud": "https://mcp.example/a/../mcp"},
        {"aud": "http://mcp.example:443/mcp"},
        {"aud": f"{HERE}?tenant=1"},
        {"aud": [f"{HERE}/other", [HERE], {"aud": HERE}, BASE]},
        {"aud": []},
        {"aud": None},
        {"aud": {"x": HERE}},
        {"exp": None},
        {"exp": timedelta(seconds=-40)},
        {"exp": "never"},
        {"exp": True},
        {"exp": 1e300},
        {"exp": 10**400},
        {"exp": -1},
        {"exp": ["never"]},
        {"exp": "4102444800"},
        {"nbf": timedelta(seconds=60)},
        {"nbf": "0"},
        {"nbf": 10**400},
        {"iat": timedelta(seconds=60)},
        {"iss": "https://stranger.example"},
        {"iss": f"{MINT.issuer}/"},
        {"iss": None},
        {"sub": None, "client_id": None},
        {"sub": {"a": 1}},
        {"at_hash": "x"},
        {"typ": "ID"},
        {"token_use": "id"},
        {"events": {}},
        {"cnf": {"x5t#S256": "x"}},
        {"cnf": "x"},
        {"cnf": {"jkt": "x"}},
    ],
    ids=str,
)
async def test_tokens_with_invalid_or_unsuitable_claims_are_refused(
    claims: dict[str, Any],
) -> None:
    """Covers audiences, times, issuers, subjects, ID tokens, and bound tokens without a proof."""
    assert (await refused(MINT.token(claims.pop("aud", HERE), **dated(claims))))[0] == 401


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("mint", [MINT, OTHER], ids=lambda mint: mint.issuer)
@pytest.mark.parametrize(
    "audience", [BASE, f"{BASE}//mcp", f"{HERE}/other", "https://else.example"]
)
async def test_a_token_for_another_audience_is_refused_from_every_issuer(
    mint: TokenMint, audience: str
) -> None:
    status, text = await refused(mint.token(audience))
    assert (status, "issued for another audience" in text) == (401, True)
    assert isinstance(await verdict(mint.token(HERE)), TokenPrincipal)


@pytest.mark.parametrize(
    ("minutes", "why"), [(10, "not valid yet (iat)"), (-10, "the token has expired")]
)
async def test_the_refusal_names_the_reason_if_the_clock_of_the_issuer_is_off(
    minutes: int, why: str
) -> None:
    """The clock of the issuer differs; its tokens are valid for five minutes."""
    begin = int(time.time()) + minutes * 60
    status, text = await refused(MINT.token(HERE, iat=begin, exp=begin + 300))
    assert (status, why in text) == (401, True)


@pytest.mark.parametrize(
    "header",
    [
        {"typ": "dpop+jwt"},
        {"typ": "oauth-id-jag+jwt"},
        {"typ": 5},
        {"crit": ["exp"], "exp": 1},
        {"kid": 7},
        {"kid": "unknown"},
        {"kid": "../../../../dev/null"},
        {"kid": "x' UNION SELECT 'key"},
        {"kid": "first\x00"},
        {"kid": "a" * 8000},
        {"alg": "RS256"},
        {"alg": ["ES256"]},
        {"alg": "ES384"},
        {"alg": "es256"},
    ],
    ids=str,
)
async def test_tokens_with_invalid_or_unknown_header_members_are_refused(
    header: dict[str, Any],
) -> None:
    token = unsigned({"alg": "ES256", "kid": "first", **header}, "AAAA")
    assert (await refused(token))[0] == 401


async def test_forged_signatures_are_refused() -> None:
    """Covers `none`, HS256 with a public key, a key in the header, and another issuer's key."""
    thief = ECKey.generate_key("P-256", {"kid": "first"})
    public = json.dumps(MINT.key.as_dict(private=False)).encode()
    symmetric = OctKey.import_key(public)
    forged = [
        unsigned({"alg": "none"}),
        unsigned({"alg": "none"}, "AAAA"),
        unsigned({"alg": "NONE"}, "AAAA"),
        MINT.token(HERE, header={"alg": "HS256"}, key=symmetric),
        MINT.token(HERE, key=thief),
        MINT.token(HERE, key=thief, header={"jwk": thief.as_dict(private=False)}),
        MINT.token(HERE, key=thief, header={"jku": "https://thief.example/jwks"}),
        MINT.token(HERE, key=thief, header={"x5u": "https://thief.example/cert.pem"}),
        MINT.token(HERE, key=thief, header={"x5c": ["AAAA"], "x5t": "AAAA"}),
        MINT.token(HERE, key=thief, header={"kid": None}),
        MINT.token(HERE, key=OTHER.key),
        OTHER.token(HERE, iss=MINT.issuer),
        MINT.token(HERE)[:-4] + "AAAA",
    ]
    for token in forged:
        assert (await refused(token))[0] == 401, token
    # Both issuers use the same key id; each token is checked with its issuer's key.
    assert str(await verdict(OTHER.token(HERE))) == "oauth:https://other.example alice app"


async def test_an_hmac_signature_with_the_text_of_a_public_rsa_key_is_refused() -> None:
    """Signatures with the text of the public key in each usual form (algorithm confusion)."""
    pair = RSAKey.generate_key(2048, {"kid": "first"})
    public = pair.as_dict(private=False)
    issuer = TokenIssuer(MINT.issuer, jwks={"keys": [public]})
    one = access(issuer=issuer)
    assert isinstance(
        await verdict(MINT.token(HERE, key=pair, header={"alg": "RS256"}), one=one), TokenPrincipal
    )
    texts = [pair.as_pem(private=False), pair.as_der(private=False), json.dumps(public).encode()]
    texts += [texts[0].strip(), str(public["n"]).encode()]
    for text in texts:
        signed = unsigned({"alg": "HS256", "kid": "first"}).rstrip(".")
        seal = hmac.digest(text, signed.encode(), "sha256")
        sealed = base64.urlsafe_b64encode(seal).rstrip(b"=").decode()
        assert (await refused(f"{signed}.{sealed}", one=one))[0] == 401


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize(
    ("members", "accepted"),
    [
        ({}, ["RS256", "PS256"]),
        ({"alg": "PS256"}, ["PS256"]),
        ({"alg": "RSA-OAEP"}, []),
        ({"use": "enc"}, []),
        ({"key_ops": ["encrypt"]}, []),
    ],
    ids=str,
)
async def test_a_key_verifies_only_the_algorithms_that_its_members_allow(
    members: dict[str, Any], accepted: list[str]
) -> None:
    pair = RSAKey.generate_key(2048, {"kid": "first"})
    jwks = {"keys": [{**pair.as_dict(private=False), **members}, *OTHER.published]}
    one = access(issuer=TokenIssuer(MINT.issuer, jwks=jwks))
    found = []
    for algorithm in ("RS256", "PS256"):
        token = MINT.token(HERE, key=pair, header={"alg": algorithm})
        if isinstance(await verdict(token, one=one), TokenPrincipal):
            found.append(algorithm)
    assert found == accepted


@pytest.mark.parametrize(
    ("first", "last", "accepted"),
    [("else", HERE, True), (HERE, "https://else.example/mcp", False)],
    ids=["the last is ours", "the first is ours"],
)
async def test_checks_and_principal_use_the_last_of_repeated_members(
    first: str, last: str, accepted: bool
) -> None:
    """RFC 7519, section 4: repeated members are refused, or only the last one is used."""
    claims = json.dumps(MINT.claims(last, sub="bob"))
    text = claims.replace("{", f'{{"aud": "{first}", "sub": "admin", "exp": 1, ', 1)
    head = base64.urlsafe_b64encode(b'{"alg": "none", "alg": "ES256", "kid": "first"}')
    body = base64.urlsafe_b64encode(text.encode())
    signed = b".".join(part.rstrip(b"=") for part in (head, body))
    seal = JWSRegistry.algorithms["ES256"].sign(signed, MINT.key)
    token = b".".join((signed, base64.urlsafe_b64encode(seal).rstrip(b"="))).decode()
    found = await verdict(token)
    if not accepted:
        assert isinstance(found, RequestRefusal)
        return
    assert isinstance(found, TokenPrincipal)
    assert (found.subject, found.claims["sub"], found.claims["aud"]) == ("bob", "bob", HERE)


@pytest.mark.parametrize(
    "subject",
    [
        "alice app",
        "alice%20app",
        "alice\x00",
        "alice ",
        "Alice",
        "al\u0456ce",
        "ci",
        "token",
        "oauth:x",
    ],
)
async def test_the_subject_of_a_token_cannot_imitate_another_principal(subject: str) -> None:
    """The subjects contain separators, escapes and names of other principals."""
    one = access(tokens={"secret": "ci"})
    plain = [MINT.token(HERE), MINT.token(HERE, client_id=None), OTHER.token(HERE), "secret"]
    made = [MINT.token(HERE, sub=subject, client_id=client) for client in (None, "app")]
    found = [await verdict(token, one=one) for token in (*plain, *made)]
    assert len({str(who) for who in found}) == len(set(found)) == len(found)


async def test_subjects_of_two_issuers_and_static_clients_are_different_principals() -> None:
    """Two issuers have the same subject, and a static client has that name."""
    one = access(tokens={"secret": "alice"})
    found = [
        await verdict(token, one=one) for token in (MINT.token(HERE), OTHER.token(HERE), "secret")
    ]
    assert len({str(who) for who in found}) == 3
    assert found[0] != found[1] != found[2]


@pytest.mark.parametrize("claim", ["scope", "scp"])
@pytest.mark.parametrize("value", ["a b", ["a", "b"]])
async def test_scopes_are_read_from_the_scope_and_scp_claims(claim: str, value: Any) -> None:
    """Some issuers use `scp` instead of `scope`; the value is a string or a list."""
    found = await verdict(MINT.token(HERE, **{claim: value}))
    assert isinstance(found, TokenPrincipal)
    assert found.scopes == {"a", "b"}


async def test_broader_scopes_imply_narrower_ones() -> None:
    one = access(scopes="read", implied_scopes={"admin": ["write"], "write": ["read"]})
    who = await verdict(MINT.token(HERE, scope="admin"), one=one)
    assert isinstance(who, TokenPrincipal)
    assert one.refuse_scopes(who, ["write"]) is None
    assert one.refuse_scopes(who, ["delete"]) is not None


async def test_a_refusal_does_not_quote_the_token() -> None:
    for token in ("secretsecret", MINT.token(BASE), MINT.token(HERE, iss="secretsecret")):
        found = await verdict(token)
        assert isinstance(found, RequestRefusal)
        text = f"{found.message} {found.headers}"
        assert token[:20] not in text
        assert "secretsecret" not in text


def test_invalid_keys_in_a_key_set_are_skipped() -> None:
    """The set has a valid key and keys that are unknown, malformed or too large."""
    good = MINT.key.as_dict(private=False)
    long = base64.urlsafe_b64encode(b"\xff" * 2048).rstrip(b"=").decode()
    brief = base64.urlsafe_b64encode(b"\xff" * 128).rstrip(b"=").decode()
    short = {"kty": "RSA", "n": brief, "e": "AQAB", "kid": "short"}
    strange: list[Any] = [
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "x"},
        {"kty": "RSA", "n": long, "e": "AQAB", "kid": "huge"},
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
        {"kty": "oct", "k": "AAAA"},
        {**good, "use": "enc"},
        {**good, "kid": 5},
        short,
        7,
        None,
    ]
    found = read_key_set({"keys": [*strange, good]})
    assert found is not None
    assert [key.id for key in found.keys] == ["first"]
    assert read_key_set({"keys": "x"}) is None


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


@given(
    st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.hex() + "." + b.hex() + ".a")
)
def test_parsing_any_text_as_a_token_raises_only_bad_token(text: str) -> None:
    try:
        parse_token(text)
    except BadToken:
        pass


@given(st.dictionaries(st.sampled_from(["kty", "n", "e", "crv", "x", "y", "kid", "use"]), _json))
def test_reading_a_key_set_with_an_arbitrary_key_does_not_fail(jwk: dict[str, Any]) -> None:
    assert read_key_set({"keys": [jwk]}) is not None


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "cnf", "scope"]), _json))
def test_verifying_a_token_with_any_claims_raises_no_exception(claims: dict[str, Any]) -> None:
    claims = {name: value for name, value in claims.items() if value == value}
    try:
        token = MINT.token(claims.pop("aud", HERE), **dated(claims))
    except (ValueError, TypeError):
        return  # not JSON
    asyncio.run(_judged(token))


async def _judged(token: str) -> None:
    await verdict(token)


@settings(max_examples=100)
@given(
    st.binary(max_size=200)
    | st.binary(max_size=200).map(lambda text: b"Bearer " + text)
    | st.binary(max_size=200).map(lambda text: b"DPoP " + text),
    st.none() | st.binary(max_size=200),
)
def test_any_invalid_authorization_header_is_refused_with_status_400_or_401(
    authorization: bytes, proof: bytes | None
) -> None:
    given = {b"authorization": authorization, **({} if proof is None else {b"dpop": proof})}
    one = access(dpop="allowed")
    assert not isinstance(one.verify_now(given, "POST", None), Principal)
    found = asyncio.run(one.verify(given, "POST", None))
    assert isinstance(found, RequestRefusal)
    assert found.status in (400, 401)
    for name, value in found.headers:
        assert b"\r" not in value, name
        assert b"\n" not in value, name


def test_a_long_token_is_refused_before_it_is_decoded() -> None:
    """The limit on the token size also limits the time to check it."""
    began = time.process_time()
    for text in ("a" * 8_000_000, ".".join(["a" * 2_000_000] * 3)):
        with pytest.raises(BadToken):
            parse_token(text)
    assert time.process_time() - began < 0.5
    assert parse_token(MINT.token(HERE, more="x" * 5000)).claims["more"] == "x" * 5000
    with pytest.raises(BadToken):
        parse_token(MINT.token(HERE, more="x" * 20_000))


# Proofs of possession


async def prove(
    key: DpopKey, token: str, one: EndpointAccess, method: str = "POST", url: str = HERE, **o: Any
) -> Principal | RequestRefusal:
    proof = key.proof(method, url, access_token=o.pop("ath", token), **o)
    return await verdict(token, "DPoP", one, dpop=proof)


async def test_a_bound_token_requires_a_proof_signed_with_its_key() -> None:
    """Covers stolen tokens, replayed proofs, and proofs for other requests or with other keys."""
    one, key, thief = access(dpop="allowed"), DpopKey(), DpopKey()
    token = MINT.bound_token(HERE, key)
    assert isinstance(await prove(key, token, one), TokenPrincipal)
    # Behind a proxy that terminates TLS, the proof contains the public URL.
    assert isinstance(await prove(key, token, one, url=f"{HERE}/?q=1"), TokenPrincipal)
    for attack in (
        prove(thief, token, one),
        prove(key, token, one, method="GET"),
        prove(key, token, one, url=f"{BASE}/other"),
        prove(key, token, one, url="http://127.0.0.1:8080/mcp"),
        prove(key, token, one, ath="other"),
        verdict(token, "DPoP", one),
        verdict(token, "DPoP", one, dpop="x.y.z"),
    ):
        found = await attack
        assert isinstance(found, RequestRefusal)
        assert found.status == 401
        assert b'DPoP error="invalid_dpop_proof"' in found.headers[0][1]
    proof = key.proof("POST", HERE, access_token=token)
    assert isinstance(await verdict(token, "DPoP", one, dpop=proof), TokenPrincipal)
    again = await verdict(token, "DPoP", one, dpop=proof)
    assert isinstance(again, RequestRefusal)
    assert "used before" in again.message
    assert (await refused(token, one=one))[0] == 401
    assert one.verify_now({b"authorization": f"Bearer {token}".encode()}, "POST", None) is None
    assert (await refused(MINT.token(HERE), scheme="DPoP", one=one))[0] == 401
    assert (await refused(MINT.token(HERE), one=access(dpop="required")))[0] == 401


@pytest.mark.attack(
    "a token that is not bound to a key, at a server that requires bound tokens",
    '`dpop="required"` applies to every token, on the fast path too',
    "401, however often the token is sent",
)
@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("token", [MINT.token(HERE), "static"], ids=["signed", "static"])
@pytest.mark.parametrize("scheme", ["Bearer", "DPoP"])
async def test_tokens_that_are_not_bound_to_a_key_are_refused_if_dpop_is_required(
    token: str, scheme: str
) -> None:
    one = access(dpop="required", tokens={"static": "ci"})
    given = {b"authorization": f"{scheme} {token}".encode()}
    for _ in range(2):  # the second request finds the verdict of the first one
        now = one.verify_now(given, "POST", None)
        assert now is None or isinstance(now, RequestRefusal)
        assert (await refused(token, scheme=scheme, one=one))[0] == 401
        proof = DpopKey().proof("POST", HERE, access_token=token)
        assert (await refused(token, scheme=scheme, one=one, dpop=proof))[0] == 401


async def test_a_server_that_accepts_both_schemes_sends_two_challenges() -> None:
    found = await access(dpop="allowed").verify({}, "POST", None)
    assert isinstance(found, RequestRefusal)
    values = [value for name, value in found.headers if name == b"www-authenticate"]
    assert [value.partition(b" ")[0] for value in values] == [b"DPoP", b"Bearer"]


async def test_a_server_that_requires_proofs_offers_no_other_scheme() -> None:
    one = access(dpop="required")
    for sent in ({}, {b"authorization": b"Bearer x.y.z"}, {b"authorization": b"DPoP x y"}):
        found = await one.verify(sent, "POST", None)
        assert isinstance(found, RequestRefusal)
        values = [value for name, value in found.headers if name == b"www-authenticate"]
        assert [value.partition(b" ")[0] for value in values] == [b"DPoP"]


async def test_a_proof_without_a_nonce_is_refused_and_one_with_the_nonce_is_accepted() -> None:
    one, key = access(dpop="required", dpop_nonce=True), DpopKey()
    token = MINT.bound_token(HERE, key)
    demanded = await prove(key, token, one)
    assert isinstance(demanded, RequestRefusal)
    assert demanded.status == 401
    assert b'error="use_dpop_nonce"' in demanded.headers[0][1]
    nonce = dict(demanded.headers)[b"dpop-nonce"].decode()
    assert isinstance(await prove(key, token, one, nonce=nonce), TokenPrincipal)
    forged = await prove(key, token, one, nonce=f"{nonce.partition('.')[0]}.AAAA")
    assert isinstance(forged, RequestRefusal)
