"""The `Gateway` class: its components and its public interface."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from msgspec import structs

from ..config.server_spec import ServerSpec
from ..interceptor import Exchange, Handler, Interceptor, hooks_of
from ..keyword_arguments import make_settings
from ..peer import Peer
from ..peer.intercepted_peer import InterceptedNotifier
from ..protocol.caller import ANONYMOUS, Principal
from ..protocol.identity.token_principal import TokenPrincipal
from ..protocol.targets.list_kind import ListKind
from ..relay.bridge.parked_calls import ParkedCalls
from ..relay.relay_settings import RelaySettings
from ..server.features.change_broadcaster import ChangeBroadcaster
from ..server.features.subscription_quota import SubscriptionQuota
from ..server.http_app.http_runnable import HttpRunnable
from ..server.results.result_envelope import ResultEnvelope
from ..transport.background_tasks import BackgroundTasks
from ..transport.channel import Channel
from ..transport.http.server.http_settings import HttpSettings
from ..upstream.connection.upstream_connection import UpstreamConnection
from ..upstream.list_variants import VariantKey
from ..upstream.upstream import Upstream
from ..wire import to_json
from .admin.status import GatewayStatus
from .backends.backend import Member
from .backends.connector import BackendConnector, ServerEntry
from .backends.gateway_servers import GatewayServers, ServerSource, require_source
from .backends.registry import BackendRegistry
from .backends.relay_factory import create_relay
from .backends.upstream_events import LIST_CHANGED, UpstreamEvents
from .catalog.list_comparison import ListComparison
from .catalog.list_requests import MergedLists
from .catalog.merged_catalog import MergedCatalog
from .catalog.routing import Router
from .catalog.target_resolver import TargetResolver
from .catalog.unknown_items import UnknownItems
from .catalog.views import ClientViews, View
from .clients.client_access import ClientDisconnector, ViewUpdater
from .clients.client_registry import ClientRegistry
from .clients.client_subscriptions import ClientSubscriptions
from .clients.log_levels import LogLevels
from .clients.upstream_subscriptions import UpstreamSubscriptions
from .gateway_settings import GatewaySettings, gateway_keywords
from .handshake_results import HandshakeResults
from .merged_endpoint import MergedEndpoint
from .operations.notification_log import NotificationLog
from .server_endpoint import SingleServerEndpoint

if TYPE_CHECKING:
    from ..server.http_app.app import HttpApp
    from .admin.http_pages import GatewayPages
    from .operations.observability import Observability
    from .search.search_tools import SearchTools

__all__ = ["Gateway"]

log = logging.getLogger("fairlead.gateway.access")


class Gateway(HttpRunnable):
    """Gateway that offers many servers as one.

        async with Gateway() as gateway:
            await gateway.connect({"time": {"command": "uvx", "args": ["mcp-server-time"]}})
            await gateway.run_http(port=8765)

    Over HTTP all servers are available at `/mcp` under merged names, and each server at `/mcp/NAME`
    under its own names. Views apply to both. With `search=True` the merged list of tools contains
    three tools that find, describe and call the others. All tools can still be called by name. They
    are listed at `/mcp/NAME`, and at `/mcp` for clients that send `"_meta": {"fairlead/allTools":
    true}` with `tools/list`.
    """

    port = 8765

    def __init__(
        self,
        manager: ServerSource | None = None,
        *,
        settings: GatewaySettings | None = None,
        interceptors: Sequence[Interceptor] = (),
        views: Mapping[str, View] | None = None,
        roles: Mapping[str, View] | None = None,
        is_admin: Callable[[Principal], bool] | None = None,
        observing: "Observability | None" = None,
        **options: Any,
    ) -> None:
        """`manager` owns the servers, and the caller closes it; without one, the gateway owns its
        servers. `views` are the views of principals, `roles` the views of access tokens by role;
        all other clients use `settings.view`. `is_admin` returns True for principals that may use
        the admin API without its token. `observing` adds a journal, metrics, tapes, a tool lock
        and a desk for held messages. `options` are fields of `GatewaySettings`.

        Interceptors see the names that are used at the merged endpoint, and all names of an item in
        `targets`. Interceptors process both a `call_tool` and the call inside it.

        Raises:
            ConfigError: `search` is enabled, but the library for it is not installed.
        """
        self.settings = make_settings(GatewaySettings, options, gateway_keywords, settings)
        self._owns_servers = manager is None
        if manager is not None:  # its settings take precedence over those of the gateway
            require_source(manager)
            relay = manager.upstreams.settings.over(self.settings.relay)
            self.settings = structs.replace(self.settings, relay=relay)
        self._servers: ServerSource = manager or GatewayServers(self.settings)
        self.upstreams = self._servers.upstreams
        self.info = {"name": self.settings.name, "version": _version()}
        self.observing = observing
        self._is_admin = is_admin
        # Set by the code that watches the gateway's files.
        self.reload: Callable[[], Awaitable[object]] | None = None
        self._apps: list[HttpApp] = []
        self._tasks = BackgroundTasks()
        self._notifications = NotificationLog()
        self._envelope = ResultEnvelope(self.info)
        self.parked = ParkedCalls(self.settings.relay.max_parked)
        # Shared, so that the limit covers a client's subscriptions at all endpoints.
        self.quota = SubscriptionQuota()

        # Merged lists and views
        self.catalog = MergedCatalog(self.settings)
        self._registry = BackendRegistry()
        self.members, self.endpoints = self._registry.members, self._registry.endpoints
        self._clients = ClientRegistry(self.endpoints)
        self._views = ClientViews(views or {}, self.settings.view, roles)
        self._comparison = ListComparison(self.catalog, self._tasks, self._variant_changed)
        self._lists = MergedLists(
            *(self.catalog, self.members, self._views, self._comparison),
            deadline=self.settings.deadline,
            fresh=self.settings.fresh,
            search=self.settings.search,
        )
        # Policies may hide items, so no names are suggested. Observers hide nothing.
        hides = bool(interceptors) or (observing is not None and bool(observing.innermost))
        self._unknown = UnknownItems(self._lists, self._clients.merged, suggests=not hides)
        found_in = self.catalog, self._registry, self._lists
        self._router = Router(*found_in, self._views, self._unknown)
        self._resolver = TargetResolver(*found_in, self._router, self._views)
        self.interceptors = self._with_own(interceptors)

        # Notifications and subscriptions
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

        # Endpoints, and connections to the servers
        self._log_levels = LogLevels(self._registry, self._clients.merged, self._tasks)
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
        """Return `interceptors` with the gateway's own interceptors around them."""
        observing = self.observing
        if observing is not None:
            interceptors = (*interceptors, *observing.innermost)
        # Policies compare every name of an item, so the resolver runs before them.
        if interceptors:
            interceptors = (self._resolver, *interceptors)
        if observing is not None:
            # Tape and journal are outermost, to see messages exactly as clients see them.
            interceptors = (*observing.interceptors, *interceptors)
        return tuple(interceptors)

    def _merged_endpoint(self) -> MergedEndpoint:
        handshake = HandshakeResults(
            *(self.info, self.settings.instructions, self._envelope),
            registry=self._registry,
            lists=self._lists,
            views=self._views,
            changes=self.changes,
        )
        return MergedEndpoint(
            info=self.info,
            clients=self._clients,
            registry=self._registry,
            catalog=self.catalog,
            lists=self._lists,
            router=self._router,
            views=self._views,
            subscriptions=self.subscriptions,
            changes=self.changes,
            log_levels=self._log_levels,
            handshake=handshake,
            envelope=self._envelope,
            interceptors=self.interceptors,
            search=self._search_tools() if self.settings.search else None,
            desk=None if self.observing is None else self.observing.desk,
            until_disconnected=self._disconnector.until_disconnected,
        )

    def _search_tools(self) -> "SearchTools":
        # Imported on demand, because most gateways do not use the search.
        from .search.search_tools import SearchTools

        return SearchTools(
            *(self.catalog, self.interceptors),
            listed=self._lists.ready,
            expect=self._router.expect_tool,
        )

    def _server_endpoint(self, member: Member) -> SingleServerEndpoint:
        return SingleServerEndpoint(
            member,
            info=self.info,
            catalog=self.catalog,
            lists=self._lists,
            views=self._views,
            unknown=self._unknown,
            envelope=self._envelope,
            quota=self.quota,
            interceptors=self.interceptors,
            until_disconnected=self._disconnector.until_disconnected,
        )

    def _connect_servers(self) -> tuple[BackendConnector, list[Callable[[], None]]]:
        """Return the connector, and the functions that remove its listeners from the upstreams."""
        events = UpstreamEvents(
            *(self._registry, self.upstream_subscriptions, self.changes),
            *(self._notifications, self._tasks, self._comparison),
            self._view_updater.audience_of,
        )
        connector = BackendConnector(
            *(self._servers, self.catalog, self._registry),
            new_relay=lambda upstream: create_relay(
                *(upstream, self.settings, self.parked, self.quota, self.interceptors)
            ),
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
        self, upstream: Upstream, whose: VariantKey | UpstreamConnection, kinds: set[ListKind]
    ) -> None:
        """Notify the clients that see a changed variant of a server's lists."""
        edges = {*self._clients.seeing(whose), *self.subscriptions.listening(upstream, whose)}
        for method in {LIST_CHANGED[kind] for kind in kinds}:
            self.changes.changed_for(edges, method)

    def _observe(self, observing: "Observability") -> list[Callable[[], None]]:
        # Imported on demand: only gateways with a journal, metrics or a tool lock need the lookup.
        from .operations.tool_lock_lookup import ToolOriginLookup

        tools = ToolOriginLookup(
            *(self.catalog, self._registry, self._router, self._views),
            search=self.settings.search,
        )
        of = self._resolver.server_of
        return observing.observe_gateway(self.upstreams, self._clients, server_of=of, tools=tools)

    # Servers

    async def connect(self, servers: Mapping[str, ServerEntry | list[ServerEntry]]) -> None:
        """Add servers. Several entries under one name are replicas that share its calls.

        Returns without waiting for the servers, whose items are listed once they are connected.

        Raises:
            ConfigError: An entry is invalid.
        """
        await self._connector.connect(servers)

    def update_settings(
        self, relay: RelaySettings, servers: Mapping[str, list[ServerSpec]]
    ) -> None:
        """Replace the settings for connections and calls from now on. No server is restarted.

        `servers` are the connected servers, whose entries may have new settings of their own.
        """
        self.settings = structs.replace(self.settings, relay=relay)
        self.upstreams.settings, self.parked.limit = relay, relay.max_parked
        for name, specs in servers.items():
            member = self.members.get(name)
            for upstream, spec in zip(member.upstreams if member else (), specs, strict=False):
                upstream.update_settings(relay, spec)

    def arrange(self, names: Iterable[str]) -> None:
        """Set the order of the servers. The first server that lists a URI owns it."""
        self._connector.arrange(names)

    async def disconnect(self, name: str) -> None:
        """Remove a server, and notify clients of the changed lists."""
        await self._connector.disconnect(name)

    @property
    def is_ready(self) -> bool:
        """True once every server has listed its items or is known to be unavailable."""
        return self._registry.is_ready

    async def listed(self) -> None:
        """Wait until each starting server has listed its items, or its `deadline` has passed."""
        await self._lists.ready()

    # Serving

    async def serve(self, channel: Channel) -> None:
        """Serve one anonymous client on a channel until it is closed."""
        await self._endpoint.serve(channel, ANONYMOUS)

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background. Close the returned peer to disconnect it."""
        return self._endpoint.attach(channel, principal)

    async def run_stdio(self) -> None:
        """Serve one client on stdin and stdout until they are closed."""
        from ..transport.stdio.own_stdio import open_stdio

        async with open_stdio() as channel:
            await self.serve(channel)

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> "HttpApp":
        """Return the ASGI app: all servers at `/mcp`, each at `/mcp/NAME`, a page at `/`."""
        # Imported on demand: a gateway on stdio needs no HTTP.
        from ..server.http_app.app import HttpApp

        chosen = settings or HttpSettings(**options)
        if self.observing is not None:
            chosen = self.observing.count_refusals(chosen)
        others = {f"{chosen.path}/{name}": one for name, one in self.endpoints.items()}
        self._status.follow(chosen.session_store)
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
            is_admin=self._is_admin,
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
        """Disconnect all clients, and all servers unless a manager owns them."""
        for stop_listening in self._listeners:
            stop_listening()
        self.parked.close()
        await self.changes.end()
        merged = list(self._clients.merged.values())
        await asyncio.gather(*(client.peer.close() for client in merged))
        await asyncio.gather(*(endpoint.close() for endpoint in self.endpoints.values()))
        await asyncio.gather(*(member.close() for member in self.members.values()))
        # Removals are background tasks, and must complete before background tasks are cancelled.
        await self._connector.wait_until_removed()
        self._registry.clear()
        await self._tasks.close()
        if self._owns_servers:
            await self._servers.close()

    # Clients

    @property
    def clients(self) -> int:
        """The number of connections of clients. Stateless requests do not count."""
        return len(self._clients)

    def sessions(self) -> list[dict[str, Any]]:
        """Return the connected clients as plain data."""
        return self._clients.describe()

    def status(self) -> dict[str, Any]:
        """Return the full state of the gateway and its servers as plain data, for the operator."""
        return self._status.full()

    def show(
        self, views: Mapping[str, View], view: View, roles: Mapping[str, View] | None = None
    ) -> None:
        """Replace all views, and notify the clients whose lists change.

        Clients stop receiving notifications for items outside their view.
        """
        self.settings = structs.replace(self.settings, view=view)
        for one in self.interceptors:
            hooks_of(one).views_changed()
        self._view_updater.show(views, view, roles)
        # Resolved targets depend on views and are cached until this number changes.
        self.catalog.changes += 1

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        """Close all connections of principals that may no longer use the gateway."""
        await self._disconnector.disconnect(principals)

    def access_refused(self, principal: TokenPrincipal) -> None:
        """Report a valid access token that no rule admits."""
        log.warning("no rule of [auth] matches %s; its token is refused", principal)
        for one in self.interceptors:
            hooks_of(one).access_refused(principal)

    # Policies

    def server_of(self, exchange: Exchange) -> str | None:
        """Return the server of a message, by the endpoint or by the item that it names."""
        return self._resolver.server_of(exchange)

    async def wait_until_known(self, exchange: Exchange) -> None:
        """Wait until the server of a call has started, as long as the call itself would wait.

        Raises:
            RpcError: The server takes too long to start.
        """
        await self._resolver.wait_until_known(exchange)


def _version() -> str:
    # Imported here to avoid an import cycle: `fairlead` imports this module.
    from .. import __version__

    return __version__
