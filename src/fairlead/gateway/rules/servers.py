"""Which server a message is for or from, where several are behind one endpoint."""

from typing import TYPE_CHECKING

from ...interceptor import Exchange
from ...protocol.envelope import Direction
from .facts import ServerOf

if TYPE_CHECKING:
    from ..gateway import Gateway
    from ..relay import Relay

__all__ = ["server_of_gateway", "server_of_relay"]


def server_of_relay(relay: "Relay") -> ServerOf:
    """There is only one."""
    name = relay.name
    return lambda exchange: name


def server_of_gateway(gateway: "Gateway") -> ServerOf:
    """By the door that a client came through, by what it wants, or by who asks it."""

    def find(exchange: Exchange) -> str | None:
        if exchange.direction is Direction.SERVER_TO_CLIENT:
            return _asking(gateway, exchange)
        return exchange.server or _door(gateway, exchange) or _owner(gateway, exchange)

    return find


def _door(gateway: "Gateway", exchange: Exchange) -> str | None:
    for name, door in gateway.doors.items():
        if exchange.edge in door.guests:
            return name
    return None


def _owner(gateway: "Gateway", exchange: Exchange) -> str | None:
    target, view = exchange.target, gateway.view_of(exchange.caller)
    if target is None:
        return None
    if exchange.method.startswith("resources/"):
        return gateway.catalog.owner(target, view)
    look = {"tools/call": gateway.catalog.tool, "prompts/get": gateway.catalog.prompt}
    found = look[exchange.method](target, view) if exchange.method in look else None
    return None if found is None else found.server


def _asking(gateway: "Gateway", exchange: Exchange) -> str | None:
    edge = exchange.edge
    for member in gateway.members.values():
        for replica in member.replicas:
            if any(link.peer is edge for link in replica.relay.upstream.links):
                return member.name
            known = gateway.manager.describe().get(replica.name)
            client = None if known is None else known.client
            if client is not None and client.transport.peer is edge:
                return member.name
    return None
