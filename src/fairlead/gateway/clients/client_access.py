"""Changed access of connected clients: disconnection, and replacement of their views."""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from typing import Final

from msgspec import Struct

from ...interceptor import Answer, Exchange
from ...protocol.caller import ANONYMOUS, Principal
from ...protocol.own_errors import own_error
from ...server.features.change_broadcaster import ChangeBroadcaster
from ...wire.error_codes import INVALID_REQUEST
from ..backends.registry import BackendRegistry
from ..catalog.views import ClientViews, View
from .client_registry import ClientRegistry
from .client_sessions import ConnectedClient
from .client_subscriptions import ClientSubscriptions

__all__ = ["ClientDisconnector", "ViewUpdater"]


class ViewUpdater(Struct, eq=False):
    """Replacement of views, with the notifications and subscriptions that it affects.

    `sees_variant` returns True if a client sees a variant of a server's lists.
    """

    views: ClientViews
    clients: ClientRegistry
    registry: BackendRegistry
    subscriptions: ClientSubscriptions
    changes: ChangeBroadcaster
    has_variants: Callable[[], bool] = lambda: False
    sees_variant: Callable[[ConnectedClient, str], bool] = lambda client, server: False

    def audience_of(self, server: str) -> set[object] | None:
        """Return the connections that see the default lists of a server; None if all do."""
        everywhere = all(view.includes(server) for view in self.views)
        if everywhere and not self.has_variants():
            return None
        return {
            *(
                client.peer
                for client in self.clients.merged.values()
                if self._sees(client.principal, server) and not self.sees_variant(client, server)
            ),
            *(
                listener.edge
                for listener in self.subscriptions.listeners
                if self._sees(listener.principal, server)
            ),
        }

    def _sees(self, principal: Principal, server: str) -> bool:
        return self.views.view_for(principal).includes(server)

    def show(
        self, views: Mapping[str, View], default: View, roles: Mapping[str, View] | None = None
    ) -> None:
        """Replace all views, and notify the clients whose lists change."""
        # Principals that are not connected have nothing to notify, so their views are not compared.
        view_for = self.views.view_for
        before = {name: view_for(name) for name in {*self._principals(), ANONYMOUS}}
        self.views.replace(views, default, roles)
        affected = {name for name, old in before.items() if old != view_for(name)}
        edges: set[object] = set()
        for client in list(self.clients.merged.values()):
            if client.principal in affected:
                edges.add(client.peer)
                self._narrow(client)
        for listener in self.subscriptions.listeners:
            if listener.principal in affected:
                edges.add(listener.edge)
                view = view_for(listener.principal)
                # The filter of a listen stream is fixed, so the client must open a new stream.
                if not all(view.permits_uri(uri) for uri in listener.uris):
                    self.changes.stop(listener.edge)
        self.changes.all_lists_changed(edges)
        for endpoint in self.registry.endpoints.values():
            endpoint.views_changed(affected)

    def _principals(self) -> Iterator[Principal]:
        yield from (client.principal for client in self.clients)
        yield from (listener.principal for listener in self.subscriptions.listeners)
        for endpoint in self.registry.endpoints.values():
            yield from (principal for _, principal in endpoint.listeners.values())

    def _narrow(self, client: ConnectedClient) -> None:
        """End the subscriptions and sessions of a client that are outside its new view."""
        view = self.views.view_for(client.principal)
        self.subscriptions.narrow(
            client, lambda server, uri: view.includes(server) and view.permits_uri(uri)
        )
        for member in self.registry.members.values():
            if not view.includes(member.name):
                member.replicas.leave(client)


_WITHDRAWN: Final = "the token is no longer valid"


class _Call(Struct, eq=False):
    """A call in progress that belongs to no connection, such as a stateless POST."""

    principal: Principal
    task: asyncio.Task[object]
    disconnected: bool = False


class ClientDisconnector(Struct, eq=False):
    """Disconnection of principals.

    Closing a connection ends its calls. Calls that belong to no connection are tracked here.
    """

    clients: ClientRegistry
    registry: BackendRegistry
    subscriptions: ClientSubscriptions
    changes: ChangeBroadcaster
    _calls: set[_Call] = set()  # calls in progress

    def until_disconnected(
        self, exchange: Exchange, answer: Awaitable[Answer]
    ) -> Awaitable[Answer]:
        """Wait for the result of a principal's call that belongs to no connection.

        Raises:
            RpcError: The client was disconnected first.
        """
        principal = exchange.caller.principal
        # A listen stream is ended by its subscription.
        if exchange.method == "subscriptions/listen":
            return answer
        return self._track(principal, answer)

    async def _track(self, principal: Principal, answer: Awaitable[Answer]) -> Answer:
        task = asyncio.current_task()
        assert task is not None
        call = _Call(principal, task)
        self._calls.add(call)
        try:
            return await answer
        except asyncio.CancelledError:
            # `uncancel` returns a number above zero if the client has cancelled the call as well.
            if not call.disconnected or task.uncancel():
                raise
            raise own_error(INVALID_REQUEST, _WITHDRAWN) from None
        finally:
            self._calls.discard(call)

    async def disconnect(self, principals: Container[Principal]) -> None:
        """End all connections, listen streams and calls of these principals."""
        for listener in self.subscriptions.listeners:
            if listener.principal in principals:
                self.changes.stop(listener.edge)
        for endpoint in self.registry.endpoints.values():
            endpoint.end_listen_streams(principals)
        for call in self._calls:
            if call.principal in principals and not call.disconnected:
                call.disconnected = True
                call.task.cancel()
        peers = [client.peer for client in self.clients if client.principal in principals]
        await asyncio.gather(*(peer.close(_WITHDRAWN) for peer in peers))
