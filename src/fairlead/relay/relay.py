"""A relay between any number of clients and one server, of either era and over any transport."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, Final

from msgspec import Raw

from ..client.mcp_transport.inprocess import Attachable
from ..client.server_entry import MCPServerEntry
from ..config.upstream_settings import UpstreamSettings
from ..errors import ChannelClosed, FairleadError, LocalProtocolError, RpcError, TransportError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain, malformed_frame_hook
from ..keyword_arguments import make_settings
from ..peer import Peer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.caller import ANONYMOUS, Caller, Principal
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.downgrade.downgrade_error import DowngradeError
from ..protocol.envelope import Direction, TransportContext
from ..protocol.headers import ParamHeader
from ..protocol.identity.client_key import connection_key
from ..protocol.methods import METHOD_NAMES
from ..protocol.outgoing_params import Identity
from ..protocol.own_errors import own_error, unreachable_error
from ..protocol.public_reason import owner_reason
from ..server.features.subscription_quota import SubscriptionQuota
from ..server.http_app.http_runnable import StandInServer
from ..transport.background_tasks import BackgroundTasks
from ..transport.channel import Channel
from ..upstream.connection.connection_pool import UpstreamPool
from ..upstream.connection.relayed_call import WORK
from ..upstream.connection.server_events import EventReceiver
from ..upstream.connection.upstream_connection import (
    UpstreamConnection,
    end_subscription,
    remove_subscriber,
)
from ..upstream.server_target import ServerTarget, target_for
from ..upstream.starts.start_limiter import StartLimiter
from ..upstream.upstream import Upstream
from ..wire import Notification
from ..wire.error_codes import METHOD_NOT_FOUND
from .bridge.handshake_to_stateless import HandshakeToStateless
from .bridge.parked_calls import ParkedCalls
from .bridge.stateless_to_handshake import StatelessToHandshake
from .client_session import ClientSession
from .fastpath.taskless_forwarder import TasklessForwarder
from .relay_settings import RelaySettings
from .round_state import RoundStates
from .same_era import SameEraForwarder, stop_watching
from .upstream_session_restore import UpstreamSessionRestorer

__all__ = ["LISTEN", "Rank", "Relay"]

LISTEN: Final = "subscriptions/listen"

RECONNECT_DELAY = 0.5  # seconds before a lost session that expects notifications is reconnected

log = logging.getLogger("fairlead.gateway")


class Rank(IntEnum):
    """Rank of a replica. Replicas with a lower rank are tried first."""

    CONNECTED = 0
    STARTING = 1
    UNAVAILABLE = 2
    CIRCUIT_OPEN = 3


_RANKS: Final = {
    "connected": Rank.CONNECTED,
    "connecting": Rank.STARTING,
    "reconnecting": Rank.STARTING,
}


class Relay(StandInServer):
    """A server that forwards all requests to one other server.

        relay = Relay({"command": "uvx", "args": ["mcp-server-time"]})
        await relay.run_http(port=8080)

    Clients and the server may use different eras and transports. Without interceptors, all values
    are forwarded byte for byte, except request ids, progress tokens, hop-by-hop metadata, and
    values that must be converted because the server has another era.
    """

    def __init__(
        self,
        target: "Upstream | ServerTarget | MCPServerEntry | dict[str, Any] | Attachable",
        name: str = "server",
        *,
        interceptors: Sequence[Interceptor] = (),
        settings: RelaySettings | None = None,
        parked: ParkedCalls | None = None,
        quota: SubscriptionQuota | None = None,
        starts: StartLimiter | None = None,
        **options: Any,
    ) -> None:
        """`target` is an entry of a configuration file, a server object, a `ServerTarget`, or an
        `Upstream`, which has its own settings and is closed by its owner. Relays can share
        `parked`, `quota` and `starts`. `options` are fields of `RelaySettings`.
        """
        settings = make_settings(RelaySettings, options, given=settings)
        self.upstream = target if isinstance(target, Upstream) else None
        if isinstance(target, Upstream):
            self.pool = target.pool
        else:
            where = target if isinstance(target, ServerTarget) else target_for(target, name)
            self.pool = UpstreamPool(where, settings, starts)
            self.pool.opener.interceptors = interceptors
        self.pool.on_lost = self._lost
        self.pool.on_release = self._release
        self.name = self.pool.name
        # Returns True if a client gets the same lists as the default connection. Set by a gateway.
        self.sees_default: Callable[[Caller], bool] = lambda caller: False
        self.wait_until_known: Callable[[Exchange], Awaitable[None]] | None = None
        self.handler: Handler = chain(interceptors, self._handle)
        self._interceptors = interceptors
        self.on_malformed = malformed_frame_hook(interceptors)
        self._alone = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        # Compared with None, because an empty `ParkedCalls` has the length 0 and would be false.
        self.parked = ParkedCalls(settings.max_parked) if parked is None else parked
        self._owns_parked = parked is None
        self._states = RoundStates()
        self.quota = quota or SubscriptionQuota()
        self._sessions = UpstreamSessionRestorer(self.pool, self._bridge)
        self._same_era = SameEraForwarder(self.pool, self.quota, self._sessions.move)
        self._stateless = StatelessToHandshake(self.pool, self.parked, self.quota)
        self._forwarder = TasklessForwarder(
            self.pool,
            self._stateless,
            interceptors,
            self._handle,
        )
        self.delegate_post = self._forwarder.delegate_post if self._forwarder.possible else None
        self._bridges: dict[UpstreamConnection, HandshakeToStateless] = {}
        self._sessions_by_peer: dict[object, ClientSession] = {}  # by the peer of the client
        self._ending = BackgroundTasks()
        self._orphans: list[ClientSession] = []  # sessions that lost the default connection

    @property
    def settings(self) -> UpstreamSettings:
        """The current settings for the server."""
        return self.pool.settings

    # Serving

    async def serve(self, channel: Channel) -> None:
        """Serve one client on a channel until the channel ends. Cancelling closes the channel."""
        peer = self.attach(channel, ANONYMOUS)
        try:
            await peer.wait_closed()
        finally:
            await peer.close()

    async def run_stdio(self) -> None:
        """Serve one client on stdin and stdout until they are closed."""
        from ..transport.stdio.own_stdio import open_stdio

        async with open_stdio() as channel:
            try:
                await self.serve(channel)
            finally:
                await self.close()

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background and return its peer, which can be closed."""
        session = ClientSession(principal, self._interceptors)
        peer = Peer(
            channel,
            Conversation(
                ConversationRole.SERVER,
                Identity({"name": "fairlead", "version": "0"}),
                directed=self.settings.strict,
                relays=True,
                principal=principal,
            ),
            handler=self.handler,
            on_notification=lambda note: session.passage.put(
                note, session.peer, lambda passed: self.told(session, passed)
            ),
            on_cancelled=lambda note, cancel: session.passage.cancel(note, session.peer, cancel),
            on_close=lambda _: self._left(session),
            # Open subscriptions would keep the connection open after the client closed its end.
            on_eof=self.hang_up,
            take=partial(self._forwarder.take, session) if self._forwarder.possible else None,
        )
        session.connect(peer)
        session.uris = self.quota.held(connection_key(principal, channel.context, peer))
        self._sessions_by_peer[peer] = session
        peer.start()
        return peer

    async def close(self) -> None:
        """Close the connections of all clients and all own connections to the server."""
        self._alone.close()
        if self._owns_parked:
            self.parked.close()
        await asyncio.gather(
            *(session.peer.close() for session in list(self._sessions_by_peer.values()))
        )
        for bridge in list(self._bridges.values()):
            await bridge.close()
        # The pool of an `Upstream` belongs to its owner.
        if self.upstream is None:
            await self.pool.close()
        # Limited in time, because ending a session may wait for a server that does not respond.
        if self._ending:
            await asyncio.wait(self._ending, timeout=5.0)

    @property
    def rank(self) -> Rank:
        """The rank by which one of several replicas is chosen for a call."""
        upstream = self.upstream
        if upstream is None:
            return Rank.CONNECTED
        if upstream.health is not None and upstream.health.breaker.state == "open":
            return Rank.CIRCUIT_OPEN
        return _RANKS.get(upstream.status, Rank.UNAVAILABLE)

    # Interface of an HTTP endpoint

    def tool_param_headers(self, tool: str, principal: Principal) -> tuple[ParamHeader, ...]:
        """Return the headers in which clients repeat arguments of a tool.

        The relay compares them with the arguments, because a server on stdio does not receive
        headers. The headers are unknown until a tool list has been forwarded.
        """
        return self.pool.opener.param_headers.of(tool)

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """Forward a notification that a stateless client sent over HTTP."""
        self._alone.put_stateless(note, caller, context, self._forward_stateless)

    def _forward_stateless(self, note: Notification) -> None:
        # The notification names a request by id or token.
        # On a shared connection, the id or token may belong to a request of another client.
        if note.method in _NAMING_A_REQUEST:
            return
        connection = next((one for one in self.pool.all_connections if one.stateless), None)
        if connection is not None:
            connection.outbox.put(note)

    async def end_streams(self) -> None:
        """End all subscriptions."""
        self.hang_up()
        for connection in self.pool.all_connections:
            if connection.changes is not None:
                await connection.changes.end()

    def server_of(self, exchange: Exchange) -> str:
        """Return the name of the server, which is the same for all messages."""
        return self.name

    # Requests

    async def _handle(self, exchange: Exchange) -> Answer:
        session = self._sessions_by_peer.get(exchange.edge)
        # Notifications that arrived earlier take effect first. No notification can precede
        # `initialize`.
        if session is not None and session.passage.busy and exchange.method != "initialize":
            await session.passage.passed()
        try:
            answer = partial(self.answer, session=session)
            return await self._states.bind(exchange, self.name, answer)
        except RpcError:
            raise
        except DowngradeError as exc:
            raise own_error(METHOD_NOT_FOUND, str(exc)) from None
        except LocalProtocolError as exc:
            raise own_error(exc.code, str(exc)) from None
        except FairleadError as exc:
            log.warning("%s: %s: %s", self.name, exchange.method, self._reason(exc))
            raise unreachable_error(self.name, exc) from None

    async def answer(self, exchange: Exchange, session: ClientSession | None) -> Answer:
        """Handle a request. Errors are raised, so that the caller can try another server.

        `session` is None for a request outside of any session.

        Raises:
            RpcError: The server refused the request.
            FairleadError: The server cannot be reached, or the connection was lost.
        """
        caller = exchange.caller
        if caller.stateless:
            for again in (True, False):
                # A property: awaiting a coroutine would take 3 % of a gateway's time for a call.
                connection = self.pool.stateless_connection
                if connection is None:
                    connection = await self._for_stateless(exchange)
                try:
                    if connection.stateless:
                        return await self._same_era.forward_stateless(exchange, session, connection)
                    return await self._stateless.answer(exchange, session, connection)
                except TransportError as exc:
                    # If the connection is still open, a second attempt would fail too.
                    if exc.delivered or not again or connection.alive:
                        raise
        if exchange.method == "initialize" and session is not None:
            return await self._initialize(exchange, session)
        for again in (True, False):
            if session is None:  # the request does not belong to a session
                connection = await self.pool.for_caller(caller)
            else:
                connection = await self._sessions.connection_of(session, caller)
            try:
                if connection.stateless:
                    return await self._bridge(connection).answer(exchange, session)
                return await self._same_era.forward_in_session(exchange, session, connection)
            except TransportError as exc:
                if exc.delivered or not again or connection.alive:
                    raise
        raise AssertionError("unreachable")

    async def _for_stateless(self, exchange: Exchange) -> UpstreamConnection:
        """Return a connection for a stateless request.

        Methods in `WORK` may open a connection. Other requests use the default connection if it
        returns the same result for this client.
        """
        caller, default, method = exchange.caller, self.pool.default, exchange.method
        if default is not None and method not in WORK:
            # The lists may have changed in the process of this client's calls.
            own = None if method == LISTEN else self.pool.handshake_connection(caller)
            if own is not None:
                return own
            if self.sees_default(caller):
                return default.current or await default.default_connection()
        return self.pool.reserved_connection(exchange) or await self.pool.for_caller(caller)

    def hang_up(self, edge: object | None = None) -> None:
        """End the subscriptions of one client, or of all clients."""
        self._same_era.hang_up(edge)
        for connection in self.pool.all_connections:
            if connection.changes is not None:
                connection.changes.stop(edge)

    def unwatch(self, session: ClientSession, permits: Callable[[str], bool]) -> None:
        """Cancel a session's subscriptions to resources that it may no longer see."""
        connection = session.connection
        for uri in [uri for uri in session.uris if not permits(uri)]:
            session.uris.discard(uri)
            if (
                connection is not None
                and not stop_watching(uri, session, connection)
                and connection.alive
            ):
                if connection.stateless:
                    connection.background(self._bridge(connection).follow())
                else:
                    connection.background(
                        connection.peer.request("resources/unsubscribe", {"uri": uri})
                    )

    async def _initialize(self, exchange: Exchange, session: ClientSession) -> Answer:
        params = exchange.message.params
        # A `Raw` keeps the buffer of its message alive. The session stores a copy.
        introduction = params.copy() if isinstance(params, Raw) else Raw(b"{}")
        session.introduction = introduction
        # Requests that arrive in the meantime wait for this lock.
        async with session.opening:
            connection = await self.pool.for_session(session, introduction, exchange.caller)
            session.connection = connection
        # Without a result of `initialize` from the server, the bridge builds one.
        if connection.introduction is None:
            return self._bridge(connection).initialized(exchange)
        return self._same_era.initialized(exchange, session, connection)

    def _bridge(self, connection: UpstreamConnection) -> HandshakeToStateless:
        bridge = self._bridges.get(connection)
        if bridge is None:
            bridge = self._bridges[connection] = HandshakeToStateless(connection)
        return bridge

    # Notifications and disconnects of clients

    def told(self, session: ClientSession, note: Notification) -> None:
        """Forward a notification of a client to the server."""
        connection = session.connection
        if note.method == "notifications/initialized":
            # A stateless server has no handshake, so the notification is not forwarded.
            if connection is not None and connection.stateless:
                self._ending.start(self._opened(connection))
            elif connection is not None:
                connection.activate(note)
        elif connection is None:
            self._forward_stateless(note)
        elif note.method in _NAMING_A_REQUEST:
            # The notification names a string id. If the connection serves only this session and its
            # ids are numbers, the id cannot belong to a request of the relay or of another client.
            if connection.belongs_to(session) and connection.peer.conversation.numbers:
                connection.outbox.put(note)
        # A stateless server may support notifications of extensions, but not of the handshake era.
        elif not connection.stateless or note.method not in METHOD_NAMES:
            connection.outbox.put(note)

    async def _opened(self, connection: UpstreamConnection) -> None:
        try:
            await self._bridge(connection).joined()
        except FairleadError as exc:
            log.warning("%s: %s", self.name, exc)

    def _left(self, session: ClientSession) -> None:
        self._sessions_by_peer.pop(session.peer, None)
        session.passage.close()
        session.outbox.close()
        self.leave(session)
        session.uris.clear()

    def leave(self, session: ClientSession) -> None:
        """End the session and the subscriptions of a client that has disconnected."""
        if session.connection is not None:
            self._remove(session, session.connection)
        session.uris.clear()

    def _release(self, session: EventReceiver, connection: UpstreamConnection) -> None:
        """Remove a session from its connection; its next request gets a connection again."""
        self._remove(session, connection)
        if isinstance(session, ClientSession):
            session.lost()

    def _remove(self, session: EventReceiver, connection: UpstreamConnection) -> None:
        # A connection in `own` serves only this session and is closed with it.
        end = remove_subscriber if connection in self.pool.own else end_subscription
        for uri in session.uris:
            end(connection, uri, session)
        session.detach()
        self._ending.start(self._leave(session, connection))

    async def _leave(self, session: EventReceiver, connection: UpstreamConnection) -> None:
        await self.pool.leave(session, connection)
        if connection.stateless and connection.alive:
            try:
                await self._bridge(connection).follow()
            except FairleadError as exc:
                log.debug("%s: %s", self.name, exc)

    def _lost(
        self, connection: UpstreamConnection, end: ChannelClosed, sessions: list[EventReceiver]
    ) -> None:
        bridge = self._bridges.pop(connection, None)
        if bridge is not None:
            self._ending.start(bridge.close())
        if connection.changes is not None:
            connection.changes.stop()
        for session in sessions:
            # The sessions of a connection that was closed on purpose need not be reconnected.
            if not isinstance(session, ClientSession) or connection.ending:
                continue
            session.lost()
            if connection.borrowed:
                self._orphans += [session] if session.listens else []
            elif session.uris or self._listens_now(session):
                self._ending.start(self._reconnect_later(session))
        level = logging.DEBUG if connection.ending else logging.WARNING
        log.log(level, "%s: the connection was lost: %s", self.name, self._reason(end))

    def _reason(self, error: FairleadError) -> object:
        """Return the text of an error, without stderr lines that the user has already seen."""
        return owner_reason(error) if self.pool.opener.target.shows_stderr else error

    def _listens_now(self, session: ClientSession) -> bool:
        """Return True if a session expects notifications, so that it must be reconnected before its
        next request.
        """
        return self.upstream is not None and session.listens and session.peer.channel.has_stream

    async def _reconnect_later(self, session: ClientSession) -> None:
        """Reconnect a session that expects notifications, without waiting for its next request."""
        await asyncio.sleep(RECONNECT_DELAY)
        await self._readopt(session)

    async def readopt_sessions(self) -> None:
        """Reconnect sessions that lost the default connection and receive notifications."""
        orphans, self._orphans = self._orphans, []
        for session in orphans:
            await self._readopt(session)

    async def _readopt(self, session: ClientSession) -> None:
        caller = session.peer.conversation.peer
        if caller is None or session.introduction is None or session.connection is not None:
            return
        if not session.peer.connected:
            return
        try:
            await self._sessions.reconnect(session, caller)
        except FairleadError as exc:
            log.debug("%s: %s", self.name, exc)


_NAMING_A_REQUEST = frozenset({"notifications/cancelled", "notifications/progress"})
