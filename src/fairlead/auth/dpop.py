"""DPoP proofs (RFC 9449): keys and proofs of a client, and their verification by a server."""

import base64
import hashlib
import secrets
import time
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ..errors import FairleadError
from ..wire.json import read_json

__all__ = ["DPOP_ALGORITHMS", "BadProof", "DpopKey", "proof_target", "token_hash", "verify_proof"]

# Asymmetric algorithms whose keys are cheap to verify. The first one is used for new keys.
DPOP_ALGORITHMS = ("ES256", "ES384", "EdDSA", "RS256", "PS256")
WINDOW = 300.0  # seconds that the time of a proof may differ from the clock of this server
MAX_PROOF = 8 << 10  # characters
_PRIVATE = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))


class BadProof(FairleadError):
    """A DPoP proof that must be rejected; the text is the `error_description`."""


class DpopKey:
    """The key pair that the tokens of one login are bound to."""

    def __init__(self, private: dict[str, Any] | None = None) -> None:
        """Create a new key, or use a stored one."""
        from joserfc.jwk import ECKey

        self._key = ECKey.generate_key("P-256") if private is None else ECKey.import_key(private)
        self._public = self._key.as_dict(private=False)

    @property
    def private(self) -> dict[str, Any]:
        """The key pair as a JWK, to be stored with the tokens."""
        return dict(self._key.as_dict(private=True))

    @property
    def thumbprint(self) -> str:
        return self._key.thumbprint()

    def proof(
        self, method: str, url: str, *, nonce: str | None = None, access_token: str | None = None
    ) -> str:
        """Return a new proof for one request, with an id of its own."""
        from joserfc import jwt

        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": proof_target(url),
            "iat": int(time.time()),
        }
        if nonce is not None:
            claims["nonce"] = nonce
        if access_token is not None:
            claims["ath"] = token_hash(access_token)
        header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": self._public}
        return jwt.encode(header, claims, self._key, algorithms=["ES256"])


def token_hash(token: str) -> str:
    """Return the `ath` of an access token: its SHA-256 in base64url."""
    digest = hashlib.sha256(token.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@lru_cache(maxsize=256)
def proof_target(url: str) -> str:
    """Return a URL as proofs contain it: without query and fragment, in a normal form."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    scheme = parts.scheme.lower()
    usual = {"http": 80, "https": 443}.get(scheme)
    place = host if parts.port in (None, usual) else f"{host}:{parts.port}"
    return urlunsplit((scheme, place, parts.path, "", ""))


def verify_proof(
    proof: str,
    *,
    method: str,
    url: str,
    access_token: str,
    thumbprint: str | None,
    now: float | None = None,
) -> dict[str, Any]:
    """Verify a proof for a request and return its claims; the caller checks `nonce` and `jti`.

    `url` is the public URL of the endpoint, and `thumbprint` the `cnf.jkt` of the token.

    Raises:
        BadProof: The proof is invalid for this request, token or key.
    """
    if len(proof) > MAX_PROOF:
        raise BadProof("the proof is too long")
    header = _protected_header(proof)
    if header.get("typ") != "dpop+jwt" or header.get("alg") not in DPOP_ALGORITHMS:
        raise BadProof("the proof must have the type dpop+jwt and an asymmetric algorithm")
    key = header.get("jwk")
    if not isinstance(key, dict) or _PRIVATE & key.keys() or "crit" in header:
        raise BadProof("the proof must contain a public key and no critical extensions")
    claims, found = _verified(proof, key, str(header["alg"]))
    if thumbprint is not None and found != thumbprint:
        raise BadProof("the token is bound to another key")
    if claims.get("htm") != method or not _same_target(claims.get("htu"), url):
        raise BadProof("the proof was created for another request")
    issued = claims.get("iat")
    clock = time.time() if now is None else now
    if not isinstance(issued, int | float) or not abs(clock - issued) <= WINDOW:
        raise BadProof("the proof is too old, or its clock differs too much")
    if claims.get("ath") != token_hash(access_token):
        raise BadProof("the proof was created for another token")
    if not isinstance(claims.get("jti"), str) or not claims["jti"]:
        raise BadProof("the proof has no id (jti)")
    return claims


def _protected_header(proof: str) -> dict[str, Any]:
    head = proof.partition(".")[0]
    try:
        raw = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))
    except ValueError as exc:
        raise BadProof("the proof is not a JWT") from exc
    found = read_json(raw, dict[str, Any], None)
    if found is None:
        raise BadProof("the proof is not a JWT")
    return found


def _verified(proof: str, key: dict[str, Any], algorithm: str) -> tuple[dict[str, Any], str]:
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        public = import_key(key)
        claims = jwt.decode(proof, public, algorithms=[algorithm]).claims
        return claims, public.thumbprint()
    except (JoseError, ValueError, TypeError, KeyError) as exc:
        raise BadProof("the signature of the proof is invalid") from exc


def _same_target(given: object, url: str) -> bool:
    if not isinstance(given, str) or len(given) > 4096:
        return False
    try:
        return proof_target(given).rstrip("/") == proof_target(url).rstrip("/")
    except ValueError:
        return False
