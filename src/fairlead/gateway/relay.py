"""Clients on one side, one server on the other: any era, any transport, nothing lost on the way."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from ..client.entries import MCPServerEntry
from ..client.inprocess import Attaches
from ..errors import ChannelClosed, FairleadError, LocalProtocolError, RpcError, TransportError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain
from ..peer import Peer
from ..protocol.caller import Caller
from ..protocol.conversation import Conversation, Role
from ..protocol.downgrade import Impossible, downgrade_result
from ..protocol.headers import ParamHeader
from ..protocol.outgoing import Identity
from ..protocol.revisions import Revision
from ..protocol.rewriting import encoded, members_of
from ..transport.base import Channel
from ..transport.http.settings import HttpSettings
from ..wire import Notification
from ..wire.codes import INVALID_PARAMS, METHOD_NOT_FOUND
from .bridge.errors import ours, unreachable
from .bridge.handshake_client import HandshakeClients
from .bridge.parking import Parked
from .bridge.stateless_client import StatelessClients
from .call import ASKING, LEVELS, Call
from .front import Front
from .link import Link
from .params import Passing, params_of
from .settings import RelaySettings
from .upstream import Upstream, asks_back
from .way import Way, way_to

if TYPE_CHECKING:
    import ssl

    from ..server.http import HttpApp

__all__ = ["Relay"]

log = logging.getLogger("fairlead.gateway")

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Relay:
    """One server, for clients that could not talk to it otherwise, or should not directly.

    relay = Relay({"command": "uvx", "args": ["mcp-server-time"]})
    await relay.run_http(port=8080)

    Without interceptors every value passes byte for byte. Ids, progress tokens and the metadata of
    one hop are the only things that change, and what the era of the other side makes necessary.
    """

    def __init__(
        self,
        target: "Way | MCPServerEntry | dict[str, Any] | Attaches",
        name: str = "server",
        *,
        interceptors: Sequence[Interceptor] = (),
        settings: RelaySettings | None = None,
        parked: Parked | None = None,
        **options: Any,
    ) -> None:
        """`target` is an entry of a configuration file, a server object, or a way to one.

        Options are fields of `RelaySettings`.
        """
        self.settings = settings if settings is not None else RelaySettings(**options)
        way = target if isinstance(target, Way) else way_to(target, name)
        self.name = way.name
        self.upstream = Upstream(way, self.settings, {"name": "fairlead", "version": "0"})
        self.upstream.on_lost = self._lost
        self.handler: Handler = chain(interceptors, self._handle)
        self.parked = parked or Parked(self.settings)
        self._stateless = StatelessClients(self.upstream, self.parked)
        self._bridges: dict[Link, HandshakeClients] = {}
        self._fronts: dict[object, Front] = {}  # by the peer that it is
        self._ending: set[asyncio.Task[None]] = set()

    # Serving

    async def serve(self, channel: Channel) -> None:
        """Serve one client on a channel until it ends. Cancelling closes it."""
        peer = self.attach(channel)
        try:
            await peer.wait_closed()
        finally:
            await peer.close()

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ..transport.stdio import open_stdio

        async with open_stdio() as channel:
            try:
                await self.serve(channel)
            finally:
                await self.close()

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> "HttpApp":
        """The ASGI application. Options are fields of `HttpSettings`."""
        from ..server.http import HttpApp

        return HttpApp(self, settings if settings is not None else HttpSettings(**options))

    async def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        uds: str | None = None,
        tls: "ssl.SSLContext | None" = None,
        insecure: bool = False,
        started: Callable[[str], None] | None = None,
        settings: HttpSettings | None = None,
        **options: Any,
    ) -> None:
        """Serve HTTP until cancelled, as `MCPServer.run_http` does."""
        from ..server.run_http import run_app

        app = self.create_http_app(settings, **options)
        await run_app(app, host, port, uds=uds, tls=tls, insecure=insecure, started=started)

    def attach(self, channel: Channel, principal: str | None = None) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        front = Front(principal, self.settings.input_timeout)
        peer = Peer(
            channel,
            Conversation(
                Role.SERVER, Identity({"name": "fairlead", "version": "0"}), principal=principal
            ),
            handler=self.handler,
            on_notification=lambda note: self._told(front, note),
            on_close=lambda _: self._left(front),
            input_timeout=self.settings.input_timeout,
        )
        front.connect(peer)
        self._fronts[peer] = front
        peer.start()
        return peer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Nothing has to be open before the first client comes; all is closed behind the last."""
        try:
            yield None
        finally:
            await self.close()

    async def close(self) -> None:
        """End all clients and all connections to the server."""
        self.parked.close()
        await asyncio.gather(*(front.peer.close() for front in list(self._fronts.values())))
        for bridge in list(self._bridges.values()):
            await bridge.close()
        await self.upstream.close()
        if self._ending:
            await asyncio.wait(self._ending, timeout=5.0)

    # What an HTTP endpoint asks of whoever it serves

    inline_methods: Container[str] = ()

    def answer_inline(self, exchange: Exchange) -> Answer:
        return None

    def marks_of(self, tool: str) -> tuple[ParamHeader, ...]:
        """Headers that repeat arguments are for the server behind us to check."""
        return ()

    def told_alone(self, note: Notification, caller: Caller) -> None:
        """A notification of a stateless client over HTTP."""
        link = next((one for one in self.upstream.links if one.stateless), None)
        if link is not None:
            link.outbox.put(note)

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens."""
        for link in self.upstream.links:
            if link.changes is not None:
                await link.changes.end()

    # Requests of clients

    async def _handle(self, exchange: Exchange) -> Answer:
        return await self.handle(exchange, self._fronts.get(exchange.edge))

    async def handle(self, exchange: Exchange, front: Front | None) -> Answer:
        """Answer a request; `front` is the client's connection, if it has one that lasts.

        Raises:
            RpcError: to refuse, also if the server cannot be reached.
        """
        try:
            return await self.answer(exchange, front)
        except RpcError:
            raise
        except Impossible as exc:
            raise ours(METHOD_NOT_FOUND, str(exc)) from None
        except LocalProtocolError as exc:
            raise ours(exc.code, str(exc)) from None
        except FairleadError as exc:
            log.warning("%s: %s: %s", self.name, exchange.method, exc)
            raise unreachable(self.name, exc) from None

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
                        return await self._same_era(exchange, front, link)
                    return await self._stateless.answer(exchange, front, link)
                except TransportError as exc:
                    if exc.delivered or not again or link.alive:
                        raise
        if exchange.method == "initialize" and front is not None:
            return await self._initialize(exchange, front)
        for again in (True, False):
            link = await self._link_of(exchange, front)
            try:
                if link.stateless:
                    return await self._bridge(link).answer(exchange, front)
                return await self._in_session(exchange, front, link)
            except TransportError as exc:
                if exc.delivered or not again or link.alive:
                    raise
        raise AssertionError("unreachable")

    # The same era on both sides

    async def _same_era(self, exchange: Exchange, front: Front | None, link: Link) -> Answer:
        """Stateless to stateless: everything is in the request."""
        call = Call(exchange, front)
        passing = params_of(exchange)
        timeout = self.settings.call_timeout
        if exchange.method == "subscriptions/listen":
            result = await link.pass_on(call, passing, timeout=0)
            return _tagged(result, exchange)
        headers = exchange.transport.headers
        if headers is not None and exchange.method == "tools/call":
            given = {k: v for k, v in headers.items() if k.startswith("mcp-param-")}
            add = getattr(link.peer.channel, "add_headers", None)
            if given and add is not None:
                return await link.pass_on(
                    call, passing, timeout=timeout, on_sent=lambda sent: add(sent, given)
                )
        return await link.pass_on(call, passing, timeout=timeout)

    async def _initialize(self, exchange: Exchange, front: Front) -> Answer:
        params = exchange.message.params
        introduction = params.copy() if isinstance(params, Raw) else Raw(b"{}")
        front.introduction = introduction
        link = await self.upstream.for_session(front, introduction, exchange.caller)
        if link.stateless:
            return self._bridge(link).initialized(exchange)
        assert link.agreement is not None
        asked, theirs = exchange.caller.revision, link.agreement.revision
        if link.introduction is None:  # a connection that somebody else opened
            return self._bridge(link).initialized(exchange)
        if theirs < asked:
            front.peer.conversation.settle_on(theirs)
            return link.introduction
        return _introduced(link.introduction, asked, theirs)

    async def _link_of(self, exchange: Exchange, front: Front | None) -> Link:
        if front is None:  # a message that stands alone
            return await self.upstream.for_caller(exchange.caller)
        link = front.link
        if link is None or not link.alive:
            if front.introduction is None:
                raise ours(INVALID_PARAMS, "Send initialize first")
            link = await self.upstream.for_session(front, front.introduction, exchange.caller)
            await self._restore(front, link)
        if not link.stateless and link.peer.conversation.state == "initializing":
            await link.activate()
        return link

    async def _restore(self, front: Front, link: Link) -> None:
        """A server that came back hears again what the client had asked for."""
        if link.stateless:
            await self._bridge(link).joined()
            await self._bridge(link).follow()
            return
        await link.activate()
        try:
            if front.level is not None:
                await link.peer.request("logging/setLevel", {"level": front.level})
            for uri in front.uris:
                link.uris.setdefault(uri, set()).add(front)
                await link.peer.request("resources/subscribe", {"uri": uri})
        except RpcError as exc:
            log.warning("%s: not everything could be restored: %s", self.name, exc)

    async def _in_session(self, exchange: Exchange, front: Front | None, link: Link) -> Answer:
        """Handshake to handshake."""
        method = exchange.method
        call = Call(exchange, front)
        passing = params_of(exchange)
        if front is not None:
            local = self._noted(exchange, front, link, passing)
            if local is not None:
                return local
        alone = (
            method in ASKING
            and len(link.fronts) > 1
            and not link.tells_apart
            and asks_back(exchange.caller.capabilities)
        )
        if not alone:
            result = await link.pass_on(call, passing, timeout=self.settings.call_timeout)
        else:
            await self._take_turn(link)
            try:
                result = await link.pass_on(call, passing, timeout=self.settings.call_timeout)
            finally:
                link.turns.release()
        assert link.agreement is not None
        revision = exchange.caller.revision
        if link.agreement.revision > revision:
            return downgrade_result(method, result, revision)
        return result

    async def _take_turn(self, link: Link) -> None:
        try:
            await link.turns.take(self.settings.turn_timeout)
        except TimeoutError:
            raise ours(
                -32603, f"{self.name} is busy: other clients use it. Try again later"
            ) from None

    def _noted(self, exchange: Exchange, front: Front, link: Link, passing: Passing) -> Answer:
        """Remember what a session wants; an answer only if the server need not be asked."""
        match exchange.method:
            case "logging/setLevel":
                level = (passing.members or {}).get("level")
                front.level = next((name for name in LEVELS if level == encoded(name)), front.level)
                others = [f.level for f in link.fronts if f is not front and f.level is not None]
                if others and front.level is not None:
                    most = min((front.level, *others), key=LEVELS.index)
                    passing.replace("level", most)
            case "resources/subscribe" if exchange.target is not None:
                front.uris.add(exchange.target)
                link.uris.setdefault(exchange.target, set()).add(front)
            case "resources/unsubscribe" if exchange.target is not None:
                front.uris.discard(exchange.target)
                watching = link.uris.get(exchange.target, set())
                watching.discard(front)
                if watching:
                    return b"{}"  # another client still watches it
        return None

    def _bridge(self, link: Link) -> HandshakeClients:
        bridge = self._bridges.get(link)
        if bridge is None:
            settings = self.settings
            bridge = HandshakeClients(link, settings.call_timeout, settings.input_timeout)
            self._bridges[link] = bridge
        return bridge

    # What clients tell, and their end

    def _told(self, front: Front, note: Notification) -> None:
        link = front.link
        if note.method == "notifications/initialized":
            if link is not None:
                self._start(self._opened(link))
            return
        if link is not None and not link.stateless:
            link.outbox.put(note)
        elif link is None or note.method != "notifications/roots/list_changed":
            stateless = next((one for one in self.upstream.links if one.stateless), None)
            if stateless is not None and front.link is None:
                stateless.outbox.put(note)

    async def _opened(self, link: Link) -> None:
        try:
            if link.stateless:
                await self._bridge(link).joined()
            else:
                await link.activate()
        except FairleadError as exc:
            log.warning("%s: %s", self.name, exc)

    def _left(self, front: Front) -> None:
        self._fronts.pop(front.peer, None)
        front.outbox.close()
        self.leave(front)

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
        log.warning("%s: the connection was lost: %s", self.name, end)

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _introduced(introduction: Raw, asked: Revision, theirs: Revision) -> Answer:
    """The server's answer to `initialize`, for a client that may have asked for less."""
    if theirs == asked:
        return introduction
    members = members_of(introduction)
    if members is None:
        return introduction
    members["protocolVersion"] = encoded(asked.value)
    return downgrade_result("initialize", encoded(members), asked)


def _tagged(result: Raw, exchange: Exchange) -> Raw:
    """The last answer of a subscription names it."""
    members = members_of(result)
    meta = None if members is None else members_of(members.get("_meta", Raw(b"{}")))
    if members is None or meta is None:
        return result
    meta[SUBSCRIPTION] = encoded(exchange.request_id)
    return encoded({**members, "_meta": meta})
