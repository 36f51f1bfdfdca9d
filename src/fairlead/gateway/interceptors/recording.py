"""Record what passes: every message both ways, as the client sees it."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from ...errors import RpcError
from ...interceptor import After, Exchange, Interceptor, Outcome, TwoHalves
from ...peer import Peer
from ...peer.intercepted import InterceptedPeer
from ...protocol.caller import SUBSCRIPTION_KEY
from ...protocol.envelope import Direction, TransportContext
from ...protocol.rewriting import members_of
from ...wire import Failure, Notification, Request, RequestId, encode, encode_success, failure
from ...wire.codes import INTERNAL_ERROR
from ..call import Call
from ..link import Link
from ..params import retagged, retokened
from ..tape import TapeWriter

__all__ = ["Recorder"]

_MOST_CANCELLED: Final = 1000  # at once; some never were requests that we saw
_STOPPED: Final = ("blocked", "dropped", "fault: drop")  # notes of those who do not pass it on


class Recorder(TwoHalves):
    """Writes everything that passes to a tape. Stands first, where it sees all that comes.

    What others then do to messages of a server it only names; `around` them it sees these as
    clients do.

    Sessions are called s1, s2, ... in the order in which they come: their real ids are secret. A
    request that stands alone is a session of its own, r1, r2, ...: ids are unique in it only.
    """

    def __init__(
        self, tape: TapeWriter, *, server_of: Callable[[Exchange], str | None] | None = None
    ) -> None:
        """`server_of` says which server a message of a client is for, where there are several."""
        self.tape = tape
        self._server_of = server_of
        self._labels: WeakKeyDictionary[Peer, str] = WeakKeyDictionary()
        self._sessions, self._requests = itertools.count(1), itertools.count(1)
        self._under_way: set[tuple[int, RequestId]] = set()
        self._alone: dict[int, str] = {}  # requests under way that stand alone, by their edge
        self._written: WeakKeyDictionary[Peer, TransportContext] = WeakKeyDictionary()
        self._cancelled: set[tuple[int, RequestId]] = set()  # requests whose cancellation passed

    def around(self, interceptors: Sequence[Interceptor]) -> list[Interceptor]:
        """The same interceptors with this one at both of their ends, on the clients' side each.

        What they keep from clients is then not on the tape.
        """
        return [
            _OneWay(self, Direction.CLIENT_TO_SERVER),
            *interceptors,
            _OneWay(self, Direction.SERVER_TO_CLIENT),
        ]

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        message = exchange.message
        if isinstance(message, Notification):
            return exchange, self._told(exchange, message)
        edge = id(exchange.edge)
        if (edge, message.id) in self._under_way:
            return exchange, None  # a call that a call asked for; the client made only one
        self._under_way.add((edge, message.id))
        if not isinstance(exchange.edge, Peer):
            self._alone[edge] = f"r{next(self._requests)}"
        place = self._place(exchange)
        transport = self._transport(exchange)
        self.tape.write(encode(message), exchange.direction, **place, transport=transport)
        if exchange.did is None:
            exchange.did = []  # those behind us may copy the exchange, and share it then
        return exchange, partial(self._answered, exchange, message, place)

    def _answered(
        self, exchange: Exchange, message: Request, place: dict[str, Any], outcome: Outcome
    ) -> Outcome:
        edge, request_id, direction = id(exchange.edge), message.id, exchange.direction
        write, back = self.tape.write, direction.reverse()
        if not isinstance(outcome, BaseException):
            said = encode_success(request_id, b"{}" if outcome is None else outcome)
            write(said, back, **place, did=exchange.did)
        elif isinstance(outcome, RpcError):
            write(encode(_refusal(request_id, outcome)), back, **place, did=exchange.did)
        elif isinstance(outcome, Exception):
            exchange.note(f"failed: {outcome!r}")
            said = encode(failure(request_id, INTERNAL_ERROR, "Internal error"))
            write(said, back, **place, did=exchange.did)
        elif isinstance(outcome, asyncio.CancelledError) and not (
            (edge, request_id) in self._cancelled or _tells_itself(exchange)
        ):
            write(_cancelled(message, outcome), direction, **place, did=exchange.did)
        self._cancelled.discard((edge, request_id))
        self._under_way.discard((edge, request_id))
        self._alone.pop(edge, None)
        return outcome

    def _told(self, exchange: Exchange, note: Notification) -> After:
        place = self._place(exchange)
        if exchange.direction is Direction.SERVER_TO_CLIENT:
            note = _for_client(note, _call_of(exchange))
        if exchange.did is None:
            exchange.did = []
        did = exchange.did

        def after(outcome: Outcome) -> Outcome:
            stopped = isinstance(outcome, BaseException)
            if not stopped:
                self._passed(exchange, note)
                stopped = any(done.startswith(_STOPPED) for done in did)
            self.tape.write(
                encode(note),
                exchange.direction,
                **place,
                transport=self._transport(exchange),
                did=did,
                stopped=stopped,
            )
            return outcome

        return after

    def _passed(self, exchange: Exchange, note: Notification) -> None:
        """Who cancels is on the tape as such, and the end of what is cancelled needs no entry."""
        if note.method == "notifications/cancelled" and isinstance(note.params, Raw):
            named = _request_id((members_of(note.params) or {}).get("requestId"))
            if named is not None and len(self._cancelled) < _MOST_CANCELLED:
                self._cancelled.add((id(exchange.edge), named))

    def _place(self, exchange: Exchange) -> "dict[str, Any]":
        """Whose conversation it belongs to, and to what there."""
        edge = exchange.edge
        if exchange.direction is Direction.CLIENT_TO_SERVER:
            server = None if self._server_of is None else self._server_of(exchange)
            return {"session": self._label(edge), "server": server}
        link, call = _link_of(exchange), _call_of(exchange)
        if link is None:  # in a server or a client, where the connection is the client's own
            return {"session": self._label(edge), "related": exchange.related}
        place: dict[str, Any] = {"server": link.name}
        if call is not None:
            place["session"] = self._label(call.exchange.edge)
            place["related"] = call.exchange.request_id
        elif len(link.fronts) == 1:
            place["session"] = self._label(next(iter(link.fronts)).peer)
        return place

    def _label(self, edge: object) -> str | None:
        if not isinstance(edge, Peer):
            return self._alone.get(id(edge))
        label = self._labels.get(edge)
        if label is None:
            label = self._labels[edge] = f"s{next(self._sessions)}"
        return label

    def _transport(self, exchange: Exchange) -> Mapping[str, Any] | None:
        """How it came; of a connection that lasts, once."""
        context, edge = exchange.transport, exchange.edge
        if isinstance(edge, Peer):
            if self._written.get(edge) is context:
                return None
            self._written[edge] = context
        return _plain(context)


class _OneWay(TwoHalves):
    """Records what goes one way, and what is answered to it."""

    def __init__(self, recorder: Recorder, direction: Direction) -> None:
        self._recorder = recorder
        self._direction = direction

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.direction is self._direction:
            return self._recorder.before(exchange)
        return exchange, None


def _tells_itself(exchange: Exchange) -> bool:
    """Whether it is a request of ours, so that what we say to cancel it comes by here as well."""
    edge = exchange.edge
    return isinstance(edge, InterceptedPeer) and exchange.direction is edge.ours


def _link_of(exchange: Exchange) -> Link | None:
    carrier = getattr(exchange.edge, "carrier", None)
    return carrier if isinstance(carrier, Link) else None


def _call_of(exchange: Exchange) -> Call | None:
    """The client's request during which a server says something, as far as that is known."""
    link = _link_of(exchange)
    if link is None:
        return None
    message = exchange.message
    if isinstance(message, Notification):
        named = _subscription(message)
        if named is not None and named in link.calls:
            return link.calls[named]
    if exchange.related is not None:
        return link.calls.get(exchange.related)
    calls = list(link.calls.values())
    return calls[0] if len(calls) == 1 and not link.tells_apart else None


def _subscription(note: Notification) -> RequestId | None:
    """The subscription that it is news of."""
    params = note.params
    if not isinstance(params, Raw) or SUBSCRIPTION_KEY.encode() not in bytes(params):
        return None
    meta = members_of((members_of(params) or {}).get("_meta")) or {}
    return _request_id(meta.get(SUBSCRIPTION_KEY))


def _request_id(raw: Raw | None) -> RequestId | None:
    try:
        return None if raw is None else cast(RequestId, msgspec.json.decode(raw, type=int | str))
    except msgspec.DecodeError:
        return None


def _for_client(note: Notification, call: Call | None) -> Notification:
    """Under the names that the client gave, which are not those that the server was given."""
    if call is None:
        return note
    token = call.exchange.progress_token
    if note.method == "notifications/progress" and token is not None:
        return retokened(note, token)
    return retagged(note, call.exchange.request_id)


def _refusal(request_id: RequestId, error: RpcError) -> Failure:
    if error.raw is not None:
        return Failure(request_id, error.code, error.message, Raw(error.raw))
    return failure(request_id, error.code, error.message, error.data)


def _cancelled(request: Request, cause: asyncio.CancelledError) -> bytes:
    """Somebody has gone without a word; on the tape, and to the other side, it is one."""
    params: dict[str, Any] = {"requestId": request.id}
    if cause.args and isinstance(cause.args[0], str):
        params["reason"] = cause.args[0]
    return encode(Notification("notifications/cancelled", Raw(msgspec.json.encode(params))))


def _plain(context: TransportContext) -> dict[str, Any]:
    known = {name: getattr(context, name) for name in context.__struct_fields__}
    facts = {name: held for name, held in known.items() if held is not None}
    facts.pop("connected", None)
    facts["type"] = facts.pop("transport_type")
    for name in ("headers", "cookies"):
        if name in facts:
            facts[name] = {
                key: held
                for key, held in cast(Mapping[str, str], facts[name]).items()
                if key.lower() != "mcp-session-id"
            }
    return facts
