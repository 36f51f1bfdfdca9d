"""State that a client stores and returns: encrypted, authenticated and with an expiry.

A client keeps `requestState` between two rounds of a call and could modify it. The state is sealed
with an AEAD cipher, so that the client can neither read nor change it, and callers bind it to a
principal and a request.
"""

import base64
import binascii
import hmac
import os
import secrets
import time
from collections.abc import Mapping

__all__ = ["KEYS_VARIABLE", "BadSeal", "KeyRing"]

KEYS_VARIABLE = "FAIRLEAD_STATE_KEYS"
_PREFIX = "v1"
_NONCE = 12  # length of a ChaCha20-Poly1305 nonce in bytes (RFC 8439)


class BadSeal(ValueError):
    """State that was not sealed by this server, was modified, or has expired.

    The message says which.
    """


class KeyRing:
    """Keys by name. The first key seals; all keys can open.

    Replicas that continue each other's calls share a key ring: `FAIRLEAD_STATE_KEYS` is a
    comma-separated list of `name:key`, each key 32 bytes in base64. Without the variable, each
    process creates its own key.
    """

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = dict(keys) if keys is not None else {"p": secrets.token_bytes(32)}
        if not self._keys or any(len(key) != 32 for key in self._keys.values()):
            raise ValueError("each key of a key ring must have 32 bytes")

    @classmethod
    def from_environment(cls) -> "KeyRing":
        """Return the key ring that the environment variable describes.

        Raises:
            ValueError: The variable is set and malformed.
        """
        text = os.environ.get(KEYS_VARIABLE)
        if not text:
            return cls()
        keys = {}
        for part in text.split(","):
            name, separator, encoded = part.strip().partition(":")
            try:
                keys[name] = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                separator = ""
            if not separator or not name or "." in name:
                raise ValueError(
                    f"{KEYS_VARIABLE} must be a list of name:key, each key 32 bytes in base64"
                )
        return cls(keys)

    def derived(self, purpose: str) -> "KeyRing":
        """Return a key ring for another purpose: neither ring opens what the other one sealed."""
        return KeyRing(
            {
                name: hmac.digest(key, f"fairlead {purpose}".encode(), "sha256")
                for name, key in self._keys.items()
            }
        )

    def seal(self, content: bytes, *, ttl: float) -> str:
        """Seal bytes that can be opened for `ttl` seconds."""
        name, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE)
        # The expiry is inside the encrypted part, so a client cannot extend it.
        expiry = int(time.time() + ttl).to_bytes(8, "big")
        sealed = _cipher(key).encrypt(nonce, expiry + content, _bound(name))
        text = base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()
        return f"{_PREFIX}.{name}.{text}"

    def open(self, token: str) -> bytes:
        """Open sealed state and return the original bytes.

        Raises:
            BadSeal: The state was not sealed by this server, was modified, or has expired.
        """
        prefix, _, rest = token.partition(".")
        name, _, text = rest.partition(".")
        key = self._keys.get(name)
        if prefix != _PREFIX or key is None:
            raise BadSeal("the state was not created by this server, or its key was removed")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            opened = _cipher(key).decrypt(raw[:_NONCE], raw[_NONCE:], _bound(name))
        # A wrong seal, invalid base64 and a text that is too short all raise the same error, so
        # that a client cannot find out which check failed.
        except Exception as exc:
            raise BadSeal("the state was modified") from exc
        if int.from_bytes(opened[:8], "big") < time.time():
            raise BadSeal("the state has expired")
        return bytes(opened[8:])


def _bound(name: str) -> bytes:
    # Authenticated with the content, so that a token cannot be moved to another key or version.
    return f"fairlead state {_PREFIX} {name}".encode()


def _cipher(key: bytes):  # type: ignore[no-untyped-def]
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key)
