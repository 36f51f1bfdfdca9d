"""Public keys (JWK and JWK Set, RFC 7517), and the algorithms that may use them."""

import base64
import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from ...wire import to_json

__all__ = ["ALGORITHMS", "KeySet", "SigningKey", "key_thumbprint", "read_key", "read_key_set"]

MAX_KEYS = 64  # maximum number of keys read from a key set
MIN_RSA = 2048  # minimum length of an RSA key, in bits
MAX_RSA = 8192  # maximum length of an RSA key, in bits; longer keys make verifications expensive
MAX_EXPONENT = 8  # bytes of the public exponent of an RSA key, at most

log = logging.getLogger("fairlead.auth")

# The key type, and the curve if any, for each asymmetric algorithm.
ALGORITHMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "RS256": ("RSA", ()),
    "RS384": ("RSA", ()),
    "RS512": ("RSA", ()),
    "PS256": ("RSA", ()),
    "PS384": ("RSA", ()),
    "PS512": ("RSA", ()),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
    "Ed25519": ("OKP", ("Ed25519",)),
}
# The members of public keys; all others, such as certificates, are ignored.
_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}


class SigningKey(Struct, frozen=True):
    """A public key of an issuer or a client."""

    id: str | None
    type: str
    curve: str | None
    algorithm: str | None  # the only algorithm of the key, if the set names one
    identity: tuple[str, ...]  # the public members, to compare keys
    key: Any  # key object of joserfc

    def fits(self, algorithm: str) -> bool:
        """Return True if tokens with this algorithm may be signed by the key."""
        kind, curves = ALGORITHMS[algorithm]
        return (
            self.type == kind
            and (not curves or self.curve in curves)
            and self.algorithm in (None, algorithm)
        )

    def verify(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        """Return True if the signature is valid."""
        from joserfc.errors import JoseError
        from joserfc.jws import JWSRegistry

        try:
            return JWSRegistry.algorithms[algorithm].verify(signed, signature, self.key)
        except (JoseError, ValueError, TypeError):
            return False


class KeySet(Struct, frozen=True):
    """The usable keys of a set."""

    keys: tuple[SigningKey, ...]

    def find(self, key_id: str | None, algorithm: str) -> Sequence[SigningKey]:
        """Return the keys that may have signed a token; without an id, up to four suitable keys."""
        fitting = [key for key in self.keys if key.fits(algorithm)]
        if key_id is None:
            return fitting[:4]
        return [key for key in fitting if key.id == key_id]

    def has(self, key_id: str | None) -> bool:
        """Return True if the set contains a key with this id."""
        return any(key.id == key_id for key in self.keys)

    def lacks_a_key_of(self, other: "KeySet") -> bool:
        """Return True if this set lacks a key of another set."""
        ours = {(key.id, key.identity) for key in self.keys}
        return any((key.id, key.identity) not in ours for key in other.keys)


def read_key_set(document: object) -> KeySet | None:
    """Return the usable keys of a decoded document, or None if it is not a key set.

    Keys of unknown types, for other uses or of unacceptable sizes are skipped one by one.
    """
    members = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(members, list):
        return None
    found: list[SigningKey] = []
    for one in members[:MAX_KEYS]:
        key = read_key(one) if isinstance(one, dict) else None
        if key is not None:
            found.append(key)
        elif isinstance(one, dict) and one.get("kty") == "RSA":
            log.warning(
                "skipped an RSA key of an issuer: expected a valid signature key of %d to %d bits",
                *(MIN_RSA, MAX_RSA),
            )
    return KeySet(tuple(found))


def key_thumbprint(jwk: dict[str, Any]) -> str | None:
    """Return the thumbprint of a key (RFC 7638) from its members, which are not checked; None if
    its type is unknown.
    """
    kind = jwk.get("kty")
    if not isinstance(kind, str) or kind not in _MEMBERS:
        return None
    public = {name: jwk.get(name) for name in ("kty", *_MEMBERS[kind])}
    canonical = to_json(dict(sorted(public.items())))
    return base64.urlsafe_b64encode(sha256(canonical).digest()).rstrip(b"=").decode()


def read_key(jwk: dict[str, Any]) -> SigningKey | None:
    """Return a public key; None if its type, use, size or values are not acceptable."""
    kind, use, key_id, algorithm = (jwk.get(name) for name in ("kty", "use", "kid", "alg"))
    if not isinstance(kind, str) or kind not in _MEMBERS or use not in (None, "sig"):
        return None
    if not isinstance(key_id, str | None) or not isinstance(algorithm, str | None):
        return None
    operations = jwk.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    public = {name: jwk.get(name) for name in _MEMBERS[kind]}
    if not all(isinstance(value, str) and len(value) < 4096 for value in public.values()):
        return None
    if kind == "RSA" and not _is_acceptable_rsa(str(public["n"]), str(public["e"])):
        return None
    imported = _imported({"kty": kind, **public})
    if imported is None:
        return None
    identity = (kind, *(str(value) for value in public.values()))
    curve = None if kind == "RSA" else str(public["crv"])
    return SigningKey(key_id, kind, curve, algorithm, identity, imported)


def _is_acceptable_rsa(modulus: str, exponent: str) -> bool:
    try:
        n, e = (
            base64.urlsafe_b64decode(one + "=" * (-len(one) % 4)) for one in (modulus, exponent)
        )
    except ValueError:
        return False
    bits = int.from_bytes(n[: MAX_RSA // 8 + 1]).bit_length()
    return MIN_RSA <= bits <= MAX_RSA and len(n) <= MAX_RSA // 8 + 1 and len(e) <= MAX_EXPONENT


def _imported(public: dict[str, Any]) -> Any:
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        key = import_key(public)
        key.get_op_key("verify")  # converted now, so that a malformed key is skipped here
        return key
    # A key set comes from another program; the libraries raise several types for malformed keys.
    except (JoseError, ValueError, TypeError, KeyError, OverflowError):
        return None
