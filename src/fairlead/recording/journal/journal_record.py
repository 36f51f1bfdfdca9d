"""Journal record of one exchange: the request and its outcome."""

from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from ...protocol.envelope import Direction

__all__ = [
    "HANGS",
    "IN_USE",
    "NOT_A_MESSAGE",
    "TOO_LONG",
    "UNMATCHED",
    "ExchangeState",
    "JournalRecord",
]

# Flags of a record
NOT_A_MESSAGE: Final = "not a message"  # a line that is not JSON-RPC
UNMATCHED: Final = "unmatched"  # a response to an unknown id, or a second response
IN_USE: Final = "id in use"  # a request with the id of another pending request
HANGS: Final = "hangs"  # a request that has been pending for a long time
TOO_LONG: Final = "too long"  # a line that is longer than the limit and was not examined

ExchangeKind: TypeAlias = Literal["request", "notification", "answer", "stray"]
ExchangeState: TypeAlias = Literal[
    "pending", "ok", "failed", "refused", "cancelled", "lost", "passed"
]


class JournalRecord(Struct, omit_defaults=True, kw_only=True, gc=False):
    """An exchange, with its secrets redacted."""

    id: int
    at: float  # seconds since the epoch
    dir: Direction
    kind: ExchangeKind
    method: str = ""
    target: str | None = None  # the tool, prompt or resource
    # `failed`: a tool result reports an error; `refused`: the response is an error
    state: ExchangeState = "pending"
    duration: float | None = None  # seconds until the response
    code: int | None = None
    error: str | None = None
    flags: tuple[str, ...] = ()
    did: tuple[str, ...] = ()  # notes of interceptors
    session: str | None = None
    request_id: Any = None
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    text: str | None = None  # text of a malformed message
    size: int = 0  # bytes of params and result, before redaction
