"""Calls that were answered with a question: what comes back with the answer is no new call.

In the stateless era a server that has to ask something ends the request with `input_required`, and
the client sends it again, with the answers and the state that it was given. Anybody can send a
state; so only what was seen to be asked for counts as such a round, once.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...interceptor import After, Exchange, Outcome
from ...limits import REMEMBERED_ROUNDS
from ...protocol.caller import ROUND_MEMBERS

__all__ = ["Rounds"]

MAX_ROUNDS: Final = 20  # of one call; clients give up then, and so do we
MAX_OPEN: Final = REMEMBERED_ROUNDS.value
LONGEST: Final = 1 << 20  # bytes of a result that is looked at

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Wanted(Struct, rename="camel"):
    """The part of a result that says so."""

    result_type: str = ""
    request_state: str | None = None


class Rounds:
    """Knows which requests go on with a call, by what their servers answered before."""

    def __init__(self) -> None:
        # How many rounds the call may have from here on. The oldest go first, when there are many.
        self.open: OrderedDict[tuple[Hashable, bytes], int] = OrderedDict()

    def take(self, key: Hashable, exchange: Exchange) -> int | None:
        """How many rounds may follow, if it is the next round of a call; nobody can use it twice.

        `key` is whose call it is.
        """
        params = exchange.message.params
        if isinstance(params, UnsetType):
            return None
        text = bytes(params)
        if text.find(b'"requestState"') < 0 and text.find(b'"inputResponses"') < 0:
            return None
        request = _read(exchange)
        if request is None or not request.keys() & ROUND_MEMBERS:
            return None
        digest = _digest(exchange, request, request.get("requestState"))
        return None if digest is None else self.open.pop((key, digest), None)

    def until(self, key: Hashable, exchange: Exchange, left: int) -> After:
        """What is to be told the outcome, to remember it if that is a question."""

        def answered(outcome: Outcome) -> Outcome:
            text = outcome if type(outcome) is bytes else _bytes_of(outcome)
            if left and len(text) <= LONGEST and text.find(b'"input_required"') >= 0:
                self._asked(key, exchange, left, text)
            return outcome

        return answered

    def _asked(self, key: Hashable, exchange: Exchange, left: int, text: bytes) -> None:
        try:
            wanted = msgspec.json.decode(text, type=_Wanted)
        except _UNREADABLE:
            return
        request = _read(exchange)
        if wanted.result_type != "input_required" or request is None:
            return
        digest = _digest(exchange, request, wanted.request_state)
        if digest is not None:
            self.open[(key, digest)] = left - 1
        if len(self.open) > MAX_OPEN:
            REMEMBERED_ROUNDS.hit()
            self.open.popitem(last=False)


def _bytes_of(outcome: Outcome) -> bytes:
    return bytes(outcome) if isinstance(outcome, Raw) else b""


def _read(exchange: Exchange) -> dict[str, Any] | None:
    params = exchange.message.params
    if isinstance(params, UnsetType):
        return None
    try:
        return msgspec.json.decode(params, type=dict[str, Any])
    except _UNREADABLE:  # then it counts as any call does
        return None


def _digest(exchange: Exchange, request: dict[str, Any], state: object) -> bytes | None:
    """What makes a request the next round of a call: all else stays as it was."""
    same = {
        name: held
        for name, held in request.items()
        if name != "_meta" and name not in ROUND_MEMBERS
    }
    try:
        text = msgspec.json.encode([exchange.server, exchange.method, same, state], order="sorted")
    except RecursionError:  # as deep as can be read, and we are a step deeper
        return None
    return hashlib.sha256(text).digest()
