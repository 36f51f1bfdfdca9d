"""Clients on one side, one server on the other: any era, any transport, nothing lost on the way."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Raw

from ..client.mcp_transport.inprocess import Attachable
from ..client.server_entry import MCPServerEntry
from ..errors import ChannelClosed, FairleadError, LocalProtocolError, RpcError, TransportError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain, malformed_frame_hook
from ..peer import Peer
from ..peer.notification_pipeline import NotificationPipeline
from ..protocol.caller import Caller
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.downgrade.downgrade_error import DowngradeError
from ..protocol.envelope import Direction, TransportContext
from ..protocol.headers import ParamHeader
from ..protocol.identity.client_key import connection_key
from ..protocol.identity.principal import ANONYMOUS, Principal
from ..protocol.methods import exists
from ..protocol.outgoing_params import Identity
from ..protocol.own_errors import own_error, unreachable_error
from ..server.features.subscription_quota import SubscriptionQuota
from ..server.http_app.stand_in_server import StandInServer
from ..transport.channel import Channel
from ..upstream.start_limiter import StartLimiter
from ..wire import Notification
from ..wire.error_codes import METHOD_NOT_FOUND
from .bridge.handshake_to_stateless import HandshakeToStateless
from .bridge.parked_calls import ParkedCalls
from .bridge.stateless_to_handshake import StatelessToHandshake
from .client_session import Front
from .fastpath.taskless_forwarder import TasklessForwarder
from .relay_settings import RelaySettings
from .same_era import SameEraForwarder, stop_watching
from .server_target import Way, target_for
from .upstream_connection import Link
from .upstream_pool import Upstream
from .upstream_session_restore import UpstreamSessionRestorer

__all__ = ["Relay"]

log = logging.getLogger("fairlead.gateway")


class Relay(StandInServer):
    """One server, for clients that could not talk to it otherwise, or should not directly.

    relay = Relay({"command": "uvx", "args": ["mcp-server-time"]})
    await relay.run_http(port=8080)

    Without interceptors every value passes byte for byte. Ids, progress tokens and the metadata of
    one hop are the only things that change, and what the era of the other side makes necessary.
    """

    def __init__(
        self,
        target: "Way | MCPServerEntry | dict[str, Any] | Attachable",
        name: str = "server",
        *,
        interceptors: Sequence[Interceptor] = (),
        settings: RelaySettings | None = None,
        parked: ParkedCalls | None = None,
        quota: SubscriptionQuota | None = None,
        starts: StartLimiter | None = None,
        **options: Any,
    ) -> None:
        """`target` is an entry of a configuration file, a server object, or a way to one.

        Options are fields of `RelaySettings`.
        """
        self.settings = settings if settings is not None else RelaySettings(**options)
        way = target if isinstance(target, Way) else target_for(target, name)
        self.name = way.name
        self.wait_until_known: Callable[[Exchange], Awaitable[None]] | None = None
        info = {"name": "fairlead", "version": "0"}
        self.upstream = Upstream(way, self.settings, info, starts)
        self.upstream.on_lost = self._lost
        self.handler: Handler = chain(interceptors, self._handle)
        self.upstream.interceptors = interceptors
        self._interceptors = interceptors
        self.on_malformed = malformed_frame_hook(interceptors)
        self._alone = NotificationPipeline(interceptors, Direction.CLIENT_TO_SERVER)
        self.parked = ParkedCalls(self.settings) if parked is None else parked  # it may be empty
        self._owns_parked = parked is None
        self.quota = quota or SubscriptionQuota()
        self._same_era = SameEraForwarder(self.settings, self.quota)
        self._sessions = UpstreamSessionRestorer(self.upstream, self._bridge)
        self._stateless = StatelessToHandshake(self.upstream, self.parked, self.quota)
        self._forwarder = TasklessForwarder(
            self.upstream,
            self._stateless,
            self.settings.call_timeout,
            interceptors,
            self._handle,
        )
        self.delegate_post = self._forwarder.delegate_post if self._forwarder.possible else None
        self._bridges: dict[Link, HandshakeToStateless] = {}
        self._fronts: dict[object, Front] = {}  # by the peer that it is
        self._ending: set[asyncio.Task[None]] = set()

    # Serving

    async def serve(self, channel: Channel) -> None:
        """Serve one client on a channel until it ends. Cancelling closes it."""
        peer = self.attach(channel, ANONYMOUS)
        try:
            await peer.wait_closed()
        finally:
            await peer.close()

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ..transport.stdio.own_stdio import open_stdio

        async with open_stdio() as channel:
            try:
                await self.serve(channel)
            finally:
                await self.close()

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        front = Front(principal, self.settings.input_timeout, self._interceptors)
        peer = Peer(
            channel,
            Conversation(
                ConversationRole.SERVER,
                Identity({"name": "fairlead", "version": "0"}),
                directed=self.settings.strict,
                principal=principal,
            ),
            handler=self.handler,
            on_notification=lambda note: front.passage.put(
                note, front.peer, lambda passed: self.told(front, passed)
            ),
            on_cancelled=lambda note, cancel: front.passage.cancel(note, front.peer, cancel),
            on_close=lambda _: self._left(front),
            on_eof=self.hang_up,  # or it would be listened for until nobody waits any longer
            input_timeout=self.settings.input_timeout,
            take=partial(self._forwarder.take, front) if self._forwarder.possible else None,
        )
        front.connect(peer)
        front.uris = self.quota.held(connection_key(principal, channel.context, peer))
        self._fronts[peer] = front
        peer.start()
        return peer

    async def close(self) -> None:
        """End all clients and all connections to the server."""
        self._alone.close()
        if self._owns_parked:
            self.parked.close()
        await asyncio.gather(*(front.peer.close() for front in list(self._fronts.values())))
        for bridge in list(self._bridges.values()):
            await bridge.close()
        await self.upstream.close()
        if self._ending:
            await asyncio.wait(self._ending, timeout=5.0)

    # What an HTTP endpoint asks of whoever it serves

    def tool_param_headers(self, tool: str, principal: Principal) -> tuple[ParamHeader, ...]:
        """Headers that repeat arguments are for us to check: many servers behind us never see them.

        Before a list of tools has passed, they are passed on as they came.
        """
        return self.upstream.marks.of(tool)

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """A notification of a stateless client over HTTP."""
        self._alone.put_stateless(note, caller, context, self._forward_stateless)

    def _forward_stateless(self, note: Notification) -> None:
        if note.method in _NAMING_A_REQUEST:
            return  # an id or token of the client; on the shared connection it is another client's
        link = next((one for one in self.upstream.links if one.stateless), None)
        if link is not None:
            link.outbox.put(note)

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens."""
        self.hang_up()
        for link in self.upstream.links:
            if link.changes is not None:
                await link.changes.end()

    def server_of(self, exchange: Exchange) -> str:
        """Return the server that a message is for or from: there is only one."""
        return self.name

    # Requests

    async def _handle(self, exchange: Exchange) -> Answer:
        front = self._fronts.get(exchange.edge)
        # What was told behind `initialize` is nothing that it could wait for.
        if front is not None and front.passage.busy and exchange.method != "initialize":
            await front.passage.passed()
        return await self.handle(exchange, front)

    async def handle(self, exchange: Exchange, front: Front | None) -> Answer:
        """Answer a request; `front` is the client's connection, if it has one that lasts.

        Raises:
            RpcError: to refuse, also if the server cannot be reached.
        """
        try:
            return await self.answer(exchange, front)
        except RpcError:
            raise
        except DowngradeError as exc:
            raise own_error(METHOD_NOT_FOUND, str(exc)) from None
        except LocalProtocolError as exc:
            raise own_error(exc.code, str(exc)) from None
        except FairleadError as exc:
            log.warning("%s: %s: %s", self.name, exchange.method, exc)
            raise unreachable_error(self.name, exc) from None

    async def answer(self, exchange: Exchange, front: Front | None) -> Answer:
        """The same for those who can do something else if the server cannot be reached.

        Raises:
            RpcError: the server said no.
            FairleadError: it could not be asked, or went away.
        """
        caller = exchange.caller
        if caller.stateless:
            for again in (True, False):
                link = await self.upstream.for_caller(caller)
                try:
                    if link.stateless:
                        return await self._same_era.forward_stateless(exchange, front, link)
                    return await self._stateless.answer(exchange, front, link)
                except TransportError as exc:
                    if exc.delivered or not again or link.alive:
                        raise
        if exchange.method == "initialize" and front is not None:
            return await self._initialize(exchange, front)
        for again in (True, False):
            if front is None:  # a message that stands alone
                link = await self.upstream.for_caller(caller)
            else:
                link = await self._sessions.connection_of(front, caller)
            try:
                if link.stateless:
                    return await self._bridge(link).answer(exchange, front)
                return await self._same_era.forward_in_session(exchange, front, link)
            except TransportError as exc:
                if exc.delivered or not again or link.alive:
                    raise
        raise AssertionError("unreachable")

    def hang_up(self, edge: object | None = None) -> None:
        """End what one client listens to, or all of them."""
        self._same_era.hang_up(edge)
        for link in self.upstream.links:
            if link.changes is not None:
                link.changes.stop(edge)

    def unwatch(self, front: Front, permits: Callable[[str], bool]) -> None:
        """A client may not hear of some resources any more."""
        link = front.link
        for uri in [uri for uri in front.uris if not permits(uri)]:
            front.uris.discard(uri)
            if link is not None and not stop_watching(uri, front, link) and link.alive:
                if link.stateless:
                    link.background(self._bridge(link).follow())
                else:
                    link.background(link.peer.request("resources/unsubscribe", {"uri": uri}))

    async def _initialize(self, exchange: Exchange, front: Front) -> Answer:
        params = exchange.message.params
        introduction = params.copy() if isinstance(params, Raw) else Raw(b"{}")
        front.introduction = introduction
        async with front.opening:  # what is asked meanwhile waits for it
            link = await self.upstream.for_session(front, introduction, exchange.caller)
        if link.introduction is None:  # stateless, or opened for another purpose
            return self._bridge(link).initialized(exchange)
        return self._same_era.initialized(exchange, front, link)

    async def reconnect_session(self, front: Front, caller: Caller) -> Link:
        """Give a session a connection in place of one that was lost.

        Raises:
            RpcError: The client has not sent `initialize`, or the server refused it.
            FairleadError: The server cannot be reached.
        """
        return await self._sessions.reconnect(front, caller)

    def _bridge(self, link: Link) -> HandshakeToStateless:
        bridge = self._bridges.get(link)
        if bridge is None:
            settings = self.settings
            bridge = HandshakeToStateless(link, settings.call_timeout, settings.log_level)
            self._bridges[link] = bridge
        return bridge

    # What clients tell, and their end

    def told(self, front: Front, note: Notification) -> None:
        """A client says something of its own accord."""
        link = front.link
        if note.method == "notifications/initialized":
            if link is not None and link.stateless:
                self._start(self._opened(link))
            elif link is not None:
                link.activate(note)
        elif link is None:
            self._forward_stateless(note)
        elif not link.stateless or not exists(note.method):
            link.outbox.put(note)

    async def _opened(self, link: Link) -> None:
        try:
            await self._bridge(link).joined()
        except FairleadError as exc:
            log.warning("%s: %s", self.name, exc)

    def _left(self, front: Front) -> None:
        self._fronts.pop(front.peer, None)
        front.passage.close()
        front.outbox.close()
        self.leave(front)
        front.uris.clear()

    def leave(self, front: Front) -> None:
        """A client has gone: nobody need tell it anything any more."""
        link = front.link
        if link is None:
            return
        for uri in front.uris:
            watching = link.uris.get(uri)
            if watching is not None:
                watching.discard(front)
                if not watching:
                    del link.uris[uri]
                    if link.alive and link not in self.upstream.own:
                        link.background(link.peer.request("resources/unsubscribe", {"uri": uri}))
        front.uris.clear()
        self._start(self._leave(front, link))

    async def _leave(self, front: Front, link: Link) -> None:
        await self.upstream.leave(front)
        if link.stateless and link.alive:
            try:
                await self._bridge(link).follow()
            except FairleadError as exc:
                log.debug("%s: %s", self.name, exc)

    def _lost(self, link: Link, end: ChannelClosed) -> None:
        bridge = self._bridges.pop(link, None)
        if bridge is not None:
            self._start(bridge.close())
        if link.changes is not None:
            link.changes.stop()
        level = logging.DEBUG if link.ending else logging.WARNING
        log.log(level, "%s: the connection was lost: %s", self.name, end)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


_NAMING_A_REQUEST = frozenset({"notifications/cancelled", "notifications/progress"})
