"""Verification of DPoP proofs by a server (RFC 9449, section 4.3)."""

import time
from typing import Any

from ...errors import ConfigError, FairleadError
from ...protocol.sealed_state import BadSeal, KeyRing
from ..dpop import DPOP_ALGORITHMS, proof_target, token_hash
from .key_set import key_thumbprint, read_key
from .proof_memory import ProofMemory
from .token_claims import ParsedToken, is_time, read_jwt

__all__ = ["BadProof", "NonceDemanded", "ProofCheck", "verify_proof"]

WINDOW = 300.0  # seconds that the time of a proof may differ from the clock of this server
MAX_PROOF = 8 << 10  # maximum number of characters of a proof
NONCE_AGE = 120.0  # seconds for which a nonce may be used
_PRIVATE = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))


class BadProof(FairleadError):
    """A DPoP proof that must be rejected; the text is the `error_description`."""


class NonceDemanded(BadProof):
    """A proof without a current nonce; the client repeats the request with a new nonce."""


class ProofCheck:
    """Verifier of DPoP proofs, which rejects replays, for all endpoints of an application."""

    def __init__(self, *, nonces: bool) -> None:
        """If `nonces` is true, each proof must contain a nonce from this server.

        Processes with the same `FAIRLEAD_STATE_KEYS` accept the nonces of each other.

        Raises:
            ConfigError: `FAIRLEAD_STATE_KEYS` is malformed.
        """
        self._ring = _nonce_keys() if nonces else None
        self._memory = ProofMemory(WINDOW)

    def check(self, proof: str, *, method: str, url: str, token: str, key: str) -> None:
        """Check the proof of a request; it is accepted once.

        Raises:
            NonceDemanded: A nonce is required.
            BadProof: The proof is invalid for this request, token or key, or was used before.
            AuthorizationError: Too many proofs of the key are remembered.
        """
        claims = verify_proof(proof, method=method, url=url, access_token=token, thumbprint=key)
        if self._ring is not None and not _is_current(self._ring, claims.get("nonce")):
            raise NonceDemanded("a current nonce of this server is required")
        if not self._memory.add(key, claims["jti"], claims["iat"]):
            raise BadProof("the proof was used before")

    def nonce(self) -> str | None:
        """Return the nonce for the next proof: a sealed timestamp, or None without nonces."""
        return None if self._ring is None else self._ring.seal(b"", ttl=NONCE_AGE)


def _nonce_keys() -> KeyRing:
    try:
        return KeyRing.from_environment().derived("DPoP nonces")
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc


def _is_current(ring: KeyRing, nonce: object) -> bool:
    try:
        return isinstance(nonce, str) and ring.open(nonce) == b""
    except BadSeal:
        return False


def verify_proof(
    proof: str,
    *,
    method: str,
    url: str,
    access_token: str,
    thumbprint: str,
    now: float | None = None,
) -> dict[str, Any]:
    """Verify a proof for a request and return its claims; the caller checks `nonce` and replays.

    `url` is the public URL of the endpoint, and `thumbprint` the `cnf.jkt` of the token.

    Raises:
        BadProof: The proof is invalid for this request, token or key.
    """
    # Strict decoding: claims have no lone surrogates, and deep JSON is an error.
    parsed = read_jwt(proof, MAX_PROOF)
    if parsed is None:
        raise BadProof("the proof is not a JWT, or is too long")
    header, claims = parsed.header, parsed.claims
    if header.get("typ") != "dpop+jwt" or header.get("alg") not in DPOP_ALGORITHMS:
        raise BadProof("the proof must have the type dpop+jwt and an asymmetric algorithm")
    jwk = header.get("jwk")
    if not isinstance(jwk, dict) or _PRIVATE & jwk.keys() or "crit" in header:
        raise BadProof("the proof must contain a public key and no critical extensions")
    # The signature is verified last: keys of other clients never reach the cryptography.
    if key_thumbprint(jwk) != thumbprint:
        raise BadProof("the token is bound to another key")
    if claims.get("htm") != method or not _same_target(claims.get("htu"), url):
        raise BadProof("the proof was created for another request")
    issued, clock = claims.get("iat"), time.time() if now is None else now
    if not is_time(issued) or not abs(clock - issued) <= WINDOW:
        raise BadProof("the proof is too old, or the clocks of client and server differ")
    if claims.get("ath") != token_hash(access_token):
        raise BadProof("the proof was created for another token")
    if not isinstance(claims.get("jti"), str) or not claims["jti"]:
        raise BadProof("the proof has no id (jti)")
    if not _is_signed(parsed, jwk):
        raise BadProof("the signature of the proof is invalid")
    return claims


def _is_signed(proof: ParsedToken, jwk: dict[str, Any]) -> bool:
    key, algorithm = read_key(jwk), str(proof.header["alg"])
    if key is None or not key.fits(algorithm):
        return False
    return key.verify(algorithm, proof.signed, proof.signature)


def _same_target(given: object, url: str) -> bool:
    if not isinstance(given, str) or len(given) > 4096:
        return False
    try:
        return proof_target(given).rstrip("/") == proof_target(url).rstrip("/")
    except ValueError:
        return False
