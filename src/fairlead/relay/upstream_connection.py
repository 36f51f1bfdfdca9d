"""One connection to a server, and everybody whose messages travel on it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..client.connection.listen_request import ACKNOWLEDGED
from ..errors import ChannelClosed, FairleadError, LocalProtocolError, RequestTimeout, RpcError
from ..interceptor import (
    Answer,
    Exchange,
    Handler,
    Interceptor,
    chain,
    extra_members_hook,
    malformed_frame_hook,
)
from ..peer import Peer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.caller import SUBSCRIPTION_KEY, Caller, read_params_head
from ..protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from ..protocol.envelope import Direction, SessionState
from ..protocol.identity.principal import ANONYMOUS, Principal
from ..protocol.methods import exists
from ..protocol.outgoing_params import Identity
from ..protocol.own_errors import own_error
from ..protocol.public_reason import public_reason
from ..protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from ..transport.channel import Channel
from ..wire import Notification, Request, RequestId
from ..wire.error_codes import HEADER_MISMATCH, INTERNAL_ERROR, METHOD_NOT_FOUND
from .notification_outbox import PeerOutbox
from .relayed_call import LEVELS, RelayedCall
from .relayed_params import RelayedParams, with_subscription_id
from .turn_lock import Turn, Turns
from .upstream_param_headers import Marks, sends_param_headers

if TYPE_CHECKING:
    from ..server.features.change_broadcaster import ChangeBroadcaster
    from .client_session import Front

__all__ = ["Link"]

UPDATED: Final = "notifications/resources/updated"

log = logging.getLogger("fairlead.gateway")


class Link:
    """A connection to a server of either era.

    What the server says of its own accord goes to whom it is meant for, where that is known; it is
    never guessed. Over Streamable HTTP the stream tells; elsewhere there must be only one.
    """

    def __init__(
        self,
        name: str,
        channel: Channel | Peer,
        *,
        identity: Identity | None = None,
        id_format: str = "integer",
        input_timeout: float = 600.0,
        directed: bool = True,
        interceptors: Sequence[Interceptor] = (),
        on_close: Callable[["Link", ChannelClosed], None] | None = None,
    ) -> None:
        """A `Peer` is a connection that is open, and somebody else's to close.

        Without `directed`, also such notifications pass that only a client may send.
        """
        self.name = name
        self.agreement: Agreement | None = None
        self.introduction: Raw | None = None  # the answer to `initialize`, as it came
        self.fronts: dict[Front, None] = {}  # sessions of clients that use it
        self.calls: dict[RequestId, RelayedCall] = {}
        self.turns = Turns()  # of those who may be asked back
        self.level: str | None = None  # handshake era: what the server was asked to log
        self.uris: dict[str, set[object]] = {}  # who wants to hear of a resource
        self.changes: ChangeBroadcaster | None = None  # for stateless clients of a handshake server
        self.on_news: Callable[[Notification], None] | None = None
        self.marks: Marks | None = None  # arguments that travel in headers; None: not our business
        self.listeners = 0  # stateless clients that hear of changes through it
        self.on_unanswered: Callable[[], None] | None = None  # told when a call was given up
        self.on_roots: Callable[[Front], None] | None = None  # told whose roots were asked for
        self.roots_answered = asyncio.Event()
        self.now = asyncio.get_running_loop().time
        self.used = self.now()
        self.principal: Principal = ANONYMOUS  # that it was opened for
        self.ending = False  # by us
        # Many servers ask on the stream that belongs to no call, though they could do better.
        self._aside = False
        self._input_timeout = input_timeout
        self._on_close = on_close
        self.interceptors = interceptors
        self._ask_through = chain(interceptors, self._asked)
        self._beside = extra_members_hook(interceptors)
        self._background: set[asyncio.Task[None]] = set()
        self.passage = NotificationPipeline(interceptors, Direction.SERVER_TO_CLIENT)
        self.borrowed = isinstance(channel, Peer)
        if isinstance(channel, Peer):
            self.peer = channel
            self.agreement = channel.conversation.agreement
            self.outbox = PeerOutbox(channel)
            channel.carrier = self
            channel.on_malformed = malformed_frame_hook(interceptors) or channel.on_malformed
            channel.on_extra_members = self._members_came
            return
        conversation = Conversation(
            ConversationRole.CLIENT,
            identity,
            id_format="string" if id_format == "string" else "integer",
            directed=directed,
            principal=ANONYMOUS,  # of the server; its messages get that of the client they are for
        )
        self.peer = Peer(
            channel,
            conversation,
            handler=self._question,
            on_notification=self.told,
            on_cancelled=self._withdrawn,
            on_close=self._closed,
            input_timeout=input_timeout,
            max_in_flight=1024,
        )
        self.outbox = PeerOutbox(self.peer)
        self.peer.carrier = self
        self.peer.on_malformed = malformed_frame_hook(interceptors)
        self.peer.on_extra_members = self._members_came
        self.peer.start()

    # What is known

    @property
    def stateless(self) -> bool:
        return self.agreement is not None and self.agreement.revision.stateless

    @property
    def alive(self) -> bool:
        return self.peer.connected

    @property
    def correlates_calls(self) -> bool:
        """Whether each call has a stream of its own, on which its questions come."""
        return not self._aside and self.peer.channel.correlates_calls

    @property
    def server_info(self) -> bytes | None:
        return None if self.agreement is None else self.agreement.server_info

    # Passing on

    async def pass_on(
        self,
        call: RelayedCall,
        passing: RelayedParams,
        *,
        timeout: float,
        on_sent: Callable[[RequestId], None] | None = None,
        turn: "Turn | None" = None,
    ) -> Raw:
        """Ask the server what a client asked us, and wait for the result's bytes.

        A `turn` is released as soon as the server is done, however slowly the client reads.

        Raises:
            RpcError: the server said no.
            TransportError: it could not be asked, or went away.
        """
        marks, method = self.marks, call.exchange.message.method
        if marks is None or method not in ("tools/list", "tools/call"):
            return await self._pass_on(call, passing, timeout, on_sent, turn)
        try:
            result = await self._pass_on(call, passing, timeout, on_sent, turn)
        except RpcError as exc:
            if exc.code != HEADER_MISMATCH or sends_param_headers(call.exchange):
                raise
            try:
                await marks.ask(self.peer, timeout)
            except FairleadError:
                raise exc from None
            return await self._pass_on(call, passing, timeout, on_sent, turn)
        if method == "tools/list":
            marks.learn(result)
        return result

    async def _pass_on(
        self,
        call: RelayedCall,
        passing: RelayedParams,
        timeout: float,
        on_sent: Callable[[RequestId], None] | None,
        turn: "Turn | None",
    ) -> Raw:
        exchange = call.exchange
        sent_as: RequestId | None = None
        wanted = True

        def progressed(note: Notification) -> None:
            self._enter(note, call.progressed, sent_as)

        def sent(request_id: RequestId) -> None:
            nonlocal sent_as
            sent_as = call.sent_as = request_id
            self.calls[request_id] = call
            if on_sent is not None:
                on_sent(request_id)

        try:
            return await self.peer.forward(
                exchange.message.method,
                passing.fill,
                extra=exchange.message.extra,
                timeout=timeout,
                max_total=timeout * 24,
                overhear=progressed if passing.tracked else None,
                on_sent=sent,
            )
        except asyncio.CancelledError:
            wanted = False
            if exchange.message.method != "subscriptions/listen":  # those end so
                self.unanswered()
            raise
        except RequestTimeout:
            self.unanswered()
            raise
        finally:
            self.used = self.now()
            try:
                if wanted and self.passage.busy:
                    await self.passage.passed()  # whose call it is, is asked there
            finally:
                if sent_as is not None:
                    self.calls.pop(sent_as, None)
                if turn is not None:
                    turn.release()
            if wanted:
                await call.flushed()

    def _members_came(self, request_id: RequestId, members: dict[str, Raw]) -> None:
        """The server's answer has more to it than a result; whoever asked gets that as well."""
        call = self.calls.get(request_id)
        if call is not None:
            if self._beside is not None:
                members = self._beside(call.exchange, members)
            call.exchange.edge.add_extra_members(call.exchange.request_id, members)

    def unanswered(self) -> None:
        """A call was given up: whoever looks after the server may see whether it is still there."""
        if self.on_unanswered is not None:
            self.on_unanswered()

    def activate(self, note: Notification | None = None) -> None:
        """Tell the server that the handshake is done, if nobody has; in the client's words."""
        conversation = self.peer.conversation
        if not self.stateless and conversation.state is SessionState.INITIALIZING:
            made = conversation.notification("notifications/initialized")
            self.outbox.put(made if note is None else note)

    def background(self, work: Coroutine[Any, Any, object]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @property
    def idle(self) -> bool:
        """Whether nobody uses it now."""
        return not (self.fronts or self.calls or self.listeners or not self.turns.free)

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way or expected on it, though sessions may use it again."""
        return not (self.calls or self.listeners or self.uris or not self.turns.free)

    @property
    def abandoned(self) -> bool:
        """Whether its sessions neither use it nor could receive anything from it."""
        return self.quiet and not any(front.peer.channel.has_stream for front in self.fronts)

    async def close(self) -> None:
        self.ending = True
        self.passage.close()
        self.outbox.close()
        for task in list(self._background):
            task.cancel()
        if not self.borrowed:
            await self.peer.close()

    # What the server asks

    @contextmanager
    def goes_on(self, call: RelayedCall) -> "Iterator[None]":
        """The server has answered with questions, so the request is not over for its client."""
        sent_as = call.sent_as
        assert sent_as is not None
        self.calls[sent_as] = call
        try:
            yield None
        finally:
            self.calls.pop(sent_as, None)

    async def asked_inside(self, call: RelayedCall, question: Request, ask: Handler) -> Answer:
        """A question that came inside a result passes like one that came by itself; `ask` brings
        it to the client.

        Raises:
            RpcError: the client said no, or whoever stands in between.
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

    def _withdrawn(self, note: Notification, cancel: Callable[[str], object]) -> None:
        """The server does not wait for the answer to a question of its own any more."""
        related = self.peer.related_request_id
        self.passage.cancel(note, self.peer, cancel, related, self._sender(related))

    async def _question(self, exchange: Exchange) -> Answer:
        """Handle a request of the server: for interceptors its principal is that of the client."""
        if self.interceptors:
            exchange.caller = self._sender(exchange.related)
        return await self._ask_through(exchange)

    def _sender(self, related: RequestId | None) -> Caller:
        """The server, on behalf of the client that its message is for, where that is certain."""
        call = self._call_of(related)
        if call is not None:
            return self._on_behalf_of(call.exchange.caller.principal)
        front = self._only_front()
        return self._on_behalf_of(ANONYMOUS if front is None else front.principal)

    def _on_behalf_of(self, principal: Principal, *, stateless: bool = False) -> Caller:
        known = self.peer.conversation.peer
        if known is None:
            return Caller(NEWEST if stateless else NEWEST_HANDSHAKE, stateless, principal)
        if known.principal == principal:
            return known
        return msgspec.structs.replace(known, principal=principal)

    def _enter(
        self,
        note: Notification,
        deliver: Callable[[Notification], object],
        related: RequestId | None,
    ) -> None:
        """Let a notification of the server through the interceptors."""
        sender = self._sender(related) if self.interceptors else None
        self.passage.put(note, self.peer, deliver, related, sender)

    async def _asked(self, exchange: Exchange) -> Answer:
        if exchange.method == "ping":
            return b"{}"
        await self.passage.passed()
        if exchange.related is None:
            self._aside = True
        call = self._call_of(exchange.related)
        if call is not None and call.parking is not None:
            return await call.parking.ask(exchange)
        front = self._only_front() if call is None else call.front
        if front is None:
            raise own_error(METHOD_NOT_FOUND, f"{exchange.method}: no client can be asked now")
        if exchange.method == "roots/list" and self.on_roots is not None:
            self.on_roots(front)
        try:
            asked_in = None if call is None else call.exchange.request_id
            return await front.ask(exchange, self.outbox, asked_in)
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
        """The call that something belongs to, if that is certain."""
        if related is not None:
            return self.calls.get(related)
        if self.correlates_calls:
            return None
        asking = [call for call in self.calls.values() if call.may_be_asked]
        return asking[0] if len(asking) == 1 else None

    def _only_front(self) -> "Front | None":
        return next(iter(self.fronts)) if len(self.fronts) == 1 else None

    # What the server tells

    def told(self, note: Notification) -> None:
        """The server says something of its own accord."""
        is_ours = note.method == ACKNOWLEDGED and _subscription(note) not in self.calls
        if is_ours and self.on_news is not None:
            self.on_news(note)  # nobody may keep from us what we asked for ourselves
            return
        related = self.peer.related_request_id
        self._enter(note, lambda passed: self._passed(passed, related), related)

    def _passed(self, note: Notification, related: RequestId | None) -> None:
        if note.method == "notifications/message":
            self._logged(note, related)
            return
        if self.stateless:
            self._told_stateless(note, related)
            return
        if note.method == UPDATED:
            uri = _uri(note)
            wanted = self.uris.get(uri, set()) if uri is not None else set()
            fronts = [f for f in self.fronts if f in wanted or len(self.fronts) == 1]
            self._spread(note, fronts)
            if self.changes is not None and uri is not None:
                self.changes.changed(UPDATED, uri)
            return
        call = None if related is None else self.calls.get(related)
        for_all = call is None or note.method.endswith("/list_changed")
        mine = call is not None and (not call.exchange.caller.stateless or not exists(note.method))
        if call is not None and mine and (call.front is None or call.front.takes(note)):
            call.tell(note)
        if for_all:
            self._spread(note, [f for f in self.fronts if call is None or f is not call.front])
            if self.changes is not None and note.method.endswith("/list_changed"):
                self.changes.changed(note.method)

    def _told_stateless(self, note: Notification, related: RequestId | None) -> None:
        named = _subscription(note)
        if note.method == "notifications/cancelled":
            named = _read(note, _Cancelled).request_id
        call = self.calls.get(named) if named is not None else None
        if call is None:
            call = None if related is None else self.calls.get(related)
        if call is None and named is None and not exists(note.method):
            call = self._only_call()  # something that only those two know
        if call is None:
            if self.on_news is not None:
                self.on_news(note)
            return
        if note.method == "notifications/cancelled":
            # The server ends a subscription: the same as its last answer, for whoever listens.
            self.peer.settle(cast(RequestId, named), Raw(b'{"resultType":"complete"}'))
            return
        call.tell(with_subscription_id(note, call.exchange.request_id))

    def _logged(self, note: Notification, related: RequestId | None) -> None:
        level = _read(note, _Logged).level
        rank = LEVELS.index(level) if level in LEVELS else len(LEVELS)
        call = None if related is None else self.calls.get(related)
        if call is None and related is None:
            call = self._only_call()
        if call is not None:
            if call.wants_log(rank):
                call.tell(note)
            return
        front = self._only_front()
        if front is not None and front.wants_log(rank) and not self.stateless:
            front.tell(note, self)
        # Else it may belong to a request of somebody, and nobody can say of whom.

    def _only_call(self) -> RelayedCall | None:
        """The call under way, if there is one; several of one client are as good as one."""
        calls = list(self.calls.values())
        if not calls:
            return None
        first = calls[0]
        alike = all(c.front is first.front and c.front is not None for c in calls[1:])
        return first if alike else None

    def _spread(self, note: Notification, fronts: "Iterable[Front]") -> None:
        for front in list(fronts):
            front.tell(note, self)

    def _closed(self, end: ChannelClosed) -> None:
        self.passage.close()
        self.outbox.close()
        if self._on_close is not None:
            self._on_close(self, end)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)


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
    """What a notification says; what cannot be read is not there."""
    params = b"{}" if isinstance(note.params, UnsetType) else note.params
    try:
        return msgspec.json.decode(params, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return kind()


def _subscription(note: Notification) -> RequestId | None:
    meta = _read(note, _Tagged).meta
    return None if meta is None else meta.id


def _uri(note: Notification) -> str | None:
    return _read(note, _Updated).uri
