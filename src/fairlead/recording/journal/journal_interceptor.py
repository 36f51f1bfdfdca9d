"""Interceptor that records all exchanges in a journal."""

import itertools
from functools import partial
from weakref import finalize

from msgspec import UNSET

from ...errors import RpcError
from ...interceptor import After, Exchange, MalformedFrame, Outcome, SyncInterceptor
from ...peer import Peer
from ...wire import Request
from . import Journal
from .line_observer import LOOKED_AT
from .pending_entry import PendingEntry

__all__ = ["Journaling"]


class Journaling(SyncInterceptor):
    """Interceptor that records exchanges in a journal. Put it first, so that it sees responses as
    clients do.

    Connections are labelled s1, s2, ... in the order of their first message, because their real ids
    are secret.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._clock = journal.clock
        # labels by the peer's `id()`, until the peer is garbage-collected
        self._labels: dict[int, str] = {}
        self._numbers = itertools.count(1)

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        message, head, edge = exchange.message, exchange.head, exchange.edge
        did = exchange.did
        if did is None:
            # Copies of the exchange made by inner interceptors share this list.
            did = exchange.did = []
        target = head.name if head.uri is UNSET else exchange.target
        # Copied, because a slice of the message would keep all of it in memory.
        raw = b"" if message.params is UNSET else bytes(message.params)
        entry = PendingEntry(
            0,
            exchange.started,
            self._clock(),
            exchange.direction,
            "request" if type(message) is Request else "notification",
            message.method,
            None if target is UNSET else target,
            self._labels.get(id(edge)) or self._label(edge),
            message.id if type(message) is Request else None,
            raw,
            len(raw),
        )
        self._journal.keep(entry)
        return exchange, partial(self._after, entry, did)

    def _after(self, entry: PendingEntry, did: list[str], outcome: Outcome) -> Outcome:
        end = self._journal.end
        if type(outcome) is bytes or not isinstance(outcome, BaseException):
            end(entry, "ok" if entry.kind == "request" else "passed", outcome, did)
        elif isinstance(outcome, RpcError):
            code, why = outcome.code, outcome.message
            end(entry, "refused", outcome.raw, did, code=code, error=why)
        elif isinstance(outcome, Exception):
            end(entry, "lost", None, did, error=f"{type(outcome).__name__}: {outcome}")
        else:
            end(entry, "cancelled", None, did)
        return outcome

    def on_malformed(self, offence: MalformedFrame) -> None:
        """Record a malformed frame without its secrets."""
        journal = self._journal
        if offence.is_json:
            record = journal.begin(offence.direction, "stray", "", params=offence.frame)
        else:
            text = offence.frame[:LOOKED_AT].decode("utf-8", "replace")
            record = journal.begin(offence.direction, "stray", "", text=text)
            record.size = offence.size
        journal.flag(record, offence.kind)
        journal.end(record, "passed", error=offence.why)

    def _label(self, edge: object) -> str | None:
        if not isinstance(edge, Peer):
            return None  # a stateless request has no session
        label = self._labels[id(edge)] = f"s{next(self._numbers)}"
        # The label is removed with the peer, because Python may reuse the peer's `id()`.
        finalize(edge, self._labels.pop, id(edge), None).atexit = False
        return label
