"""Many servers at one endpoint: the parts of a gateway, and its public interface."""

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Container,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import structs

from ..config.server_spec import ServerSpec
from ..interceptor import Exchange, Handler, Interceptor
from ..peer import Peer
from ..peer.intercepted_peer import InterceptedNotifier
from ..policy.view_dependent import notify_of_views
from ..protocol.identity.principal import ANONYMOUS, Principal
from ..protocol.targets.list_kind import ListKind
from ..relay.bridge.parked_calls import ParkedCalls
from ..server.features.change_broadcaster import ChangeBroadcaster
from ..server.features.subscription_quota import SubscriptionQuota
from ..server.http_app.http_runnable import HttpRunnable
from ..server.results.result_envelope import ResultEnvelope
from ..transport.channel import Channel
from ..transport.http.server.http_settings import HttpSettings
from ..upstream.connection.upstream_connection import UpstreamConnection
from ..upstream.list_variants import VariantKey
from ..wire import to_json
from .admin.status import GatewayStatus
from .backends.backend import Member
from .backends.connector import BackendConnector, ServerEntry
from .backends.gateway_servers import GatewayServers, ServerSource
from .backends.registry import BackendRegistry
from .backends.relay_factory import RelayFactory
from .backends.upstream_events import LIST_CHANGED, UpstreamEvents
from .background_tasks import BackgroundTasks
from .catalog.list_comparison import ListComparison
from .catalog.list_requests import MergedLists
from .catalog.merged_catalog import MergedCatalog
from .catalog.routing import Router
from .catalog.target_resolver import TargetResolver
from .catalog.views import View
from .clients.client_disconnector import ClientDisconnector
from .clients.client_registry import ClientRegistry
from .clients.client_subscriptions import ClientSubscriptions
from .clients.client_views import ClientViews
from .clients.log_levels import LogLevels
from .clients.upstream_subscriptions import UpstreamSubscriptions
from .clients.view_changes import ViewUpdater
from .gateway_settings import GatewaySettings
from .handshake_results import HandshakeResults
from .merged_dispatch import MergedDispatcher
from .merged_endpoint import MergedEndpoint
from .operations.notification_log import NotificationLog
from .server_endpoint import SingleServerEndpoint

if TYPE_CHECKING:
    from ..server.http_app.app import HttpApp
    from .admin.http_pages import GatewayPages
    from .operations.observability import Observability
    from .search.search_tools import SearchTools

__all__ = ["Gateway"]


class Gateway(HttpRunnable):
    """Serves what many servers offer, as if it were one.

    async with Gateway() as gateway:
        await gateway.connect({"time": {"command": "uvx", "args": ["mcp-server-time"]}})
        await gateway.run_http(port=8765)

    Over HTTP all servers are at `/mcp`, under merged names, and each one at `/mcp/NAME` under its
    own; a view holds at both. With `search=True` the merged list of tools has three that find and
    call the others. All of them can still be called by name, and are listed at `/mcp/NAME`, and
    for clients that send `"_meta": {"fairlead/allTools": true}` with `tools/list`.
    """

    port = 8765

    def __init__(
        self,
        manager: ServerSource | None = None,
        *,
        settings: GatewaySettings | None = None,
        interceptors: Sequence[Interceptor] = (),
        views: Mapping[str, View] | None = None,
        observing: "Observability | None" = None,
        **options: Any,
    ) -> None:
        """`views`: what a principal gets to see; all others see what `settings.view` shows.
        `observing` keeps a journal, metrics and a desk for messages that are held.

        Interceptors see the names that clients use at the merged endpoint, and in `targets` all
        names of what is meant; and a call inside of `call_tool` as well as the `call_tool`. Options
        are fields of `GatewaySettings`. A manager given is yours to close.

        Raises:
            ConfigError: `search` is on, and the library for it is not installed.
        """
        self.settings = settings if settings is not None else GatewaySettings(**options)
        self._owns_servers = manager is None
        self._servers: ServerSource = manager or GatewayServers(self.settings)
        self.upstreams = self._servers.upstreams
        self.info = {"name": self.settings.name, "version": _version()}
        self.observing = observing
        self.reload: Callable[[], Awaitable[object]] | None = None  # set by what follows its files
        self._apps: list[HttpApp] = []
        self._tasks = BackgroundTasks()
        self._notifications = NotificationLog()
        self._envelope = ResultEnvelope(self.info)
        self.parked = ParkedCalls(self.settings.relay)
        self.quota = SubscriptionQuota()  # of clients, at the merged endpoint and at others

        # Lists of the servers, and the views of them
        self.catalog = MergedCatalog(
            self.settings.page_size,
            list_bytes=self.settings.max_list_bytes,
            list_items=self.settings.max_list_items,
            server_bytes=self.settings.max_server_bytes,
            total_bytes=self.settings.max_catalog_bytes,
        )
        self._registry = BackendRegistry()
        self.members, self.endpoints = self._registry.members, self._registry.endpoints
        self._clients = ClientRegistry(self.endpoints)
        self._views = ClientViews(views or {}, self.settings.view)
        self._comparison = ListComparison(self.catalog, self._tasks, self._variant_changed)
        self._lists = MergedLists(
            *(self.catalog, self.members, self._views, self._comparison),
            deadline=self.settings.deadline,
            fresh=self.settings.fresh,
            search=self.settings.search,
        )
        self._router = Router(
            *(self.catalog, self._registry, self._lists, self._views),
            self.upstreams.connected,
        )
        self._resolver = TargetResolver(
            *(self.catalog, self._registry, self._lists),
            *(self._router, self._views),
        )
        self.interceptors = self._with_own(interceptors)

        # Changes
        notifier = InterceptedNotifier(self.interceptors, to_json(self.info))
        self.changes = ChangeBroadcaster(notifier if self.interceptors else None, self.quota)
        self.upstream_subscriptions = UpstreamSubscriptions(
            self.upstreams, self.members, self._tasks
        )
        self.subscriptions = ClientSubscriptions(
            *(self.upstream_subscriptions, self.changes),
            catalog=self.catalog,
            registry=self._registry,
            router=self._router,
            lists=self._lists,
            views=self._views,
            tasks=self._tasks,
            deadline=self.settings.deadline,
        )
        self._view_updater = ViewUpdater(
            *(self._views, self._clients, self._registry, self.subscriptions, self.changes),
            has_variants=lambda: self.catalog.has_variants,
            sees_variant=self._lists.sees_variant,
        )
        self._disconnector = ClientDisconnector(
            *(self._clients, self._registry, self.subscriptions, self.changes)
        )

        # Endpoints, and the servers behind them
        self._log_levels = LogLevels(
            self.upstreams, self._registry, self._clients.merged, self._tasks
        )
        self._endpoint = self._merged_endpoint()
        self.handler: Handler = self._endpoint.handler
        self._connector, self._listeners = self._connect_servers()
        self._status = GatewayStatus(
            self.info,
            upstreams=self.upstreams,
            registry=self._registry,
            catalog=self.catalog,
            clients=self._clients,
            views=self._views,
            parked=self.parked,
        )
        if observing is not None:
            self._listeners += self._observe(observing)

    def _with_own(self, interceptors: Sequence[Interceptor]) -> tuple[Interceptor, ...]:
        """Return all interceptors: those given, those that observe, and the target resolver."""
        observing = self.observing
        if observing is not None:
            interceptors = (*interceptors, *observing.innermost)
        if interceptors:  # policies compare every name of an item
            interceptors = (self._resolver, *interceptors)
        if observing is not None:
            interceptors = (*observing.interceptors, *interceptors)
        return tuple(interceptors)

    def _merged_endpoint(self) -> MergedEndpoint:
        handshake = HandshakeResults(
            *(self.info, self.settings.instructions, self._envelope),
            upstreams=self.upstreams,
            registry=self._registry,
            lists=self._lists,
            views=self._views,
            changes=self.changes,
        )
        dispatcher = MergedDispatcher(
            self.interceptors,
            clients=self._clients.merged,
            registry=self._registry,
            catalog=self.catalog,
            lists=self._lists,
            router=self._router,
            views=self._views,
            subscriptions=self.subscriptions,
            log_levels=self._log_levels,
            handshake=handshake,
            envelope=self._envelope,
            search=self._search_tools() if self.settings.search else None,
            until_disconnected=self._disconnector.until_disconnected,
        )
        return MergedEndpoint(
            dispatcher,
            info=self.info,
            clients=self._clients,
            registry=self._registry,
            catalog=self.catalog,
            views=self._views,
            subscriptions=self.subscriptions,
            changes=self.changes,
            quota=self.quota,
            interceptors=self.interceptors,
            desk=None if self.observing is None else self.observing.desk,
            input_timeout=self.settings.relay.input_timeout,
        )

    def _search_tools(self) -> "SearchTools":
        from .search.search_tools import SearchTools, shown_hooks  # most gateways have none

        shown = shown_hooks(self.interceptors)
        return SearchTools(
            self.catalog, shown, listed=self._lists.ready, expect=self._router.expect_tool
        )

    def _server_endpoint(self, member: Member) -> SingleServerEndpoint:
        return SingleServerEndpoint(
            member,
            info=self.info,
            catalog=self.catalog,
            lists=self._lists,
            views=self._views,
            envelope=self._envelope,
            quota=self.quota,
            interceptors=self.interceptors,
            until_disconnected=self._disconnector.until_disconnected,
            input_timeout=self.settings.relay.input_timeout,
        )

    def _connect_servers(self) -> tuple[BackendConnector, list[Callable[[], None]]]:
        """Listen to the servers; return what adds others, and what ends the listening."""
        events = UpstreamEvents(
            *(
                self._registry,
                self.upstream_subscriptions,
                self.changes,
                self._notifications,
                self._tasks,
                self._comparison,
            ),
            self._view_updater.audience_of,
        )
        connector = BackendConnector(
            *(self._servers, self.catalog, self._registry),
            relays=RelayFactory(self.settings, self.parked, self.quota, self.interceptors),
            new_endpoint=self._server_endpoint,
            added=self._serve_endpoint,
            removed=self._end_endpoint,
            events=events,
            subscriptions=self.upstream_subscriptions,
            log_levels=self._log_levels,
            clients=self._clients,
            tasks=self._tasks,
        )
        listeners = [
            self.upstreams.add_status_listener(events.status_changed),
            self.upstreams.add_change_listener(events.upstream_changed),
            self.upstreams.add_notification_listener(events.notification_received),
        ]
        return connector, listeners

    def _variant_changed(
        self, whose: VariantKey | UpstreamConnection, kinds: set[ListKind]
    ) -> None:
        """Notify the clients that see other lists of a server than before."""
        edges = {*self._clients.seeing(whose), *self.subscriptions.listening(whose)}
        for method in {LIST_CHANGED[kind] for kind in kinds}:
            self.changes.changed_for(edges, method)

    def _observe(self, observing: "Observability") -> list[Callable[[], None]]:
        from .operations.tool_lock_lookup import ToolOriginLookup

        tools = ToolOriginLookup(
            *(self.catalog, self._registry, self._router, self._views),
            search=self.settings.search,
        )
        return observing.observe_gateway(
            *(self.upstreams, self._registry, self._clients),
            server_of=self._resolver.server_of,
            tools=tools,
        )

    # Servers

    async def connect(self, servers: Mapping[str, ServerEntry | list[ServerEntry]]) -> None:
        """Add servers; several entries under one name are equal servers that share its calls.

        Returns at once: lists fill as servers answer.

        Raises:
            ConfigError: An entry is invalid.
        """
        await self._connector.connect(servers)

    def update_settings(self, servers: Mapping[str, list[ServerSpec]]) -> None:
        """Use other settings for connections that are opened from now on; nothing is restarted."""
        for name, specs in servers.items():
            member = self.members.get(name)
            for upstream, spec in zip(member.upstreams if member else (), specs, strict=False):
                upstream.update_settings(structs.replace(self.upstreams.settings, **spec.settings))

    def arrange(self, names: Iterable[str]) -> None:
        """Set the order of the servers: the first one owns what several of them list."""
        self._connector.arrange(names)

    async def disconnect(self, name: str) -> None:
        """Remove a server, and notify clients that the lists have changed."""
        await self._connector.disconnect(name)

    @property
    def is_ready(self) -> bool:
        """True once every server has listed what it offers, or is known to be unavailable."""
        return self._registry.is_ready

    async def listed(self) -> None:
        """Wait for servers that were just started to list what they have, for a moment."""
        await self._lists.ready()

    # Serving

    async def serve(self, channel: Channel) -> None:
        """Serve one anonymous client on a channel until it ends."""
        await self._endpoint.serve(channel, ANONYMOUS)

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        return self._endpoint.attach(channel, principal)

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ..transport.stdio.own_stdio import open_stdio

        async with open_stdio() as channel:
            await self.serve(channel)

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> "HttpApp":
        """The ASGI application: all servers at `/mcp`, each one at `/mcp/NAME`, a page at `/`."""
        from ..server.http_app.app import HttpApp

        chosen = settings if settings is not None else HttpSettings(**options)
        others = {f"{chosen.path}/{name}": endpoint for name, endpoint in self.endpoints.items()}
        app = HttpApp(self._endpoint, chosen, pages=self._pages(chosen.path), others=others)
        self._apps.append(app)
        return app

    def http_ended(self, app: "HttpApp") -> None:
        self._apps.remove(app)

    def _pages(self, path: str) -> "GatewayPages":
        from .admin.http_pages import GatewayPages
        from .admin.messages_api import message_routes
        from .admin.servers_api import ServersApi
        from .operations.observability import Observability

        observing = self.observing or Observability()
        servers = ServersApi(
            upstreams=self.upstreams,
            registry=self._registry,
            catalog=self.catalog,
            clients=self._clients,
            notifications=self._notifications,
            status=self._status,
            disconnect=self.disconnect,
            reload=self._reload,
        )
        return GatewayPages(
            path,
            admin_token=self.settings.admin_token,
            admin_routes=(*servers.routes(), *message_routes(observing)),
            status=self._status,
            views=self._views,
            observing=observing,
        )

    async def _reload(self) -> None:
        if self.reload is not None:
            await self.reload()

    def _serve_endpoint(self, name: str) -> None:
        for app in self._apps:
            app.add(f"{app.settings.path}/{name}", self.endpoints[name])

    async def _end_endpoint(self, name: str) -> None:
        for app in self._apps:
            await app.remove(f"{app.settings.path}/{name}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect all clients, and all servers unless they belong to a manager."""
        for stop_listening in self._listeners:
            stop_listening()
        self.parked.close()
        await self.changes.end()
        merged = list(self._clients.merged.values())
        await asyncio.gather(*(client.peer.close() for client in merged))
        await asyncio.gather(*(endpoint.close() for endpoint in self.endpoints.values()))
        await asyncio.gather(*(member.close() for member in self.members.values()))
        await self._connector.wait_until_removed()
        self._registry.clear()
        await self._tasks.close()
        if self._owns_servers:
            await self._servers.close()

    # Clients

    @property
    def clients(self) -> int:
        """How many clients are connected; those without a connection are not counted."""
        return len(self._clients)

    def sessions(self) -> list[dict[str, Any]]:
        """Return the connected clients as plain data."""
        return self._clients.describe()

    def status(self) -> dict[str, Any]:
        """Return the state of the gateway and its servers as plain data, for its owner."""
        return self._status.full()

    def show(self, views: Mapping[str, View], view: View) -> None:
        """Use these views from now on, and notify the clients for whom lists change.

        Clients are no longer notified of items outside their view.
        """
        self.settings = msgspec.structs.replace(self.settings, view=view)
        notify_of_views(self.interceptors)
        self._view_updater.show(views, view)
        self.catalog.changes += 1

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        """End all connections of principals that may no longer use the gateway."""
        await self._disconnector.disconnect(principals)

    # Policies

    def server_of(self, exchange: Exchange) -> str | None:
        """Return the server that a message is for or from: by the endpoint, or by what it names."""
        return self._resolver.server_of(exchange)

    async def wait_until_known(self, exchange: Exchange) -> None:
        """Wait for a server that is just starting, as long as the call itself would.

        Raises:
            RpcError: The server takes too long to start.
        """
        await self._resolver.wait_until_known(exchange)


def _version() -> str:
    from .. import __version__

    return __version__
