"""DPoP proofs (RFC 9449): keys and proofs of a client."""

import base64
import hashlib
import secrets
import time
from collections.abc import Collection
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ..wire.json import read_json

__all__ = [
    "DPOP_ALGORITHMS",
    "DpopKey",
    "choose_proof_algorithm",
    "nonce_of",
    "proof_target",
    "token_hash",
]

# Asymmetric algorithms whose signatures are cheap to verify.
DPOP_ALGORITHMS = ("ES256", "ES384", "EdDSA", "RS256", "PS256")
# Algorithms for the keys of a client, the preferred one first, with their curves.
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


class DpopKey:
    """The key pair that the tokens of one login are bound to."""

    def __init__(self, private: dict[str, Any] | None = None, *, algorithm: str = "ES256") -> None:
        """Create a new key for an algorithm, or use a stored one."""
        from joserfc.jwk import ECKey

        curve = _CURVES[algorithm]
        self._key = ECKey.generate_key(curve) if private is None else ECKey.import_key(private)
        self._public = self._key.as_dict(private=False)
        curve = str(self._public["crv"])
        self._algorithm = next(name for name, used in _CURVES.items() if used == curve)

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
        header = {"typ": "dpop+jwt", "alg": self._algorithm, "jwk": self._public}
        return jwt.encode(header, claims, self._key, algorithms=[self._algorithm])


def choose_proof_algorithm(*supported: Collection[str] | None) -> str | None:
    """Return the preferred algorithm that all servers support, or None if there is none.

    A server without a list supports all of them, as far as a client knows.
    """
    lists = [names for names in supported if names]
    return next((name for name in _CURVES if all(name in names for names in lists)), None)


def nonce_of(proof: str) -> object:
    """Return the nonce of a proof that this program created, or None if it has none."""
    claims = base64.urlsafe_b64decode(proof.split(".")[1] + "==")
    return read_json(claims, dict[str, Any], {}).get("nonce")


def token_hash(token: str) -> str:
    """Return the `ath` of an access token: its SHA-256 in base64url."""
    digest = hashlib.sha256(token.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@lru_cache(maxsize=256)
def proof_target(url: str) -> str:
    """Return a URL as proofs contain it: without query and fragment, in a normal form.

    A WebSocket is opened by an HTTP request, so its URL is that of the request.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    scheme = parts.scheme.lower()
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    usual = {"http": 80, "https": 443}.get(scheme)
    place = host if parts.port in (None, usual) else f"{host}:{parts.port}"
    return urlunsplit((scheme, place, parts.path, "", ""))
