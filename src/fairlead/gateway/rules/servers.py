"""Which server a message is for or from, where several are behind one endpoint."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...interceptor import Exchange
from ..target_resolver import TargetResolver
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
    """By the endpoint of a client, by what it wants, or by the server that asks it."""
    return TargetResolver(gateway).server_of


def known_to_gateway(gateway: "Gateway") -> Callable[[Exchange], Awaitable[None]]:
    """Wait for a server that just starts, as long as the gateway will: or a rule about it would
    be asked before it is known whose a call is, and the call be passed on afterwards."""
    resolver = TargetResolver(gateway)

    async def known(exchange: Exchange) -> None:
        await resolver.known(exchange)

    return known
