"""The merged endpoint `/mcp`: all servers of a gateway under merged names."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..interceptor import Interceptor, malformed_frame_hook
from ..peer import Peer
from ..protocol.caller import Caller
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.envelope import TransportContext
from ..protocol.headers import ParamHeader
from ..protocol.identity.principal import Principal
from ..protocol.outgoing_params import Identity
from ..server.features.change_broadcaster import ChangeBroadcaster
from ..server.http_app.endpoint_handler import EndpointHandler
from ..transport.channel import Channel
from ..wire import Notification
from .backends.registry import BackendRegistry
from .catalog.merged_catalog import MergedCatalog
from .clients.client_registry import ClientRegistry
from .clients.client_sessions import ConnectedClient
from .clients.client_subscriptions import ClientSubscriptions
from .clients.client_views import ClientViews
from .handshake_results import CAPABILITIES
from .merged_dispatch import MergedDispatcher

if TYPE_CHECKING:
    from ..policy.hold_desk import HoldDesk

__all__ = ["MergedEndpoint"]


class MergedEndpoint(EndpointHandler):
    """Endpoint that serves the clients of all servers."""

    def __init__(
        self,
        dispatcher: MergedDispatcher,
        *,
        info: dict[str, Any],
        clients: ClientRegistry,
        registry: BackendRegistry,
        catalog: MergedCatalog,
        views: ClientViews,
        subscriptions: ClientSubscriptions,
        changes: ChangeBroadcaster,
        interceptors: Sequence[Interceptor],
        desk: "HoldDesk | None",
        input_timeout: float,
    ) -> None:
        self.handler = dispatcher.handler
        self.answer_inline = dispatcher.answer_inline
        self.inline_methods = dispatcher.inline_methods
        self.on_malformed = malformed_frame_hook(interceptors)
        self._info = info
        self._clients = clients
        self._registry = registry
        self._catalog = catalog
        self._views = views
        self._subscriptions = subscriptions
        self._changes = changes
        self._interceptors = interceptors
        self._desk = desk
        self._input_timeout = input_timeout

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one client in the background. Close the returned peer to disconnect it."""
        client = ConnectedClient(principal, self._input_timeout, self._interceptors)
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
                note, client.peer, lambda passed: _forward_notification(client, passed)
            ),
            on_cancelled=lambda note, cancel: client.incoming.cancel(note, client.peer, cancel),
            on_eof=self._changes.stop,
            on_close=lambda _: self._disconnected(client),
            input_timeout=self._input_timeout,
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
            self._desk.block_all("the gateway ends")
        await self._changes.end()


def _forward_notification(client: ConnectedClient, note: Notification) -> None:
    # Belongs to the handshake with the gateway, which servers do not take part in.
    if note.method == "notifications/initialized":
        return
    for session in list(client.sessions.values()):
        connection = session.connection
        # The default connection is shared and was opened without the capabilities of this client.
        if connection is not None and not connection.stateless and not connection.borrowed:
            connection.outbox.put(note)
