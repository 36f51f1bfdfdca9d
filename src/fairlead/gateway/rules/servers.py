"""Which server a message is for or from, where several are behind one endpoint."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ...errors import RpcError
from ...interceptor import Exchange
from ...protocol.envelope import Direction
from ..asked import reference_of
from .facts import ServerOf

if TYPE_CHECKING:
    from ..gateway import Gateway
    from ..relay import Relay

__all__ = ["known_to_gateway", "server_of_gateway", "server_of_relay"]

_WITH_URI: Final = ("resources/read", "resources/subscribe", "resources/unsubscribe")


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
        find: Callable[[Exchange], Awaitable[object]] | None = {
            "tools/call": finding.tool,
            "prompts/get": finding.prompt,
            "completion/complete": finding.completing,
            **dict.fromkeys(_WITH_URI, finding.resource),
        }.get(exchange.method)
        if find is None or _door(gateway, exchange) is not None:
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
    method, target, view = exchange.method, exchange.target, gateway.view_of(exchange.caller)
    catalog = gateway.catalog
    if method == "completion/complete":
        return _completing(gateway, exchange)
    if target is None:
        return None
    if method.startswith("resources/"):
        return catalog.owner(target, view)
    look = {"tools/call": catalog.tool, "prompts/get": catalog.prompt}.get(method)
    found = None if look is None else look(target, view)
    return None if found is None else found.server


def _completing(gateway: "Gateway", exchange: Exchange) -> str | None:
    """Who completes an argument: whose the prompt or the template is."""
    view = gateway.view_of(exchange.caller)
    try:
        reference = reference_of(exchange)
    except RpcError:
        return None  # whoever is to answer it says what is wrong with it
    if reference.uri is not None:
        return gateway.catalog.template_owner(reference.uri, view)
    found = gateway.catalog.prompt(reference.name or "", view)
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
