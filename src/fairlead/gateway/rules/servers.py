"""Which server a message is for or from, where several are behind one endpoint."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.envelope import Direction
from .facts import ServerOf

if TYPE_CHECKING:
    from ..gateway import Gateway
    from ..relay import Relay

__all__ = ["known_to_gateway", "server_of_gateway", "server_of_relay"]


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


def known_to_gateway(gateway: "Gateway") -> Callable[[Exchange], Awaitable[None]]:
    """Waits for a server that just starts, as long as the gateway will: or a rule about it would
    be asked before anybody knows whose a call is, and the call be passed on afterwards."""

    async def known(exchange: Exchange) -> None:
        await gateway.listed()
        if exchange.direction is Direction.SERVER_TO_CLIENT or exchange.server is not None:
            return
        finding = gateway.finding
        find = {"tools/call": finding.tool, "prompts/get": finding.prompt}.get(exchange.method)
        if find is None or exchange.target is None or _door(gateway, exchange) is not None:
            return
        try:
            await find(exchange)
        except RpcError as exc:
            if isinstance(exc.data, dict) and exc.data.get("starting"):
                raise  # it may be there in a moment, but the rules must be asked behind that

    return known


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
