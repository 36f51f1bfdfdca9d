"""Clients that want to hear of resources, in both eras: what they watch, and at which servers."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, UnsetType

from ...interceptor import Answer, Exchange
from ...protocol.identity.principal import Principal
from ...protocol.own_errors import own_error
from ...relay.request_params import listen_request_for, uris_of
from ...wire.error_codes import INTERNAL_ERROR
from ..backends.backend import Member
from ..handshake_results import CAPABILITIES
from .client_sessions import Visitor
from .upstream_subscriptions import URIS_PER_TURN, Watching

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["ClientSubscriptions", "StatelessListener"]


class StatelessListener(Struct, frozen=True, eq=False):
    """A stateless client that listens."""

    edge: object
    principal: Principal
    uris: list[str]


class ClientSubscriptions:
    """Subscriptions of the clients of a gateway."""

    def __init__(self, gateway: "Gateway", watching: Watching) -> None:
        self._gateway = gateway
        self._watching = watching
        self.listeners: set[StatelessListener] = set()

    async def subscribe(self, exchange: Exchange, visitor: Visitor | None) -> bytes:
        """Raises `RpcError` if nobody has the resource, or its server does not tell of it."""
        gateway = self._gateway
        member = await gateway.router.resource(exchange)
        uri = exchange.head.uri
        assert isinstance(uri, str)
        gateway.changes.subscribe(exchange.edge, uri)
        if visitor is not None and not visitor.gone and visitor.uris.get(uri) != member.name:
            self.unwatch(visitor, uri)  # it was another's before
            visitor.uris[uri] = member.name
            tells = False
            try:
                tells = await self._watching.add(member, uri, visitor, gateway.settings.deadline)
            finally:
                if not tells:  # or it was given up
                    visitor.uris.pop(uri, None)
                    gateway.changes.unsubscribe(exchange.edge, uri)
            if not tells:
                raise own_error(INTERNAL_ERROR, f"{member.name} does not tell of changes of {uri}")
        return b"{}"

    def unsubscribe(self, exchange: Exchange, visitor: Visitor | None) -> bytes:
        uri = exchange.head.uri
        if not isinstance(uri, UnsetType):
            self._gateway.changes.unsubscribe(exchange.edge, uri)
            self.unwatch(visitor, uri)
        return b"{}"

    def unwatch(self, visitor: Visitor | None, uri: str) -> None:
        """A client does not want to hear of it any more, or may not."""
        if visitor is not None and (owner := visitor.uris.pop(uri, None)) is not None:
            self._watching.remove(owner, uri, visitor)

    def narrow(self, visitor: Visitor, permits: Callable[[str, str], bool]) -> None:
        """It hears only of what it may see: of a server, at a URI."""
        for uri, server in list(visitor.uris.items()):
            if not permits(server, uri):
                self._gateway.changes.unsubscribe(visitor.peer, uri)
                self.unwatch(visitor, uri)

    async def listen(self, exchange: Exchange) -> Answer:
        """Hear of lists, and of the resources that the client may see and a server tells of.

        Raises:
            RpcError: -32602, for more streams or resources than a client may have.
        """
        gateway, uris = self._gateway, uris_of(exchange)
        # All that is asked for counts, also resources that no server has: they are looked up, too.
        with gateway.changes.admitted(exchange, len(uris)):
            if uris and not gateway.is_ready:
                await gateway.listed()
            return await self._listen(exchange, await self._owners(exchange, uris))

    async def _owners(self, exchange: Exchange, uris: list[str]) -> dict[str, Member]:
        """Return the servers of the resources that the client may see."""
        gateway, found = self._gateway, dict[str, Member]()
        view = gateway.view_of(exchange.caller)
        for number, uri in enumerate(uris, 1):
            member = gateway.members.get(gateway.catalog.owner(uri, view) or "")
            if member is not None:
                found[uri] = member
            if number % URIS_PER_TURN == 0:
                await asyncio.sleep(0)
        return found

    async def _listen(self, exchange: Exchange, watched: dict[str, Member]) -> Answer:
        gateway = self._gateway
        listener = StatelessListener(exchange.edge, exchange.caller.principal, [])
        deadline = gateway.settings.deadline
        try:
            told = await self._watching.add_all(watched, listener, deadline)
            view = gateway.view_of(exchange.caller)  # it may be another by now
            listener.uris.extend(uri for uri in told if view.permits_uri(uri))
            self.listeners.add(listener)
            wanted = listen_request_for(exchange, listener.uris)
            return await gateway.changes.listen_admitted(wanted, CAPABILITIES)
        finally:
            self.listeners.discard(listener)
            gateway.start(self._remove(listener, watched))

    async def _remove(self, listener: StatelessListener, watched: dict[str, Member]) -> None:
        for number, (uri, member) in enumerate(watched.items(), 1):
            self._watching.remove(member.name, uri, listener)
            if number % URIS_PER_TURN == 0:
                await asyncio.sleep(0)
