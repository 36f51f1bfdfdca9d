"""Journal entry: an exchange as stored, before it is read.

Most entries are never read. The duration, the redaction and the check for tool errors are therefore
done when an entry is read, not when the message is forwarded.
"""

from typing import Any, Final

from msgspec import UNSET, Raw, Struct

from ...protocol.envelope import Direction
from .journal_record import ExchangeKind, ExchangeState, JournalRecord

__all__ = ["OVERHEAD", "PendingEntry"]

OVERHEAD: Final = 600  # estimated size of an entry without its messages, in bytes


class PendingEntry(Struct, gc=False):
    """The stored data of an exchange; contains secrets until `clean` is set."""

    id: int
    at: float
    since: float  # start of the exchange, from a monotonic clock
    dir: Direction
    kind: ExchangeKind
    method: str
    target: str | None
    session: str | None
    request_id: Any
    params: bytes  # empty if absent or too long
    size: int  # bytes of params and result, before redaction
    result: bytes = b""
    state: ExchangeState = "pending"
    until: float | None = None
    code: int | None = None
    error: str | None = None
    text: str | None = None
    flags: tuple[str, ...] = ()
    did: tuple[str, ...] = ()
    clean: bool = False  # True once secrets were removed

    def record(self) -> JournalRecord:
        """Return a record of the current state; later changes do not affect it."""
        took = None if self.until is None else int((self.until - self.since) * 1e6 + 0.5) / 1e6
        return JournalRecord(
            duration=took if self.kind == "request" else None,
            params=Raw(self.params) if self.params else UNSET,
            result=Raw(self.result) if self.result else UNSET,
            **{name: getattr(self, name) for name in _SAME},
        )


_SAME: Final = [
    one
    for one in JournalRecord.__struct_fields__
    if one in PendingEntry.__struct_fields__ and one not in ("params", "result")
]
