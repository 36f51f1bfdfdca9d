"""The clients that are connected to a gateway."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...protocol.caller import Principal, principal_name
from ...protocol.identity.token_principal import TokenPrincipal
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...upstream.list_variants import VariantKey, variant_key
from ..server_endpoint import SingleServerEndpoint
from .client_sessions import ConnectedClient

__all__ = ["ClientRegistry"]


class ClientRegistry:
    """Connected clients at all endpoints of a gateway. Stateless requests are not registered."""

    def __init__(self, endpoints: Mapping[str, SingleServerEndpoint]) -> None:
        """`endpoints` are the endpoints of single servers, which register their own clients."""
        self.merged: dict[object, ConnectedClient] = {}  # clients of the merged endpoint, by peer
        self._endpoints = endpoints

    def __iter__(self) -> Iterator[ConnectedClient]:
        yield from self.merged.values()
        for endpoint in self._endpoints.values():
            yield from endpoint.clients.values()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def seeing(self, whose: VariantKey | UpstreamConnection) -> Iterator[object]:
        """Yield the connections of merged clients whose lists depend on a variant key or a
        connection.
        """
        for client in self.merged.values():
            if isinstance(whose, UpstreamConnection):
                if any(session.connection is whose for session in client.sessions.values()):
                    yield client.peer
            elif (caller := client.peer.conversation.peer) and variant_key(caller) == whose:
                yield client.peer

    def describe(self) -> list[dict[str, Any]]:
        """Return the clients as plain data, in the order of iteration."""
        return [
            {
                "client": (client.peer.session.client_info or {}).get("name"),
                "protocol_version": client.peer.session.protocol_version,
                "principal": principal_name(client.principal),
                "role": _role(client.principal),
                "transport": client.peer.channel.context.transport_type,
                "subscriptions": sorted(client.uris),
            }
            for client in self
        ]


def _role(principal: Principal) -> str | None:
    return principal.role if isinstance(principal, TokenPrincipal) else None
