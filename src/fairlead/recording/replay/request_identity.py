"""Request digests, which identify a request of any length by a few bytes."""

from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...redaction.redact_text import REDACTED

__all__ = ["RequestIdentity", "comparable_params", "digest", "target_params"]

# Params that distinguish requests of the same method.
_TARGET: Final = ("name", "uri", "arguments", "ref", "argument", "cursor", "requestState", "level")
_REDACTED: Final = REDACTED.encode()
SHORT: Final = 2048  # in bytes; longer params without a digest are not kept in memory


class RequestIdentity(Struct, frozen=True):
    """The values that identify a method call with its params."""

    # digest of method and params; None if params are redacted, because the digest would never match
    said: bytes | None
    target: bytes | None
    params: dict[str, Any] | None = None  # the params, if they are short and have no digest

    @classmethod
    def of(
        cls, method: str, params: dict[str, Any], *, request: bool, raw: Raw | UnsetType
    ) -> "RequestIdentity":
        given = b"" if isinstance(raw, UnsetType) else bytes(raw)
        one = (
            None
            if _REDACTED in given
            else digest(method, comparable_params(params), request=request)
        )
        if one is None:
            return cls(None, None, params if len(given) <= SHORT else None)
        aimed = target_params(params)
        same = len(aimed) == len(params) - ("_meta" in params)
        return cls(one, one if same else digest(method, aimed, request=request))


def comparable_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the params without `_meta`, which contains tokens and client information."""
    return {name: held for name, held in params.items() if name != "_meta"}


def target_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return the params that identify the target of a request."""
    return {name: params[name] for name in _TARGET if name in params}


def digest(method: str, value: dict[str, Any], *, request: bool) -> bytes | None:
    """Return a digest of a method and a value; None if the value cannot be encoded."""
    kind = "request" if request else "notification"
    try:
        text = msgspec.json.encode([method, kind, value], order="sorted")
    except (OverflowError, RecursionError, UnicodeEncodeError):
        return None
    return blake2b(text, digest_size=16).digest()
