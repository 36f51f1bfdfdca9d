"""Everything that passes, into a journal."""

import itertools
from functools import partial
from weakref import finalize

from ...errors import RpcError
from ...interceptor import After, Exchange, Offence, Outcome, TwoHalves
from ...peer import Peer
from ...wire import Request
from ..journal import Journal
from ..journal.overheard import LOOKED_AT, is_tool_error, says_error
from ..journal.record import Record, State

__all__ = ["Journaling"]


class Journaling(TwoHalves):
    """Writes down each exchange with its outcome. Put it first: it sees what the asker sees.

    Connections are called s1, s2, ... in the order in which they come: their real ids are secret.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._labels: dict[int, str] = {}  # by the id of the peer, for as long as there is one
        self._numbers = itertools.count(1)

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        message = exchange.message
        is_request = isinstance(message, Request)
        if exchange.did is None:
            exchange.did = []  # so that copies of the exchange, made on the way, share it
        record = self._journal.begin(
            exchange.direction,
            "request" if is_request else "notification",
            message.method,
            target=exchange.target,
            params=message.params,
            session=self._labels.get(id(exchange.edge)) or self._label(exchange.edge),
            request_id=message.id if isinstance(message, Request) else None,
        )
        return exchange, partial(self._after, record, exchange)

    def _after(self, record: Record, exchange: Exchange, outcome: Outcome) -> Outcome:
        end, did = self._journal.end, exchange.did
        if not isinstance(outcome, BaseException):
            state: State = "passed"
            if record.kind == "request":
                state = "ok"
                if exchange.message.method == "tools/call" and says_error(outcome or b""):
                    state = "failed" if is_tool_error(outcome or b"") else "ok"
            end(record, state, result=outcome, did=did)
        elif isinstance(outcome, RpcError):
            code, why = outcome.code, outcome.message
            end(record, "refused", result=outcome.raw, code=code, error=why, did=did)
        elif isinstance(outcome, Exception):
            end(record, "lost", error=f"{type(outcome).__name__}: {outcome}", did=did)
        else:
            end(record, "cancelled", did=did)
        return outcome

    def offended(self, offence: Offence) -> None:
        """A frame that is no good: what it was, without its secrets."""
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
            return None  # a request that stands alone
        label = self._labels.get(id(edge))
        if label is None:
            label = self._labels[id(edge)] = f"s{next(self._numbers)}"
            finalize(edge, self._labels.pop, id(edge), None).atexit = False
        return label
