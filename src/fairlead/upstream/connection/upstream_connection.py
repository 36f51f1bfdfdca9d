"""One connection to a server, the calls and sessions of clients that use it, and their turns."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw

from ...config.upstream_settings import UpstreamSettings
from ...errors import ChannelClosed, FairleadError, RequestTimeout, RpcError
from ...interceptor import Interceptor, malformed_frame_hook
from ...peer import Peer
from ...protocol.caller import ANONYMOUS, Caller, Principal
from ...protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from ...protocol.envelope import SessionState
from ...protocol.outgoing_params import Identity
from ...transport import timeouts
from ...transport.background_tasks import BackgroundTasks
from ...transport.channel import Channel
from ...wire import Notification, RequestId
from ...wire.error_codes import HEADER_MISMATCH
from .notification_outbox import PeerOutbox
from .relayed_call import WORK, RelayedCall, RelayedParams
from .server_events import EventReceiver, ServerEvents
from .upstream_param_headers import ServerParamHeaders, sends_param_headers

__all__ = [
    "Turn",
    "UpstreamConnection",
    "begin_subscription",
    "declared_by",
    "end_subscription",
    "first_turn",
    "remove_subscriber",
]


class Turn:
    """The right to use a connection exclusively until `release`, which may be called twice."""

    __slots__ = ("_over", "_turns")

    def __init__(self, turns: "TurnLock") -> None:
        self._turns = turns
        self._over = False

    def release(self) -> None:
        if not self._over:
            self._over = True
            self._turns._released()


class TurnLock:
    """A lock with one owner at a time, granted in order of arrival.

    An owner may hold several turns at once, as long as no other owner waits.
    """

    def __init__(self) -> None:
        self._owner: object | None = None
        self._held = 0
        self._waiting: deque[tuple[object, asyncio.Future[Turn]]] = deque()

    @property
    def free(self) -> bool:
        return not self._held and not self._waiting

    def try_take(self, owner: object, *, urgent: bool = False) -> Turn | None:
        """Return a turn if the lock is free. If `urgent`, the current owner need not queue."""
        if self.free or (self._held and owner is self._owner and (urgent or not self._waiting)):
            return self._given(owner)
        return None

    async def take(self, owner: object, seconds: float, *, urgent: bool = False) -> Turn:
        """Wait for a turn at most `seconds`; 0 means no limit.

        Raises:
            TimeoutError: No turn was free in time.
        """
        turn = self.try_take(owner, urgent=urgent)
        if turn is not None:
            return turn
        coming: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        entry = (owner, coming)
        self._waiting.append(entry)
        try:
            async with timeouts.timeout(seconds or None):
                return await coming
        except BaseException:
            if coming.done() and not coming.cancelled():
                # The turn was granted in the same loop iteration as the timeout or cancellation.
                coming.result().release()
            elif entry in self._waiting:
                self._waiting.remove(entry)
            raise

    def _given(self, owner: object) -> Turn:
        self._owner = owner
        self._held += 1
        return Turn(self)

    def _released(self) -> None:
        self._held -= 1
        if self._held:
            return
        self._owner = None
        while self._waiting:
            owner, coming = self._waiting.popleft()
            if not coming.done():
                coming.set_result(self._given(owner))
                return


async def first_turn(locks: Sequence[TurnLock], owner: object, seconds: float) -> tuple[int, Turn]:
    """Wait until one of the locks is free; return its index and the turn.

    Raises:
        TimeoutError: No turn was free in time.
    """
    for place, lock in enumerate(locks):
        turn = lock.try_take(owner)
        if turn is not None:
            return place, turn
    waiting = {asyncio.ensure_future(lock.take(owner, seconds)): n for n, lock in enumerate(locks)}
    chosen: Turn | None = None
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        task = next((one for one in waiting if one.done() and not one.exception()), None)
        if task is None:
            raise TimeoutError
        chosen = task.result()
        return waiting[task], chosen
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        # A lock may have granted a turn before the cancellation of its task took effect.
        for task in waiting:
            if not task.cancelled() and not task.exception() and task.result() is not chosen:
                task.result().release()


DRAIN_LIMIT = 10.0  # seconds for interceptors to handle the last notifications of a connection

log = logging.getLogger("fairlead.gateway")


class UpstreamConnection(ServerEvents):
    """A connection to a server of either era."""

    def __init__(
        self,
        name: str,
        channel: Channel | Peer,
        *,
        identity: Identity | None = None,
        id_format: Literal["integer", "string"] = "integer",
        settings: Callable[[], UpstreamSettings] = UpstreamSettings,
        interceptors: Sequence[Interceptor] = (),
        on_close: Callable[["UpstreamConnection", ChannelClosed], None] | None = None,
    ) -> None:
        """`channel` may be an open `Peer`, which is closed by its owner. `settings` returns the
        current settings.
        """
        super().__init__(name, settings, interceptors)
        self.agreement: Agreement | None = None
        self.introduction: Raw | None = None  # the result of `initialize`, byte for byte
        self.turns = TurnLock()  # for calls during which the server may send requests to the client
        self.level: str | None = None  # handshake era: the log level that was set at the server
        self.param_headers: ServerParamHeaders | None = None  # None: the relay sends no headers
        self.stream_count = 0  # listen streams of stateless clients
        self.preparing = 0  # requests of clients that are sent as soon as the log level is set
        # Called when a caller stops waiting, to let the owner check if the server responds.
        self.on_unanswered: Callable[[], None] = lambda: None
        self.on_idle: Callable[[], None] | None = None  # called once no client uses the connection
        self.now = asyncio.get_running_loop().time
        self.used = self.now()
        self.called = False  # True once a client has sent a request on this connection
        # principal of the client that the connection was opened for
        self.principal: Principal = ANONYMOUS
        self._activated = asyncio.Event()
        self.opened_for: Caller | None = None  # the client whose capabilities were declared
        self.variant: int | None = None  # variant of the lists, if they changed on this connection
        self.ending = False  # True if Fairlead closes the connection
        self._on_close = on_close
        self._background = BackgroundTasks()
        self.borrowed = isinstance(channel, Peer)
        if isinstance(channel, Peer):
            self.peer = channel
            self.agreement = channel.conversation.agreement
            channel.on_malformed = malformed_frame_hook(interceptors) or channel.on_malformed
        else:
            conversation = Conversation(
                ConversationRole.CLIENT,
                identity,
                id_format=id_format,
                directed=settings().strict,
                # a server has no principal; its messages get the principal of a client
                principal=ANONYMOUS,
            )
            self.peer = self._new_peer(channel, conversation)
        self.outbox = PeerOutbox(self.peer)
        self.peer.carrier = self
        self.peer.on_extra_members = self.receive_extra_members
        if not self.borrowed:
            self.peer.start()

    def _new_peer(self, channel: Channel, conversation: Conversation) -> Peer:
        peer = Peer(
            channel,
            conversation,
            handler=self.request_received,
            on_notification=self.notification_received,
            on_cancelled=self.request_withdrawn,
            on_close=self._closed,
            input_timeout=self.settings().input_timeout,
            max_in_flight=1024,
        )
        peer.on_malformed = malformed_frame_hook(self.interceptors)
        peer.state.peer_name = self.name
        return peer

    @property
    def alive(self) -> bool:
        return self.peer.state.open

    @property
    def server_info(self) -> bytes | None:
        return None if self.agreement is None else self.agreement.server_info

    # Forwarding

    async def pass_on(
        self,
        call: RelayedCall,
        passing: RelayedParams,
        *,
        timeout: float,
        on_sent: Callable[[RequestId], None] | None = None,
        turn: Turn | None = None,
    ) -> Raw:
        """Forward a request of a client, and return the bytes of the result.

        A `turn` is released as soon as the server has answered, even if the client reads slowly.

        Raises:
            RpcError: The server refused the request.
            TransportError: The request could not be sent, or the connection was lost.
        """
        headers, method = self.param_headers, call.exchange.message.method
        if headers is None or method not in ("tools/list", "tools/call"):
            return await self._pass_on(call, passing, timeout, on_sent, turn)
        try:
            result = await self._pass_on(call, passing, timeout, on_sent, turn)
        except RpcError as exc:
            if exc.code != HEADER_MISMATCH or sends_param_headers(call.exchange):
                raise
            # The server requires headers for an unknown tool: list the tools, then retry.
            try:
                await headers.ask(self.peer, timeout)
            except FairleadError:
                raise exc from None
            return await self._pass_on(call, passing, timeout, on_sent, turn)
        if method == "tools/list":
            headers.learn(result)
        return result

    async def _pass_on(
        self,
        call: RelayedCall,
        passing: RelayedParams,
        timeout: float,
        on_sent: Callable[[RequestId], None] | None,
        turn: Turn | None,
    ) -> Raw:
        exchange = call.exchange
        sent_as: RequestId | None = None
        wanted = True

        def progressed(note: Notification) -> None:
            self.intercept(note, call.progressed, sent_as)

        def sent(request_id: RequestId) -> None:
            nonlocal sent_as
            sent_as = call.sent_as = request_id
            self.calls[request_id] = call
            if on_sent is not None:
                on_sent(request_id)

        try:
            return await self.peer.outbound.forward(
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
            # a subscription normally ends by cancellation
            if exchange.message.method != "subscriptions/listen":
                self.on_unanswered()
            raise
        except RequestTimeout:
            self.on_unanswered()
            raise
        finally:
            self.used = self.now()
            self.called = self.called or exchange.message.method in WORK
            try:
                if wanted and self.passage.busy:
                    # the call stays registered until its queued notifications are sent
                    await self.passage.passed()
            finally:
                if sent_as is not None:
                    self.calls.pop(sent_as, None)
                if turn is not None:
                    turn.release()
                self.report_idle()
            if wanted:
                await call.flushed()

    def report_idle(self) -> None:
        """Call `on_idle` if no client uses the connection."""
        if self.on_idle is not None and self.idle:
            report, self.on_idle = self.on_idle, None
            report()

    def activate(self, note: Notification | None = None) -> None:
        """Send `initialized` once; `note` is the client's own notification, if it sent one."""
        conversation = self.peer.conversation
        if not self.stateless and conversation.state is SessionState.INITIALIZING:
            made = conversation.notification("notifications/initialized")
            self.outbox.put(made if note is None else note)
        self._activated.set()

    async def wait_until_active(self) -> None:
        """Wait until the client has completed the handshake of this connection."""
        if self.peer.conversation.state is not SessionState.ACTIVE:
            await self._activated.wait()

    def background(self, work: Coroutine[Any, Any, object]) -> None:
        """Send a request in the background and ignore its result."""
        self._background.start(_quietly(work))

    # Use

    @property
    def idle(self) -> bool:
        """True if no client uses the connection."""
        in_use = self.sessions or self.calls or self.stream_count or self.preparing
        return not (in_use or not self.turns.free)

    def belongs_to(self, session: EventReceiver) -> bool:
        """Return True if the connection has the handshake era and only this session uses it."""
        return not self.borrowed and not self.stateless and self._only_session() is session

    @property
    def quiet(self) -> bool:
        """True if no call, subscription or turn is active. There may be sessions."""
        return not (self.calls or self.stream_count or self.uris or not self.turns.free)

    @property
    def abandoned(self) -> bool:
        """True if the connection is quiet and no session on it can receive notifications."""
        return self.quiet and not any(one.peer.channel.has_stream for one in self.sessions)

    async def close(self) -> None:
        """Close the connection, unless its peer belongs to another owner."""
        self.ending = True
        self.passage.close()
        self.outbox.close()
        for task in list(self._background):
            task.cancel()
        if not self.borrowed:
            await self.peer.close()

    def _closed(self, end: ChannelClosed) -> None:
        # Notifications that arrived before the loss may belong to calls that are already answered,
        # so they still pass through the interceptors.
        if self.passage.busy and not self.ending:
            self.background(self._drain())
        else:
            self.passage.close()
        self.outbox.close()
        if self._on_close is not None:
            self._on_close(self, end)

    async def _drain(self) -> None:
        """Deliver the queued notifications of a lost connection within `DRAIN_LIMIT`."""
        try:
            async with timeouts.timeout(DRAIN_LIMIT):
                await self.passage.passed()
        except TimeoutError:
            log.warning("%s: interceptors are too slow: notifications were dropped", self.name)
        finally:
            self.passage.close()


def declared_by(connection: UpstreamConnection) -> dict[str, Any]:
    """Return the capabilities that the server declared."""
    agreement = connection.agreement
    declared: dict[str, Any] = (
        {} if agreement is None else msgspec.json.decode(agreement.capabilities)
    )
    return declared


async def begin_subscription(connection: UpstreamConnection, uri: str, who: object) -> bool:
    """Add a subscriber of a resource, and subscribe at the server if it is the first one.

    Return False if the server refuses.
    """
    watchers = connection.uris.setdefault(uri, set())
    first = not watchers
    # Added before the request, so that concurrent streams do not send a second request.
    watchers.add(who)
    if first:
        try:
            await connection.peer.request("resources/subscribe", {"uri": uri})
        except RpcError as exc:
            log.debug("%s: the subscription to %s was refused: %s", connection.name, uri, exc)
            remove_subscriber(connection, uri, who)
            return False
    return True


def remove_subscriber(connection: UpstreamConnection, uri: str, who: object) -> bool:
    """Remove a subscriber of a resource. Return True if it was the last subscriber."""
    watching = connection.uris.get(uri)
    if watching is None:
        return False
    watching.discard(who)
    if not watching:
        del connection.uris[uri]
    return not watching


def end_subscription(connection: UpstreamConnection, uri: str, who: object) -> None:
    """Remove a subscriber of a resource, and unsubscribe at the server after the last one."""
    if remove_subscriber(connection, uri, who) and connection.alive:
        connection.background(connection.peer.request("resources/unsubscribe", {"uri": uri}))


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)
