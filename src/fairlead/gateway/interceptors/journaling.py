"""Everything that passes, into a journal."""

import itertools
from typing import ClassVar
from weakref import finalize

from ...errors import RpcError
from ...interceptor import Answer, Exchange, Offence, Proceed
from ...peer import Peer
from ...wire import Request
from ..journal import Journal
from ..journal.overheard import LOOKED_AT, is_tool_error
from ..journal.record import State

__all__ = ["Journaling"]


class Journaling:
    """Writes down each exchange with its outcome. Put it first: it sees what the asker sees.

    Connections are called s1, s2, ... in the order in which they come: their real ids are secret.
    """

    waits: ClassVar = False

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._labels: dict[int, str] = {}  # by the id of the peer, for as long as there is one
        self._numbers = itertools.count(1)

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        journal, message = self._journal, exchange.message
        is_request = isinstance(message, Request)
        if exchange.did is None:
            exchange.did = []  # so that copies of the exchange, made on the way, share it
        record = journal.begin(
            exchange.direction,
            "request" if is_request else "notification",
            message.method,
            target=exchange.target,
            params=message.params,
            session=self._label(exchange.edge),
            request_id=message.id if isinstance(message, Request) else None,
        )
        try:
            answer = await proceed(exchange)
        except RpcError as exc:
            journal.end(
                record,
                "refused",
                result=exc.raw,
                code=exc.code,
                error=exc.message,
                did=exchange.did,
            )
            raise
        except Exception as exc:
            journal.end(record, "lost", error=f"{type(exc).__name__}: {exc}", did=exchange.did)
            raise
        except BaseException:
            journal.end(record, "cancelled", did=exchange.did)
            raise
        state: State = "passed"
        if is_request:
            failed = message.method == "tools/call" and is_tool_error(answer or b"")
            state = "failed" if failed else "ok"
        journal.end(record, state, result=answer, did=exchange.did)
        return answer

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
