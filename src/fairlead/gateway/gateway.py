"""Many servers on one endpoint: merged lists, calls to whom they belong, one bad server no harm."""

import asyncio
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from ..interceptor import Answer, Exchange, Handler, Interceptor, chain, malformed_frame_hook
from ..manager import MCPManager
from ..peer import Peer
from ..peer.intercepted_peer import InterceptedNotifier
from ..policy.view_dependent import notify_of_views
from ..protocol.caller import Caller
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import TransportContext
from ..protocol.headers import ParamHeader
from ..protocol.identity.principal import ANONYMOUS, Principal, principal_name
from ..protocol.outgoing_params import Identity
from ..protocol.own_errors import own_error
from ..protocol.targets.targets import Target
from ..relay.bridge.parked_calls import ParkedCalls
from ..server.features.subscription_quota import SubscriptionQuota
from ..server.features.subscriptions import ChangeBroadcaster
from ..server.http_app.http_runnable import HttpRunnable
from ..server.results.result_envelope import ResultEnvelope
from ..transport.channel import Channel
from ..transport.http.server.settings import HttpSettings
from ..wire import Notification, to_json
from ..wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from .admin.servers_api import NotificationLog
from .backends.roster import BackendRegistry, ServerEntry
from .catalog.list_kind import ListKind
from .catalog.list_requests import MergedLists
from .catalog.merged_catalog import MergedCatalog
from .catalog.routing import Router
from .catalog.target_resolver import TargetResolver
from .catalog.views import View
from .clients.client_sessions import Visitor
from .clients.log_levels import Levels
from .clients.subscriptions import ClientSubscriptions
from .clients.view_changes import ViewUpdater
from .handshake_results import CAPABILITIES, discover_result, initialize_result
from .settings import GatewaySettings

if TYPE_CHECKING:
    from ..server.http_app.app import HttpApp
    from .operations.observability import Observability
    from .search.search_tools import SearchTools

__all__ = ["Gateway"]

_LISTS: Final = {kind.method: kind for kind in ListKind}


class Gateway(HttpRunnable):
    """Serves what many servers offer, as if it were one.

    async with Gateway() as gateway:
        await gateway.connect({"time": {"command": "uvx", "args": ["mcp-server-time"]}})
        await gateway.run_http(port=8765)

    Over HTTP all servers are at `/mcp`, under merged names, and each one at `/mcp/NAME` under its
    own; a view holds at both. With `search=True` the merged list of tools has three that find and
    call the others. All of them can still be called by name, and are listed at `/mcp/NAME`, and
    for who sends `"_meta": {"fairlead/allTools": true}` with `tools/list`.
    """

    port = 8765

    def __init__(
        self,
        manager: MCPManager | None = None,
        *,
        settings: GatewaySettings | None = None,
        interceptors: Sequence[Interceptor] = (),
        views: Mapping[str, View] | None = None,
        observing: "Observability | None" = None,
        **options: Any,
    ) -> None:
        """`views`: what a principal gets to see; everybody else sees what `settings.view` shows.
        `observing` keeps a journal, metrics and a desk for messages that are held.

        Interceptors see the names that clients use at the merged endpoint, and in `targets` all
        names of what is meant; and a call inside of `call_tool` as well as the `call_tool`. Options
        are fields of `GatewaySettings`. A manager given is yours to close.

        Raises:
            ConfigError: `search` is on, and the library for it is not there.
        """
        self.settings = settings if settings is not None else GatewaySettings(**options)
        self._owns_manager = manager is None
        self.manager = manager or MCPManager(on_roots=None)
        self.info = {"name": self.settings.name, "version": _version()}
        self.observing = observing
        if observing is not None:
            interceptors = (*interceptors, *observing.innermost)
        self._resolver = TargetResolver(self)
        if interceptors:  # they judge by every name of what is meant
            interceptors = (self._resolver, *interceptors)
        if observing is not None:
            interceptors = (*observing.interceptors, *interceptors)
        self.interceptors = tuple(interceptors)
        self.on_malformed = malformed_frame_hook(interceptors)
        self.handler: Handler = chain(interceptors, self._handle)
        self._direct: Handler = chain(interceptors, self._call_directly)
        self.catalog = MergedCatalog(
            self.settings.page_size,
            list_bytes=self.settings.max_list_bytes,
            list_items=self.settings.max_list_items,
            server_bytes=self.settings.max_server_bytes,
            total_bytes=self.settings.max_catalog_bytes,
        )
        self.quota = SubscriptionQuota()  # of clients, at the merged endpoint and at others
        notifier = InterceptedNotifier(self.interceptors, to_json(self.info))
        self.changes = ChangeBroadcaster(notifier if self.interceptors else None, self.quota)
        self.parked = ParkedCalls(self.settings.relay)
        self.since = time.time()
        self.hearsay = NotificationLog()
        self.reload: Callable[[], Awaitable[object]] | None = None  # of who follows files for it
        self.inline_methods: set[str] = set() if interceptors else {"tools/list", "ping"}
        self._visitors: dict[object, Visitor] = {}
        self._apps: list[HttpApp] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._envelope = ResultEnvelope(self.info)
        self._listing = MergedLists(self)
        self.roster = BackendRegistry(self)
        self._watching = self.roster.watching
        self.members, self.doors = self.roster.members, self.roster.doors
        self.router = Router(self)
        self.subscribing = ClientSubscriptions(self, self._watching)
        self.levels = Levels(self.manager, self._visitors, self.start)
        self._view_updater = ViewUpdater(self, views or {}, self.settings.view)
        self._searching = self._search_mode(interceptors) if self.settings.search else None
        self._quiet = [
            self.manager.add_status_listener(self.roster.status),
            self.manager.add_notification_listener(self.roster.heard),
        ]
        if observing is not None:
            self._quiet += observing.observe_gateway(self)

    # Servers

    async def connect(self, servers: Mapping[str, ServerEntry | list[ServerEntry]]) -> None:
        """Add servers; several entries under one name are equal servers that share its calls.

        Returns at once: lists fill as servers answer.

        Raises:
            ConfigError: an entry is wrong.
        """
        await self.roster.connect(servers)

    def arrange(self, names: Iterable[str]) -> None:
        """The order of the servers: what several have is the first one's, whoever came first."""
        self.roster.arrange(names)

    async def disconnect(self, name: str) -> None:
        """Take a server away; clients hear that the lists have changed."""
        await self.roster.disconnect(name)

    def opened(self, name: str) -> None:
        """There is a door for this server; it is open wherever we are served."""
        for app in self._apps:
            app.add(f"{app.settings.path}/{name}", self.doors[name])

    async def shut(self, name: str) -> None:
        """There is none any more."""
        for app in self._apps:
            await app.remove(f"{app.settings.path}/{name}")

    # Serving

    async def serve(self, channel: Channel) -> None:
        """Serve one anonymous client on a channel until it ends."""
        peer = self.attach(channel, ANONYMOUS)
        try:
            await peer.wait_closed()
        finally:
            await self.changes.end(peer)
            await peer.close()

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ..transport.stdio.own_stdio import open_stdio

        async with open_stdio() as channel:
            await self.serve(channel)

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> "HttpApp":
        """The ASGI application: all servers at `/mcp`, each one at `/mcp/NAME`, a page at `/`."""
        from ..server.http_app.app import HttpApp
        from .admin.http_pages import GatewayPages

        chosen = settings if settings is not None else HttpSettings(**options)
        others = {f"{chosen.path}/{name}": door for name, door in self.doors.items()}
        app = HttpApp(self, chosen, pages=GatewayPages(self, chosen), others=others)
        self._apps.append(app)
        return app

    def http_ended(self, app: "HttpApp") -> None:
        self._apps.remove(app)

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        visitor = Visitor(
            principal, self.settings.relay.input_timeout, self.interceptors, self.quota
        )
        peer = Peer(
            channel,
            Conversation(
                ConversationRole.SERVER, Identity(self.info, CAPABILITIES), principal=principal
            ),
            handler=self.handler,
            inline=self.answer_inline,
            inline_methods=self.inline_methods,
            on_notification=lambda note: visitor.passage.put(
                note, visitor.peer, lambda passed: self._told(visitor, passed)
            ),
            on_cancelled=lambda note, cancel: visitor.passage.cancel(note, visitor.peer, cancel),
            on_eof=self.changes.stop,
            on_close=lambda _: self._left(visitor),
            input_timeout=self.settings.relay.input_timeout,
        )
        visitor.connect(peer)
        self._visitors[peer] = visitor
        peer.start()
        return peer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It may be served several times; who made it closes it."""
        yield None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all clients, and all servers that are ours."""
        for listener in self._quiet:
            listener()
        self.parked.close()
        await self.changes.end()
        await asyncio.gather(*(v.peer.close() for v in list(self._visitors.values())))
        await asyncio.gather(*(door.close() for door in self.doors.values()))
        await asyncio.gather(*(member.close() for member in self.members.values()))
        await self.roster.wait_until_removed()
        self.roster.clear()
        background = list(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        if self._owns_manager:
            await self.manager.close()

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens; nobody is going to decide about what is held."""
        if self.observing is not None and self.observing.desk is not None:
            self.observing.desk.block_all("the gateway ends")
        await self.changes.end()

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """A notification outside of any connection concerns no server in particular."""

    def tool_param_headers(self, tool: str, principal: Principal) -> tuple[ParamHeader, ...]:
        """Which arguments of a tool travel as headers too, if the client's view has the tool."""
        return self.catalog.param_headers(tool, self.view_for(principal))

    def merged_param_headers(self, tool: str) -> tuple[ParamHeader, ...]:
        """The same for any tool, by its merged name."""
        return self.catalog.param_headers(tool, View.everything())

    @property
    def clients(self) -> int:
        """How many clients are connected; those without a connection are not counted."""
        return sum(1 for _ in self.visitors())

    def sessions(self) -> list[dict[str, Any]]:
        """The connected clients, as plain data."""
        return [
            {
                "client": (visitor.peer.session.client_info or {}).get("name"),
                "protocol_version": visitor.peer.session.protocol_version,
                "principal": principal_name(visitor.principal),
                "transport": visitor.peer.channel.context.transport_type,
                "subscriptions": sorted(visitor.uris),
            }
            for visitor in self.visitors()
        ]

    def visitors(self) -> Iterator[Visitor]:
        """Everybody on a connection that lasts."""
        yield from self._visitors.values()
        for door in self.doors.values():
            yield from door.guests.values()

    def own_visitors(self) -> list[Visitor]:
        """Those of them who are at the merged endpoint."""
        return list(self._visitors.values())

    def server_of(self, exchange: Exchange) -> str | None:
        """Return the server that a message is for or from: by the endpoint, or by what it names."""
        return self._resolver.server_of(exchange)

    async def wait_until_known(self, exchange: Exchange) -> None:
        """Wait for a server that is just starting, as long as the call itself would.

        Raises:
            RpcError: The server takes too long to start.
        """
        await self._resolver.known(exchange)

    # Requests

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Answer what needs no waiting; None for everything else."""
        if exchange.method == "ping" and not exchange.caller.stateless:
            return b"{}"
        if exchange.method == "tools/list" and self.is_ready:
            return self._page(ListKind.TOOLS, exchange)
        return None

    @property
    def is_ready(self) -> bool:
        """Whether every server has said what it offers, or cannot be asked."""
        return all(member.listed.is_set() for member in self.members.values())

    def _handle(self, exchange: Exchange) -> Awaitable[Answer]:
        visitor = self._visitors.get(exchange.edge)
        if visitor is None:
            return self.until_disconnected(exchange, self._answer(exchange, None))
        return self._answer_in_order(exchange, visitor)

    async def _answer_in_order(self, exchange: Exchange, visitor: Visitor) -> Answer:
        await visitor.passage.passed()
        return await self._answer(exchange, visitor)

    async def _answer(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        caller, method = exchange.caller, exchange.method
        if method in _LISTS:
            await self.listed()
            return self._page(_LISTS[method], exchange)
        match method:
            case "tools/call":
                return await self._call(exchange, visitor)
            case "prompts/get":
                return await self._to(await self.router.prompt(exchange), exchange, visitor)
            case "resources/read":
                member = await self.router.resource(exchange)
                return await member.answer(exchange, visitor)
            case "completion/complete":
                member, about = await self.router.completing(exchange)
                return await member.answer(about, visitor)
            case "resources/subscribe" if not caller.stateless:
                return await self.subscribing.subscribe(exchange, visitor)
            case "resources/unsubscribe" if not caller.stateless:
                return self.subscribing.unsubscribe(exchange, visitor)
            case "subscriptions/listen" if caller.stateless:
                return await self.subscribing.listen(exchange)
            case "logging/setLevel" if not caller.stateless:
                return self.levels.set(exchange, visitor, self.roster)
            case "initialize" if not caller.stateless:
                return await initialize_result(self, exchange, visitor)
            case "server/discover" if caller.stateless:
                members = to_json(await discover_result(self, exchange))[1:-1]
                return self._envelope.listed(members, caller)
            case "ping" if not caller.stateless:
                return b"{}"
        raise own_error(METHOD_NOT_FOUND, f"Method not found: {method}")

    def view_of(self, caller: Caller) -> View:
        """What somebody gets to see."""
        return self.view_for(caller.principal)

    def view_for(self, principal: Principal) -> View:
        """The same, by name."""
        return self._view_updater.view_for(principal)

    def show(self, views: Mapping[str, View], view: View) -> None:
        """From now on principals see this; those for whom it changes hear that lists have.

        Nobody hears any more of what he does not see.
        """
        self.settings = msgspec.structs.replace(self.settings, view=view)
        notify_of_views(self.interceptors)
        self._view_updater.show(views, view)
        self.catalog.changes += 1

    def until_disconnected(
        self, exchange: Exchange, answer: Awaitable[Answer]
    ) -> Awaitable[Answer]:
        """Wait for the answer to a call outside of any connection, while its client may come in."""
        return self._view_updater.until_disconnected(exchange, answer)

    def audience_of(self, server: str) -> set[object] | None:
        """Return the connections whose views have a server; None if all views have it."""
        return self._view_updater.audience_of(server)

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        """End all connections of somebody who may not come in any more."""
        await self._view_updater.disconnect_clients(principals)

    # Lists

    async def listed(self) -> None:
        """Servers that have just been started get a moment to say what they have."""
        await self._listing.ready()

    def _page(self, kind: ListKind, exchange: Exchange) -> bytes:
        return self._envelope.listed(self._listing.page(kind, exchange), exchange.caller)

    def framed(self, members: bytes, caller: Caller) -> bytes:
        """The members of a list result as the result that this caller expects."""
        return self._envelope.listed(members, caller)

    # Calls

    async def _call(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        if self.settings.search:
            answer = await self._search(exchange)
            if answer is not None:
                return answer
        return await self._to(await self.router.tool(exchange), exchange, visitor)

    async def _call_directly(self, exchange: Exchange) -> Answer:
        """The call inside of a `call_tool`; interceptors have seen what it is about."""
        target = self.catalog.tool(exchange.target or "", self.view_of(exchange.caller))
        if target is None:
            raise own_error(INVALID_PARAMS, f"Unknown tool: {exchange.target}")
        return await self._to(target, exchange, self._visitors.get(exchange.edge))

    def _to(self, target: Target, exchange: Exchange, visitor: Visitor | None) -> Awaitable[Answer]:
        member = self.members.get(target.server or "")
        if member is None:
            raise own_error(INVALID_PARAMS, f"The server {target.server!r} has gone")
        exchange.alias = target.own
        return member.answer(exchange, visitor)

    async def _search(self, exchange: Exchange) -> Answer:
        """The three tools of search mode; None for any other."""
        assert self._searching is not None
        found = await self._searching.answer(exchange, self.view_of(exchange.caller))
        if isinstance(found, Exchange):
            return await self._direct(found)
        if found is None:
            return None
        return self._envelope.called(found, exchange.caller)

    def _search_mode(self, interceptors: Sequence[Interceptor]) -> "SearchTools":
        from .search.search_tools import SearchTools, shown_hooks  # most gateways have none

        shown = shown_hooks(interceptors)
        return SearchTools(self.catalog, shown, listed=self.listed, expect=self.router.expect_tool)

    # Clients

    def _told(self, visitor: Visitor, note: Notification) -> None:
        if note.method == "notifications/initialized":
            return
        for front in list(visitor.fronts.values()):
            link = front.link
            # What a client can do was never said on a connection that all share.
            if link is not None and not link.stateless and not link.borrowed:
                link.outbox.put(note)

    def _left(self, visitor: Visitor) -> None:
        self._visitors.pop(visitor.peer, None)
        visitor.close()
        for member in self.members.values():
            member.left(visitor)
        for uri in list(visitor.uris):
            self.subscribing.unwatch(visitor, uri)
        self.changes.forget(visitor.peer)

    def start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run something until it is done or the gateway ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _version() -> str:
    from .. import __version__

    return __version__
