"""The merged endpoint `/mcp`: all servers of a gateway under merged names.

Requests are dispatched through a table of handlers by method.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..interceptor import Answer, Exchange, Handler, Interceptor, chain, malformed_frame_hook
from ..peer import Peer
from ..protocol.caller import ANONYMOUS, Caller, Principal
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import TransportContext
from ..protocol.headers import ParamHeader
from ..protocol.methods import METHOD_NAMES, by_era
from ..protocol.outgoing_params import Identity
from ..protocol.own_errors import own_error
from ..protocol.targets.list_kind import ListKind
from ..protocol.targets.targets import Target
from ..server.features.change_broadcaster import ChangeBroadcaster
from ..server.http_app.endpoint_handler import EndpointHandler
from ..server.results.result_envelope import ResultEnvelope
from ..transport.channel import Channel
from ..wire import Notification
from ..wire.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from .backends.registry import BackendRegistry
from .catalog.list_requests import MergedLists
from .catalog.merged_catalog import MergedCatalog
from .catalog.routing import Router
from .catalog.views import ClientViews
from .clients.client_registry import ClientRegistry
from .clients.client_sessions import ConnectedClient
from .clients.client_subscriptions import ClientSubscriptions
from .clients.log_levels import LogLevels
from .handshake_results import CAPABILITIES, HandshakeResults

if TYPE_CHECKING:
    from ..policy.hold_desk import HoldDesk

    # Imported on demand, because most gateways do not use the search.
    from .search.search_tools import SearchTools

__all__ = ["MergedEndpoint"]

_Handle: TypeAlias = Callable[[Exchange, ConnectedClient | None], Awaitable[Answer]]


class MergedEndpoint(EndpointHandler):
    """Endpoint `/mcp`, where clients use all servers under merged names."""

    def __init__(
        self,
        *,
        info: dict[str, Any],
        clients: ClientRegistry,
        registry: BackendRegistry,
        catalog: MergedCatalog,
        lists: MergedLists,
        router: Router,
        views: ClientViews,
        subscriptions: ClientSubscriptions,
        changes: ChangeBroadcaster,
        log_levels: LogLevels,
        handshake: HandshakeResults,
        envelope: ResultEnvelope,
        interceptors: Sequence[Interceptor],
        search: "SearchTools | None",
        desk: "HoldDesk | None",
        until_disconnected: Callable[[Exchange, Awaitable[Answer]], Awaitable[Answer]],
    ) -> None:
        """`until_disconnected` waits for the result of a call that belongs to no connection."""
        self.handler: Handler = chain(interceptors, self._handle)
        # With interceptors, no method is inline: interceptors must see every request.
        self.inline_methods: set[str] = set() if interceptors else {"ping", "tools/list"}
        self.on_malformed = malformed_frame_hook(interceptors)
        self._handle_found_call: Handler = chain(interceptors, self._call_found)
        self._info = info
        self._clients = clients
        self._registry = registry
        self._catalog = catalog
        self._lists = lists
        self._router = router
        self._views = views
        self._subscriptions = subscriptions
        self._changes = changes
        self._envelope = envelope
        self._interceptors = interceptors
        self._search = search
        self._desk = desk
        self._until_disconnected = until_disconnected
        handlers: dict[str, _Handle] = {
            **{kind.method: partial(self._list, kind) for kind in ListKind},
            "tools/call": self._call_tool if search is None else self._call_or_search,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "resources/subscribe": subscriptions.subscribe,
            "resources/unsubscribe": subscriptions.unsubscribe,
            "completion/complete": self._complete,
            "subscriptions/listen": lambda exchange, _: subscriptions.listen(exchange),
            "logging/setLevel": log_levels.set,
            "initialize": handshake.initialize,
            "server/discover": lambda exchange, _: handshake.discover(exchange),
            "ping": _ping,
        }
        self._handlers = by_era(handlers)

    # Clients

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background. Close the returned peer to disconnect it."""
        client = ConnectedClient(principal, self._interceptors)
        client.on_attached = partial(self._subscriptions.session_attached, client)
        client.on_lost = partial(self._subscriptions.session_lost, client)
        peer = Peer(
            channel,
            Conversation(
                ConversationRole.SERVER, Identity(self._info, CAPABILITIES), principal=principal
            ),
            handler=self.handler,
            inline=self.answer_inline,
            inline_methods=self.inline_methods,
            on_notification=lambda note: client.incoming.put(
                note, client.peer, lambda passed: self._forward_notification(client, passed)
            ),
            on_cancelled=lambda note, cancel: client.incoming.cancel(note, client.peer, cancel),
            on_eof=self._changes.stop,
            on_close=lambda _: self._disconnected(client),
        )
        client.connect(peer)
        self._clients.merged[peer] = client
        peer.start()
        return peer

    async def serve(self, channel: Channel, principal: Principal) -> None:
        """Serve one client on a channel until the channel is closed."""
        peer = self.attach(channel, principal)
        try:
            await peer.wait_closed()
        finally:
            await self._changes.end(peer)
            await peer.close()

    def _forward_notification(self, client: ConnectedClient, note: Notification) -> None:
        # The client's handshake is with the gateway, which has its own handshakes with servers.
        if note.method == "notifications/initialized":
            return
        if self._views.view_for(client.principal).selects_items and note.method not in METHOD_NAMES:
            return  # it may name an item outside the view
        for session in list(client.sessions.values()):
            connection = session.connection
            # Clients share the default connection, so it carries no notifications of single
            # clients.
            if connection is not None and not connection.stateless and not connection.borrowed:
                connection.outbox.put(note)

    def _disconnected(self, client: ConnectedClient) -> None:
        self._clients.merged.pop(client.peer, None)
        client.close()
        for member in self._registry.members.values():
            member.replicas.leave(client)
        # A copy, because `unwatch` removes URIs from the client.
        for uri in list(client.uris):
            self._subscriptions.unwatch(client, uri)
        self._changes.forget(client.peer)

    def on_stateless_notification(
        self, note: Notification, caller: Caller, context: TransportContext
    ) -> None:
        """Drop a notification of a stateless client, because it does not name a server."""

    def tool_param_headers(self, tool: str, principal: Principal) -> tuple[ParamHeader, ...]:
        """Return the arguments of a tool that clients also send as headers."""
        return self._catalog.param_headers(tool, self._views.view_for(principal))

    async def end_streams(self) -> None:
        """End all listen streams, and refuse messages that are held for a decision."""
        if self._desk is not None:
            self._desk.block_all("the gateway is closing")
        await self._changes.end()

    # Requests

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Answer a request that needs no wait; return None for other requests."""
        if exchange.method == "ping" and not exchange.caller.stateless:
            return b"{}"
        if exchange.method == "tools/list" and self._registry.is_ready:
            client = self._clients.merged.get(exchange.edge)
            if self._lists.is_ready_for(exchange, client):
                page = self._lists.page(ListKind.TOOLS, exchange, client)
                return self._envelope.listed(page, exchange.caller)
        return None

    def _handle(self, exchange: Exchange) -> Awaitable[Answer]:
        client = self._clients.merged.get(exchange.edge)
        if client is None:
            answer = self._find(exchange)(exchange, None)
            if exchange.caller.principal is ANONYMOUS:
                return answer
            return self._until_disconnected(exchange, answer)
        return self._handle_in_order(exchange, client)

    async def _handle_in_order(self, exchange: Exchange, client: ConnectedClient) -> Answer:
        # Earlier notifications are still queued for the interceptors and must take effect first.
        await client.incoming.passed()
        return await self._find(exchange)(exchange, client)

    def _find(self, exchange: Exchange) -> _Handle:
        """Return the handler of a method. Raises `RpcError` -32601 if the method is unknown."""
        handle = self._handlers[exchange.caller.stateless].get(exchange.method)
        if handle is None:
            raise own_error(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        return handle

    async def _list(
        self, kind: ListKind, exchange: Exchange, client: ConnectedClient | None
    ) -> Answer:
        await self._lists.ready_for(exchange, client)
        return self._envelope.listed(self._lists.page(kind, exchange, client), exchange.caller)

    async def _call_tool(self, exchange: Exchange, client: ConnectedClient | None) -> Answer:
        target = self._catalog.tool(exchange.target or "", self._views.view_of(exchange.caller))
        if target is None:
            target = await self._router.tool(exchange)
        return await self._forward(target, exchange, client)

    async def _get_prompt(self, exchange: Exchange, client: ConnectedClient | None) -> Answer:
        return await self._forward(await self._router.prompt(exchange), exchange, client)

    async def _read_resource(self, exchange: Exchange, client: ConnectedClient | None) -> Answer:
        member = await self._router.resource(exchange)
        return await member.replicas.answer(exchange, client)

    async def _complete(self, exchange: Exchange, client: ConnectedClient | None) -> Answer:
        member, request = await self._router.completing(exchange)
        return await member.replicas.answer(request, client)

    def _forward(
        self, target: Target, exchange: Exchange, client: ConnectedClient | None
    ) -> Awaitable[Answer]:
        member = self._registry.members.get(target.server or "")
        if member is None:
            raise own_error(INVALID_PARAMS, f"Server {target.server!r} was removed")
        # The server knows the item by its own name only.
        exchange.alias = target.own
        return member.replicas.answer(exchange, client)

    # Search

    async def _call_or_search(self, exchange: Exchange, client: ConnectedClient | None) -> Answer:
        assert self._search is not None
        found = await self._search.answer(exchange, self._views.view_of(exchange.caller))
        if found is None:
            return await self._call_tool(exchange, client)
        if isinstance(found, Exchange):
            # The inner call passes the interceptors under the tool's name, so policies apply.
            return await self._handle_found_call(found)
        return self._envelope.called(found, exchange.caller)

    async def _call_found(self, exchange: Exchange) -> Answer:
        """Forward the call inside a `call_tool`, which has passed the interceptors."""
        target = self._catalog.tool(exchange.target or "", self._views.view_of(exchange.caller))
        if target is None:
            raise self._router.unknown(ListKind.TOOLS, exchange.target, exchange)
        return await self._forward(target, exchange, self._clients.merged.get(exchange.edge))


async def _ping(exchange: Exchange, client: ConnectedClient | None) -> Answer:
    return b"{}"
