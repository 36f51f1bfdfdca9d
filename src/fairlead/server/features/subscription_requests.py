"""Handlers of `resources/subscribe`, `resources/unsubscribe` and `subscriptions/listen`."""

from collections.abc import Callable
from typing import Any

from ...errors import RpcError
from ...interceptor import Exchange
from ...interceptor.direct_edge import NullReplyPath
from ...wire.error_codes import INVALID_REQUEST, RESOURCE_NOT_FOUND
from ..decode_params import required_uri
from ..execution.handler_errors import error_for_caller
from .change_broadcaster import ChangeBroadcaster
from .resource_registry import Resources

__all__ = ["SubscriptionRequests"]


class SubscriptionRequests:
    """Handlers that register subscriptions of clients with the change broadcaster."""

    def __init__(
        self,
        changes: ChangeBroadcaster,
        resources: Resources,
        capabilities: Callable[[], dict[str, Any]],
    ) -> None:
        self._changes = changes
        self._resources = resources
        self._capabilities = capabilities

    def subscribe(self, exchange: Exchange) -> bytes:
        """Subscribe a session to a resource.

        Raises:
            RpcError: The resource is unknown, or a limit on subscriptions is reached.
        """
        uri = required_uri(exchange)
        if self._resources.find(uri) is None:
            raise self._resources.not_found(uri, RESOURCE_NOT_FOUND)
        self._changes.subscribe(exchange.edge, uri)
        return b"{}"

    def unsubscribe(self, exchange: Exchange) -> bytes:
        """Cancel the subscription of a session to a resource."""
        self._changes.unsubscribe(exchange.edge, required_uri(exchange))
        return b"{}"

    async def listen(self, exchange: Exchange) -> bytes:
        """Serve `subscriptions/listen` until the subscription ends.

        Raises:
            RpcError: The request came without a connection, or the subscription is rejected; the
                error is logged.
        """
        try:
            if isinstance(exchange.edge, NullReplyPath):
                raise RpcError(INVALID_REQUEST, "subscriptions/listen requires a connection")
            return await self._changes.listen(exchange, self._capabilities())
        except Exception as exc:
            raise error_for_caller(exc, exchange) from None
