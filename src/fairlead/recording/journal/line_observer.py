"""Observer of a conversation's lines, which matches requests with responses."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...observe.timestamps import Timestamp
from ...protocol.caller import read_params_head, target_of
from ...protocol.envelope import Direction
from ...wire.json import UNREADABLE, read_json
from .journal import Journal
from .journal_record import IN_USE, NOT_A_MESSAGE, TOO_LONG, UNMATCHED
from .pending_entry import PendingEntry

__all__ = ["LOOKED_AT", "LineObserver"]

MAX_ASKED: Final = 10_000  # maximum number of ids of pending requests per side
MAX_SAME: Final = 100  # maximum number of pending requests with the same id
LOOKED_AT: Final = 16 << 10  # maximum size of a stored line that is not a message, in bytes

_UP, _DOWN = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT


class _Line(Struct):
    """The members that any kind of message may have."""

    id: Any = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Refusal(Struct):
    code: int | None = None
    message: str = ""


class _Gone(Struct):
    request_id: Any = msgspec.field(default=None, name="requestId")


_ODD: Final = _Refusal(message="an error that cannot be decoded")
_decode = msgspec.json.Decoder(_Line).decode
_decode_many = msgspec.json.Decoder(list[Raw]).decode


class LineObserver:
    """Observer of both sides of a conversation, which records them in a journal."""

    def __init__(self, journal: Journal, session: str | None = None) -> None:
        # time at which the current line was sent; None for the current time
        self.when: Timestamp | None = None
        self._journal = journal
        self._session = session
        self._asked: dict[Direction, OrderedDict[Hashable, list[PendingEntry]]] = {
            _UP: OrderedDict(),
            _DOWN: OrderedDict(),
        }

    def receive_bytes(self, line: bytes, direction: Direction) -> bool:
        """Record a line; return False if it is not a message."""
        if line[:1] == b"[":
            return self._batch(line, direction)
        try:
            said = _decode(line)
        except UNREADABLE:
            self.stray(line, direction)
            return False
        return self._take(said, line, direction)

    def stray(
        self, line: bytes, direction: Direction, size: int | None = None, why: str = NOT_A_MESSAGE
    ) -> None:
        """Record a line that is not a message."""
        text = line[:LOOKED_AT].decode("utf-8", "replace")
        record = self._journal.begin(
            direction, "stray", "", session=self._session, text=text, when=self.when
        )
        record.size = len(line) if size is None else size
        self._journal.flag(record, why)
        self._journal.end(record, "passed", when=self.when)

    def too_long(self, size: int, direction: Direction) -> None:
        """Record a line that exceeds the size limit and may be a message.

        The content is not kept, because redaction cannot recognise a truncated secret.
        """
        self.stray(b"", direction, size, TOO_LONG)

    def ended(self) -> None:
        """Record all pending requests as lost, because the conversation has ended."""
        for asked in self._asked.values():
            for record in (one for several in asked.values() for one in several):
                self._journal.end(record, "lost", error="the conversation ended before a response")
            asked.clear()

    def _batch(self, line: bytes, direction: Direction) -> bool:
        try:
            said = [(_decode(one), one) for one in _decode_many(line)]
        except UNREADABLE:
            self.stray(line, direction)
            return False
        heard = [self._take(one, bytes(raw), direction) for one, raw in said]
        return all(heard)

    def _take(self, said: _Line, line: bytes, direction: Direction) -> bool:
        if not isinstance(said.method, UnsetType):
            if isinstance(said.id, UnsetType):
                self._notified(said, said.method, direction)
            else:
                self._requested(said, said.method, direction)
        elif not isinstance(said.result, UnsetType) or not isinstance(said.error, UnsetType):
            self._answered(said, direction)
        else:
            self.stray(line, direction)
            return False
        return True

    def _begin(
        self, said: _Line, method: str, direction: Direction, *, request: bool
    ) -> PendingEntry:
        return self._journal.begin(
            direction,
            "request" if request else "notification",
            method,
            target=target_of(method, read_params_head(said.params)),
            params=said.params,
            session=self._session,
            request_id=said.id if request else None,
            when=self.when,
        )

    def _requested(self, said: _Line, method: str, direction: Direction) -> None:
        record = self._begin(said, method, direction, request=True)
        asked, key = self._asked[direction], _key(said.id)
        under_it = asked.setdefault(key, [])
        if under_it:
            self._journal.flag(record, IN_USE)
        under_it.append(record)
        # Peers choose the ids, so both the number of ids and the requests per id are limited.
        if len(asked) > MAX_ASKED or len(under_it) > MAX_SAME:
            first = key if len(under_it) > MAX_SAME else next(iter(asked))
            for one in asked.pop(first):
                self._journal.end(one, "lost", when=self.when)

    def _notified(self, said: _Line, method: str, direction: Direction) -> None:
        record = self._begin(said, method, direction, request=False)
        if method == "notifications/cancelled" and not isinstance(said.params, UnsetType):
            self._cancelled(said.params, direction)
        self._journal.end(record, "passed", when=self.when)

    def _cancelled(self, params: Raw, direction: Direction) -> None:
        """Record a cancellation.

        The request stays registered, because its response may still arrive.
        """
        gone = read_json(params, _Gone, None)
        for record in self._asked[direction].get(_key(gone.request_id), ()) if gone else ():
            self._journal.end(record, "cancelled", when=self.when)

    def _answered(self, said: _Line, direction: Direction) -> None:
        name = None if isinstance(said.id, UnsetType) else said.id
        record = None
        if not isinstance(said.id, UnsetType):
            record = self._take_asked(direction.reverse(), _key(said.id))
        if record is None:
            record = self._journal.begin(
                direction, "answer", "", session=self._session, request_id=name, when=self.when
            )
            self._journal.flag(record, UNMATCHED)
        if isinstance(said.error, UnsetType):
            self._journal.end(record, "ok", said.result, when=self.when)
            return
        refusal = read_json(said.error, _Refusal, _ODD)
        code, why = refusal.code, refusal.message
        self._journal.end(record, "refused", said.error, code=code, error=why, when=self.when)

    def _take_asked(self, direction: Direction, key: Hashable) -> PendingEntry | None:
        """Remove and return the oldest pending request with this id."""
        under_it = self._asked[direction].get(key)
        if not under_it:
            return None
        record = under_it.pop(0)
        if not under_it:
            del self._asked[direction][key]
        return record


def _key(request_id: Any) -> Hashable:
    """Return a dictionary key for an id of any type, which distinguishes `1` from `"1"`."""
    return request_id if isinstance(request_id, str | int) else repr(request_id)
