"""Disconnection of clients whose access was withdrawn."""

import asyncio
from collections.abc import Awaitable, Container
from typing import Final

from ...interceptor import Answer, Exchange
from ...protocol.caller import Principal
from ...protocol.own_errors import own_error
from ...server.features.change_broadcaster import ChangeBroadcaster
from ...wire.error_codes import INVALID_REQUEST
from ..backends.registry import BackendRegistry
from .client_registry import ClientRegistry
from .client_subscriptions import ClientSubscriptions

__all__ = ["ClientDisconnector"]

_WITHDRAWN: Final = "the token is no longer valid"


class _Call:
    """A call in progress that belongs to no connection, such as a stateless POST."""

    __slots__ = ("disconnected", "principal", "task")

    def __init__(self, principal: Principal, task: asyncio.Task[object]) -> None:
        self.principal = principal
        self.task = task
        self.disconnected = False


class ClientDisconnector:
    """Disconnection of principals.

    Closing a connection ends its calls. Calls that belong to no connection are tracked here.
    """

    def __init__(
        self,
        clients: ClientRegistry,
        registry: BackendRegistry,
        subscriptions: ClientSubscriptions,
        changes: ChangeBroadcaster,
    ) -> None:
        self._clients = clients
        self._registry = registry
        self._subscriptions = subscriptions
        self._changes = changes
        self._calls: set[_Call] = set()  # calls in progress

    def until_disconnected(
        self, exchange: Exchange, answer: Awaitable[Answer]
    ) -> Awaitable[Answer]:
        """Wait for the result of a call of a principal that belongs to no connection.

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
        for listener in self._subscriptions.listeners:
            if listener.principal in principals:
                self._changes.stop(listener.edge)
        for endpoint in self._registry.endpoints.values():
            endpoint.end_listen_streams(principals)
        for call in self._calls:
            if call.principal in principals and not call.disconnected:
                call.disconnected = True
                call.task.cancel()
        peers = [client.peer for client in self._clients if client.principal in principals]
        await asyncio.gather(*(peer.close(_WITHDRAWN) for peer in peers))
