"""Interceptor that records all messages in both directions as the client sees them."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, cast
from weakref import finalize

import msgspec
from msgspec import Raw, Struct

from ...errors import RpcError
from ...interceptor import After, Exchange, Interceptor, Outcome, SyncInterceptor
from ...peer import Peer
from ...peer.intercepted_peer import InterceptedPeer
from ...protocol.caller import ANONYMOUS, SUBSCRIPTION_KEY, Principal, principal_name
from ...protocol.envelope import Direction, TransportContext
from ...protocol.identity.token_principal import TokenPrincipal
from ...protocol.json_edit import members_of
from ...upstream.connection.relayed_call import (
    RelayedCall,
    with_progress_token,
    with_subscription_id,
)
from ...upstream.connection.server_events import EventReceiver
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...wire import (
    Failure,
    Notification,
    Request,
    RequestId,
    encode,
    encode_request,
    encode_success,
    failure,
)
from ...wire.error_codes import INTERNAL_ERROR
from ...wire.json import read_json
from . import TapeWriter

__all__ = ["Recorder"]

_UP: Final = Direction.CLIENT_TO_SERVER
_DOWN: Final = Direction.SERVER_TO_CLIENT

# `id()` of the edge, which stays valid while the request is pending; direction; request id
_Key: TypeAlias = tuple[int, Direction, RequestId]
_Place: TypeAlias = tuple[
    str | None, RequestId | None, str | None
]  # labels of the session, the request and the server


class Recorder(SyncInterceptor):
    """Interceptor that records messages on a tape. Put it first, so that it sees all messages from
    clients.

    If later interceptors change messages from a server, the tape contains only notes about the
    changes. Use `around` to record these messages as clients see them.

    Sessions are labelled s1, s2, ... in the order of their first message, because their real ids
    are secret. Each stateless request is a separate session (r1, r2, ...), because ids are unique
    only within a session.
    """

    def __init__(
        self, tape: TapeWriter, *, server_of: Callable[[Exchange], str | None] | None = None
    ) -> None:
        """Set the tape.

        `server_of` returns the server that a client's message is sent to, if it is known.
        """
        self.tape = tape
        self._server_of = server_of
        # sessions by the peer's `id()`, until the peer is garbage-collected
        self._known: dict[int, _Session] = {}
        self._sessions, self._requests = itertools.count(1), itertools.count(1)
        self._under_way: dict[_Key, _Asked] = {}
        self._alone: dict[int, str] = {}  # labels of pending stateless requests, by their edge

    def around(self, interceptors: Sequence[Interceptor]) -> list[Interceptor]:
        """Return the interceptors with a recorder on each side of them, so that both directions are
        recorded as clients see them.

        Messages that the interceptors withhold from clients are then not on the tape.
        """
        return [_OneWay(self, _UP), *interceptors, _OneWay(self, _DOWN)]

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        message = exchange.message
        if isinstance(message, Notification):
            return exchange, self._told(exchange, message)
        if exchange.did is None:
            exchange.did = []  # Copies of the exchange made by inner interceptors share this list.
        key = id(exchange.edge), exchange.direction, message.id
        other = self._under_way.get(key)
        if other is not None and other.did is exchange.did:
            # An inner interceptor sent this request; the client's own request is on the tape.
            return exchange, None
        edge = exchange.edge
        alone = not isinstance(edge, Peer) and id(edge) not in self._alone
        if alone:
            self._alone[id(edge)] = f"r{next(self._requests)}"
        asked = self._under_way[key] = _Asked(key, exchange, message, exchange.did, alone)
        try:
            asked.place = self._place(exchange)
            transport = self._transport(exchange)
            if type(message.id) is int and type(message.params) is Raw and message.extra is None:
                said = encode_request(message.id, message.method, message.params)
            else:
                said = encode(message)
            self.tape.write(said, exchange.direction, *asked.place, transport)
        except BaseException:
            self._end(asked)
            raise
        return exchange, partial(self._answered, asked)

    def _end(self, asked: "_Asked") -> None:
        # The client may have reused the id after a cancellation.
        if self._under_way.get(asked.key) is asked:
            del self._under_way[asked.key]
        if asked.alone:
            self._alone.pop(asked.key[0], None)

    def _answered(self, asked: "_Asked", outcome: Outcome) -> Outcome:
        try:
            self._write_outcome(asked, outcome)
        finally:
            self._end(asked)
        return outcome

    def _write_outcome(self, asked: "_Asked", outcome: Outcome) -> None:
        exchange, message = asked.exchange, asked.message
        clean = False
        if not isinstance(outcome, BaseException):
            result = b"{}" if outcome is None else bytes(outcome)
            said = encode_success(message.id, result)
            # With a harmless result, only a string id could contain a secret.
            clean = type(message.id) is int and self.tape.is_harmless(result)
        elif isinstance(outcome, RpcError):
            said = encode(_refusal(message.id, outcome))
        elif isinstance(outcome, Exception):
            exchange.note(f"failed: {outcome!r}")
            said = encode(failure(message.id, INTERNAL_ERROR, "Internal error"))
        else:
            known = asked.withdrawn or _tells_itself(exchange)
            if isinstance(outcome, asyncio.CancelledError) and not known:
                said = _cancelled(message, outcome)
                self.tape.write(said, exchange.direction, *asked.place, None, exchange.did)
            return
        back = _DOWN if exchange.direction is _UP else _UP
        stopped = asked.withdrawn  # a client that cancelled the request gets no response
        self.tape.write(said, back, *asked.place, None, exchange.did, stopped, clean=clean)

    def _told(self, exchange: Exchange, note: Notification) -> After:
        place = self._place(exchange)
        if exchange.direction is _DOWN:
            note = _for_client(note, _call_of(exchange))
        if exchange.did is None:
            exchange.did = []
        did, delivery = exchange.did, exchange.watch_delivery()
        withdrawn, for_nobody = self._withdraw(exchange, note), _ends(exchange)

        def after(outcome: Outcome) -> Outcome:
            stopped = isinstance(outcome, BaseException) or delivery.dropped or for_nobody
            if stopped and withdrawn is not None:
                withdrawn.withdrawn = False
            transport = self._transport(exchange)
            self.tape.write(encode(note), exchange.direction, *place, transport, did, stopped)
            return outcome

        return after

    def _withdraw(self, exchange: Exchange, note: Notification) -> "_Asked | None":
        """Mark the request that a notification cancels, so that its end is not recorded again.

        The request is marked before the notification is forwarded, because it may end while that
        happens.
        """
        if note.method != "notifications/cancelled" or not isinstance(note.params, Raw):
            return None
        named = _request_id((members_of(note.params) or {}).get("requestId"))
        if named is None:
            return None
        asked = self._under_way.get((id(exchange.edge), exchange.direction, named))
        if asked is not None:
            asked.withdrawn = True
        return asked

    def _place(self, exchange: Exchange) -> "_Place":
        """Return a message's session, related request and server."""
        edge = exchange.edge
        if exchange.direction is _UP:
            server = None if self._server_of is None else self._server_of(exchange)
            return self._label(edge), None, server
        connection, call = _connection_of(exchange), _call_of(exchange)
        if connection is None:  # the client is connected directly to the server
            return self._label(edge), exchange.related, None
        if call is not None and _is_heard_by(call, connection, exchange):
            return self._label(call.exchange.edge), call.exchange.request_id, connection.name
        sessions = _fronts(connection, exchange)
        return self._label(sessions[0].peer) if len(sessions) == 1 else None, None, connection.name

    def _label(self, edge: object) -> str | None:
        session = self._known.get(id(edge)) or self._session(edge)
        return self._alone.get(id(edge)) if session is None else session.label

    def _session(self, edge: object) -> "_Session | None":
        """Return the session of a long-lived connection, else None."""
        known = self._known.get(id(edge))
        if known is None and isinstance(edge, Peer):
            known = self._known[id(edge)] = _Session(f"s{next(self._sessions)}")
            # The entry is removed with the peer, because Python may reuse the peer's `id()`.
            finalize(edge, self._known.pop, id(edge), None).atexit = False
        return known

    def _transport(self, exchange: Exchange) -> Mapping[str, Any] | None:
        """Return a message's transport; None if the tape already has it for the connection."""
        context, session = exchange.transport, self._session(exchange.edge)
        principal = exchange.caller.principal
        if session is not None:
            # The caller is the server, but the tape names the client.
            if exchange.direction is _DOWN:
                principal = session.principal
            if session.written is context and session.principal == principal:
                return None
            session.written, session.principal = context, principal
        return _plain(context, principal)


class _Session(Struct):
    """A long-lived connection: its label, and the transport that was recorded last."""

    label: str
    written: TransportContext | None = None
    principal: Principal = ANONYMOUS  # principal that was last recorded


class _Asked(Struct, eq=False):
    """A pending request."""

    key: _Key
    exchange: Exchange
    message: Request
    did: list[str] | None
    alone: bool  # a stateless request
    place: _Place = (None, None, None)
    withdrawn: bool = False  # True once the request's cancellation is being forwarded


class _OneWay(SyncInterceptor):
    """Interceptor that records the messages in one direction, and their responses."""

    def __init__(self, recorder: Recorder, direction: Direction) -> None:
        self._recorder = recorder
        self._direction = direction

    def before(self, exchange: Exchange) -> tuple[Exchange, After | None]:
        if exchange.direction is self._direction:
            return self._recorder.before(exchange)
        return exchange, None


def _tells_itself(exchange: Exchange) -> bool:
    """Return True if this process sent the request;
    such requests are cancelled with a notification.
    """
    edge = exchange.edge
    return isinstance(edge, InterceptedPeer) and exchange.direction is edge.ours


def _connection_of(exchange: Exchange) -> UpstreamConnection | None:
    carrier = exchange.edge.carrier
    return carrier if isinstance(carrier, UpstreamConnection) else None


def _call_of(exchange: Exchange) -> RelayedCall | None:
    """Return the client's request during which a server sent a message; None if unknown."""
    connection = _connection_of(exchange)
    if connection is None:
        return None
    message = exchange.message
    if isinstance(message, Notification):
        named = _subscription(message)
        if named is not None:
            return connection.calls.get(named)  # None for a subscription that this process opened
    if exchange.related is not None:
        return connection.calls.get(exchange.related)
    calls = list(connection.calls.values())
    # Without other information, a single pending request is the only candidate.
    return calls[0] if len(calls) == 1 and not connection.correlates_calls else None


def _is_change(exchange: Exchange) -> bool:
    """Return True for a change notification, which sessions with their own lists rewrite."""
    is_note = isinstance(exchange.message, Notification)
    return is_note and exchange.method.endswith(("/list_changed", "/updated"))


def _is_heard_by(call: RelayedCall, connection: UpstreamConnection, exchange: Exchange) -> bool:
    """Return True if the message is sent to the client whose request is pending."""
    if not _is_change(exchange) or connection.stateless:
        return True
    if call.exchange.caller.stateless:
        return False
    return call.session is None or call.session.takes(cast(Notification, exchange.message))


def _fronts(connection: UpstreamConnection, exchange: Exchange) -> list[EventReceiver]:
    """Return the sessions that may receive a message without a related request."""
    message = exchange.message
    return [
        f for f in connection.sessions if not isinstance(message, Notification) or f.takes(message)
    ]


def _ends(exchange: Exchange) -> bool:
    """Return True for a change notification that no client receives as the server sent it."""
    connection = _connection_of(exchange)
    if connection is None or not _is_change(exchange) or _fronts(connection, exchange):
        return False
    call = _call_of(exchange)
    return call is None or not _is_heard_by(call, connection, exchange)


def _subscription(note: Notification) -> RequestId | None:
    """Return the id of the subscription to which a notification belongs."""
    params = note.params
    if not isinstance(params, Raw) or SUBSCRIPTION_KEY.encode() not in bytes(params):
        return None
    meta = members_of((members_of(params) or {}).get("_meta")) or {}
    return _request_id(meta.get(SUBSCRIPTION_KEY))


def _request_id(raw: Raw | None) -> RequestId | None:
    return read_json(raw, cast(Any, int | str), None)


def _for_client(note: Notification, call: RelayedCall | None) -> Notification:
    """Replace the upstream's progress token or subscription id with the client's."""
    if call is None:
        return note
    token = call.exchange.progress_token
    if note.method == "notifications/progress" and token is not None:
        return with_progress_token(note, token)
    return with_subscription_id(note, call.exchange.request_id)


def _refusal(request_id: RequestId, error: RpcError) -> Failure:
    if error.raw is not None:
        return Failure(request_id, error.code, error.message, Raw(error.raw))
    return failure(request_id, error.code, error.message, error.data)


def _cancelled(request: Request, cause: asyncio.CancelledError) -> bytes:
    """Encode the cancellation that is sent upstream for a client that disconnected."""
    params: dict[str, Any] = {"requestId": request.id}
    if cause.args and isinstance(cause.args[0], str):
        params["reason"] = cause.args[0]
    return encode(Notification("notifications/cancelled", Raw(msgspec.json.encode(params))))


def _plain(context: TransportContext, principal: Principal) -> dict[str, Any]:
    known = {name: getattr(context, name) for name in context.__struct_fields__}
    facts = {name: held for name, held in known.items() if held is not None}
    facts.pop("connected", None)
    facts["type"] = facts.pop("transport_type")
    if (name := principal_name(principal)) is not None:
        facts["principal"] = name
    if isinstance(principal, TokenPrincipal):
        facts["oauth"] = principal.facts()
    for name in ("headers", "cookies"):
        if name in facts:
            facts[name] = {
                key: held
                for key, held in cast(Mapping[str, str], facts[name]).items()
                if key.lower() != "mcp-session-id"
            }
    return facts
