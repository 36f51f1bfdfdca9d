"""One exchange, as a journal remembers it: who asked what, and how it ended."""

from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from ...protocol.envelope import Direction

__all__ = [
    "HANGS",
    "IN_USE",
    "NOBODY_ASKED",
    "NO_MESSAGE",
    "TOO_LONG",
    "ExchangeState",
    "JournalRecord",
]

# What is flagged.
NO_MESSAGE: Final = "no message"  # a line that is no JSON-RPC
NOBODY_ASKED: Final = "nobody asked"  # an answer to an id that is not, or no longer, waited for
IN_USE: Final = "id in use"  # a request under the id of one that is not answered yet
HANGS: Final = "hangs"  # no answer for a long time
TOO_LONG: Final = "too long"  # to be looked at

ExchangeKind: TypeAlias = Literal["request", "notification", "answer", "stray"]
ExchangeState: TypeAlias = Literal[
    "pending", "ok", "failed", "refused", "cancelled", "lost", "passed"
]


class JournalRecord(Struct, omit_defaults=True, kw_only=True, gc=False):
    """What is kept of an exchange. Secrets were taken out before."""

    id: int
    at: float  # seconds since the epoch
    dir: Direction
    kind: ExchangeKind
    method: str = ""
    target: str | None = None  # the tool, prompt or resource
    state: ExchangeState = "pending"  # `failed` is a tool that says so, `refused` an error
    duration: float | None = None  # seconds to the answer
    code: int | None = None
    error: str | None = None
    flags: tuple[str, ...] = ()
    did: tuple[str, ...] = ()  # what interceptors did
    session: str | None = None
    request_id: Any = None
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    text: str | None = None  # of what is no message
    size: int = 0  # bytes of params and result as they passed
