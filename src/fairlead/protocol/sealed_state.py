"""State that travels through a client and comes back: encrypted, authentic, and not too old.

A client holds `requestState` between two rounds of a call and may do anything with it. It is
sealed with an AEAD, so that it can neither be read nor changed, and bound to who asked for what.
"""

import base64
import binascii
import os
import secrets
import time
from collections.abc import Mapping

__all__ = ["KEYS_VARIABLE", "BadSeal", "KeyRing"]

KEYS_VARIABLE = "FAIRLEAD_STATE_KEYS"
_PREFIX = "v1"
_NONCE = 12


class BadSeal(ValueError):
    """The state was not sealed by us, was changed, or is too old. The text says which."""


class KeyRing:
    """Keys by name; the first one seals, all of them open.

    Replicas that serve each other's rounds share a ring: `FAIRLEAD_STATE_KEYS` is a comma-separated
    list of `name:key`, each key 32 bytes in base64. Without it a process makes one key for itself.
    """

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = dict(keys) if keys is not None else {"p": secrets.token_bytes(32)}
        if not self._keys or any(len(key) != 32 for key in self._keys.values()):
            raise ValueError("a key ring needs keys of 32 bytes")

    @classmethod
    def from_environment(cls) -> "KeyRing":
        """Raises `ValueError` if the variable is set and malformed."""
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
                    f"{KEYS_VARIABLE} is a list of name:key, each key 32 bytes in base64"
                )
        return cls(keys)

    def seal(self, content: bytes, *, ttl: float) -> str:
        """Seal some bytes for so many seconds."""
        name, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE)
        expiry = int(time.time() + ttl).to_bytes(8, "big")
        sealed = _cipher(key).encrypt(nonce, expiry + content, _bound(name))
        text = base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()
        return f"{_PREFIX}.{name}.{text}"

    def open(self, token: str) -> bytes:
        """What was sealed. Raises `BadSeal`."""
        prefix, _, rest = token.partition(".")
        name, _, text = rest.partition(".")
        key = self._keys.get(name)
        if prefix != _PREFIX or key is None:
            raise BadSeal("it was not made by this server, or its key is gone")
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            opened = _cipher(key).decrypt(raw[:_NONCE], raw[_NONCE:], _bound(name))
        except Exception as exc:  # the library's InvalidTag, bad base64, too short: all one to us
            raise BadSeal("it was changed on the way") from exc
        if int.from_bytes(opened[:8], "big") < time.time():
            raise BadSeal("it is too old")
        return bytes(opened[8:])


def _bound(name: str) -> bytes:
    return f"fairlead state {_PREFIX} {name}".encode()


def _cipher(key: bytes):  # type: ignore[no-untyped-def]
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key)
