"""One exchange in the memory of a journal, before it is read.

Most exchanges are never read. Durations, the removal of secrets, and whether a kept result reports
an error of a tool are therefore computed when an entry is read, not when the message passes.
"""

from typing import Any, Final

from msgspec import UNSET, Raw, Struct

from ...protocol.envelope import Direction
from .journal_record import ExchangeKind, ExchangeState, JournalRecord

__all__ = ["OVERHEAD", "PendingEntry"]

OVERHEAD: Final = 600  # bytes that an entry costs beside its messages


class PendingEntry(Struct, gc=False):
    """What a record is made of; secrets are in it until it is `clean`."""

    id: int
    at: float
    since: float  # by the clock that never goes back
    dir: Direction
    kind: ExchangeKind
    method: str
    target: str | None
    session: str | None
    request_id: Any
    params: bytes  # empty: none, or too long to be kept
    size: int  # bytes of params and result as they passed
    result: bytes = b""
    state: ExchangeState = "pending"
    until: float | None = None
    code: int | None = None
    error: str | None = None
    text: str | None = None
    flags: tuple[str, ...] = ()
    did: tuple[str, ...] = ()
    clean: bool = False  # nothing secret is in it any more

    def record(self) -> JournalRecord:
        """As it is now; it may change, the record does not."""
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
