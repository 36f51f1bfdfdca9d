"""Requests and notifications of a server, and the clients that receive them.

A message goes to the client that it concerns, and only if that client is known for certain. Over
Streamable HTTP the stream identifies the call. On other transports, the message is delivered only
if there is exactly one candidate.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...client.connection.listen_request import ACKNOWLEDGED
from ...config.upstream_settings import UpstreamSettings
from ...errors import FairleadError, LocalProtocolError, RpcError
from ...interceptor import Answer, Exchange, Handler, Interceptor, chain, extra_members_hook
from ...peer import Peer
from ...peer.notification_pipeline import NotificationPipeline
from ...protocol.caller import ANONYMOUS, SUBSCRIPTION_KEY, Caller, Principal, read_params_head
from ...protocol.conversation.conversation import Agreement
from ...protocol.conversation.request_rules import check_server_request
from ...protocol.envelope import Direction
from ...protocol.methods import METHOD_NAMES
from ...protocol.own_errors import own_error
from ...protocol.public_reason import public_reason
from ...protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from ...wire import Notification, Request, RequestId
from ...wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from .notification_outbox import PeerOutbox
from .relayed_call import LEVELS, CallSession, RelayedCall, with_subscription_id

if TYPE_CHECKING:
    from ...server.features.change_broadcaster import ChangeBroadcaster

__all__ = ["UPDATED", "EventReceiver", "ServerEvents"]

UPDATED: Final = "notifications/resources/updated"

log = logging.getLogger("fairlead.gateway")


class EventReceiver(CallSession, Hashable, Protocol):
    """The members of a client session that its connection to the server uses."""

    principal: Principal
    peer: Peer
    level: str | None
    number: int  # different for every session

    @property
    def uris(self) -> Collection[str]:
        """The resources that the session is subscribed to."""

    def tell(self, note: Notification) -> None:
        """Send a notification of the server to the client."""

    async def ask(
        self, exchange: Exchange, server: PeerOutbox, timeout: float, reply_to: RequestId | None
    ) -> Answer:
        """Forward a request of the server to the client and return its result."""

    def detach(self) -> None:
        """Drop the reference to the connection, which was lost or reserved for another session."""


class ServerEvents:
    """Routes requests and notifications of a server to calls and sessions of clients."""

    peer: Peer
    outbox: PeerOutbox
    agreement: Agreement | None
    now: Callable[[], float]

    def __init__(
        self,
        name: str,
        settings: Callable[[], UpstreamSettings],
        interceptors: Sequence[Interceptor],
    ) -> None:
        """`settings` returns the current settings. `interceptors` handle the requests and
        notifications of the server.
        """
        self.name = name
        self.settings = settings
        self.sessions: dict[EventReceiver, None] = {}  # sessions of clients that use the connection
        self.calls: dict[RequestId, RelayedCall] = {}
        self.uris: dict[str, set[object]] = {}  # subscribers by URI of the resource
        # list and resource changes, for stateless clients of a handshake-era server
        self.changes: ChangeBroadcaster | None = None
        # called with each such change, for listen streams that use another connection
        self.followers: list[Callable[[str, str | None], None]] = []
        # called with notifications of a stateless server that belong to no call
        self.on_news: Callable[[Notification], None] = lambda note: None
        self.listeners: list[Callable[[Notification], None]] = []  # called with every notification
        # Called when the server requests roots: with the session, or None for a call without a
        # session, and True if during a call.
        self.on_roots: Callable[[EventReceiver | None, bool], None] | None = None
        self.roots_answered = asyncio.Event()
        # True once the server has sent a request outside the stream of its call.
        self._aside = False
        self.interceptors = interceptors
        self._ask_through = chain(interceptors, self._asked)
        self._extra_members = extra_members_hook(interceptors)
        self.passage = NotificationPipeline(interceptors, Direction.SERVER_TO_CLIENT)

    @property
    def stateless(self) -> bool:
        return self.agreement is not None and self.agreement.revision.stateless

    @property
    def correlates_calls(self) -> bool:
        """True if each call has its own stream, which also carries the server's requests."""
        return not self._aside and self.peer.channel.correlates_calls

    def receive_extra_members(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """Forward unknown members of a server's response to the client that sent the request."""
        call = self.calls.get(request_id)
        if call is not None:
            if self._extra_members is not None:
                members = self._extra_members(call.exchange, members)
            call.exchange.edge.add_extra_members(call.exchange.request_id, members)

    # Requests of the server

    @contextmanager
    def goes_on(self, call: RelayedCall) -> "Iterator[None]":
        """Keep a call registered while its client answers the input requests in the result."""
        sent_as = call.sent_as
        assert sent_as is not None
        self.calls[sent_as] = call
        try:
            yield None
        finally:
            self.calls.pop(sent_as, None)

    async def asked_inside(self, call: RelayedCall, question: Request, ask: Handler) -> Answer:
        """Pass an input request through the interceptors; `ask` forwards it to the client.

        Raises:
            RpcError: The client or an interceptor refused the request.
        """
        exchange = Exchange(
            question,
            self._on_behalf_of(call.exchange.caller.principal, stateless=True),
            read_params_head(question.params),
            Direction.SERVER_TO_CLIENT,
            self.peer.channel.context,
            self.peer,
            related=call.sent_as,
        )
        return await chain(self.interceptors, ask)(exchange)

    def request_withdrawn(self, note: Notification, cancel: Callable[[str], object]) -> None:
        """Cancel a request that the server has withdrawn."""
        related = self.peer.related_request_id
        self.passage.cancel(note, self.peer, cancel, related, self._sender(related))

    async def request_received(self, exchange: Exchange) -> Answer:
        """Handle a request of the server.

        Interceptors see the principal of the client it addresses.
        """
        if self.interceptors:
            exchange.caller = self._sender(exchange.related)
        return await self._ask_through(exchange)

    def _sender(self, related: RequestId | None) -> Caller:
        """Return the server as a caller, with the principal of the client it addresses."""
        call = self._call_of(related)
        if call is not None:
            return self._on_behalf_of(call.exchange.caller.principal)
        session = self._only_session()
        return self._on_behalf_of(ANONYMOUS if session is None else session.principal)

    def _on_behalf_of(self, principal: Principal, *, stateless: bool = False) -> Caller:
        known = self.peer.conversation.peer
        if known is None:
            return Caller(NEWEST if stateless else NEWEST_HANDSHAKE, stateless, principal)
        if known.principal == principal:
            return known
        return msgspec.structs.replace(known, principal=principal)

    async def _asked(self, exchange: Exchange) -> Answer:
        if exchange.method == "ping":
            return b"{}"
        # Notifications that the server sent before the request are delivered first.
        if self.passage.busy:
            await self.passage.passed()
        if exchange.related is None:
            self._aside = True
        call = self._call_of(exchange.related)
        if call is not None and call.parking is not None:
            if exchange.method == "roots/list" and self.on_roots is not None:
                self.on_roots(None, True)
            return await call.parking.ask(exchange)
        session = self._only_session() if call is None else cast("EventReceiver", call.session)
        if session is None:
            raise own_error(METHOD_NOT_FOUND, f"{exchange.method}: no client can receive it now")
        if exchange.method == "roots/list" and self.on_roots is not None:
            self.on_roots(session, call is not None)
        client = session.peer.conversation.peer
        try:
            if client is not None and not self._certainly_for(session, call, exchange.related):
                check_server_request(exchange.method, client)
            asked_in = None if call is None else call.exchange.request_id
            return await session.ask(exchange, self.outbox, self.settings().input_timeout, asked_in)
        except RpcError:
            raise
        except LocalProtocolError as exc:
            raise own_error(exc.code, str(exc)) from exc
        except FairleadError as exc:
            why = f"{exchange.method} was not answered: the client {public_reason(exc)}"
            raise own_error(INTERNAL_ERROR, why) from exc
        finally:
            if exchange.method == "roots/list":
                self.roots_answered.set()

    def _call_of(self, related: RequestId | None) -> RelayedCall | None:
        """Return the call that a message belongs to, if that is certain."""
        if related is not None:
            return self.calls.get(related)
        if self.correlates_calls:
            return None
        return _only_call([call for call in self.calls.values() if call.may_be_asked])

    def _certainly_for(
        self, session: EventReceiver, call: RelayedCall | None, related: RequestId | None
    ) -> bool:
        """Return True if a request of the server certainly belongs to this client.

        A client that did not declare the capability receives only such requests, because calls of
        clients without capabilities do not take turns.
        """
        if call is not None and related is not None:
            return True  # the stream identifies the call
        alone = all(one.session is session for one in self.calls.values())
        reachable = call is not None or session.peer.channel.has_stream
        return alone and reachable and self._only_session() is session

    def _only_session(self) -> EventReceiver | None:
        return next(iter(self.sessions)) if len(self.sessions) == 1 else None

    # Notifications of the server

    def notification_received(self, note: Notification) -> None:
        """Route a notification of the server."""
        for listener in self.listeners:
            listener(note)
        is_ours = note.method == ACKNOWLEDGED and _subscription(note) not in self.calls
        if is_ours:  # interceptors do not see notifications for the relay's own subscription
            self.on_news(note)
            return
        related = self.peer.related_request_id
        self.intercept(note, lambda passed: self._passed(passed, related), related)

    def intercept(
        self,
        note: Notification,
        deliver: Callable[[Notification], object],
        related: RequestId | None,
    ) -> None:
        """Pass a notification of the server through the interceptors."""
        sender = self._sender(related) if self.interceptors else None
        self.passage.put(note, self.peer, deliver, related, sender)

    def _passed(self, note: Notification, related: RequestId | None) -> None:
        if note.method == "notifications/message":
            self._logged(note, related)
            return
        if self.stateless:
            self._told_stateless(note, related)
            return
        if note.method == UPDATED:
            self._updated(note)
            return
        call = None if related is None else self.calls.get(related)
        # A list change concerns all clients, even if the server sends it on the stream of one call.
        for_all = call is None or note.method.endswith("/list_changed")
        # A stateless client receives standard notifications through its subscriptions only.
        mine = call is not None and (
            not call.exchange.caller.stateless or note.method not in METHOD_NAMES
        )
        if call is not None and mine and (call.session is None or call.session.takes(note)):
            call.tell(note)
        if for_all:
            others = [s for s in self.sessions if call is None or s is not call.session]
            self._spread(note, others)
            if note.method.endswith("/list_changed"):
                self._tell_listeners(note.method)

    def _updated(self, note: Notification) -> None:
        uri = _read(note, _Updated).uri
        subscribed = self.uris.get(uri, set()) if uri is not None else set()
        self._spread(note, [s for s in self.sessions if s in subscribed or len(self.sessions) == 1])
        if uri is not None:
            self._tell_listeners(UPDATED, uri)

    def _tell_listeners(self, method: str, uri: str | None = None) -> None:
        """Notify the listen streams of stateless clients of a change."""
        if self.changes is not None:
            self.changes.changed(method, uri)
        for changed in tuple(self.followers):
            changed(method, uri)

    def _told_stateless(self, note: Notification, related: RequestId | None) -> None:
        named = _subscription(note)
        if note.method == "notifications/cancelled":
            named = _read(note, _Cancelled).request_id
        call = self.calls.get(named) if named is not None else None
        if call is None:
            call = None if related is None else self.calls.get(related)
        if call is None and named is None and note.method not in METHOD_NAMES:
            call = _only_call(self.calls.values())  # a notification of an unknown extension
        if call is None:
            self.on_news(note)
            return
        if note.method == "notifications/cancelled":
            # The server ended a subscription. The client's request gets a final result.
            self.peer.settle(cast(RequestId, named), Raw(b'{"resultType":"complete"}'))
            return
        call.tell(with_subscription_id(note, call.exchange.request_id))

    def _logged(self, note: Notification, related: RequestId | None) -> None:
        level = _read(note, _Logged).level
        rank = LEVELS.index(level) if level in LEVELS else len(LEVELS)
        call = None if related is None else self.calls.get(related)
        if call is None and related is None:
            call = _only_call(self.calls.values())
        if call is not None:
            if call.wants_log(rank):
                call.tell(note)
            return
        session = self._only_session()
        if session is not None and session.wants_log(rank) and not self.stateless:
            session.tell(note)
        # Other log messages are dropped, because they may concern a request of another client.

    def _spread(self, note: Notification, sessions: Iterable[EventReceiver]) -> None:
        for session in list(sessions):
            session.tell(note)


def _only_call(calls: Iterable[RelayedCall]) -> RelayedCall | None:
    """Return the call if there is only one; several calls of one session count as one."""
    first: RelayedCall | None = None
    for call in calls:
        if first is None:
            first = call
        elif call.session is None or call.session is not first.session:
            return None
    return first


class _Logged(Struct):
    level: str = ""


class _Cancelled(Struct, rename="camel"):
    request_id: RequestId | None = None


class _Updated(Struct):
    uri: str | None = None


class _Tag(Struct):
    id: RequestId | None = msgspec.field(default=None, name=SUBSCRIPTION_KEY)


class _Tagged(Struct):
    meta: _Tag | None = msgspec.field(default=None, name="_meta")


S = TypeVar("S", bound=Struct)


def _read(note: Notification, kind: type[S]) -> S:
    """Decode the params of a notification. Params that cannot be read count as empty."""
    params = b"{}" if isinstance(note.params, UnsetType) else note.params
    try:
        return msgspec.json.decode(params, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return kind()


def _subscription(note: Notification) -> RequestId | None:
    meta = _read(note, _Tagged).meta
    return None if meta is None else meta.id
