"""What a client asked for, in a few bytes: enough to find it again, however long it was."""

from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...redaction.redact_text import REDACTED

__all__ = ["RequestIdentity", "comparable_params", "digest", "target_params"]

# What makes a request another one, besides its method.
_TARGET: Final = ("name", "uri", "arguments", "ref", "argument", "cursor", "requestState", "level")
_REDACTED: Final = REDACTED.encode()
SHORT: Final = 2048  # bytes of params that are kept, where they have to be looked at each time


class RequestIdentity(Struct, frozen=True):
    """A method and its params."""

    said: bytes | None  # None: not to be told by a digest, because secrets were taken out
    target: bytes | None
    params: dict[str, Any] | None = None  # if they are short, and there is no digest

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
    """What was meant: tokens, and what a client says about itself, are not compared."""
    return {name: held for name, held in params.items() if name != "_meta"}


def target_params(params: dict[str, Any]) -> dict[str, Any]:
    """What it was aimed at."""
    return {name: params[name] for name in _TARGET if name in params}


def digest(method: str, value: dict[str, Any], *, request: bool) -> bytes | None:
    """The same for the same value; None if there is none."""
    kind = "request" if request else "notification"
    try:
        text = msgspec.json.encode([method, kind, value], order="sorted")
    except (OverflowError, RecursionError, UnicodeEncodeError):
        return None
    return blake2b(text, digest_size=16).digest()
