"""Who sees what of a gateway, and what happens when that changes while they are there."""

import asyncio
from collections.abc import Awaitable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ...interceptor import Answer, Exchange
from ...protocol.identity.principal import ANONYMOUS, Principal
from ...protocol.own_errors import own_error
from ...wire.error_codes import INVALID_REQUEST
from ..catalog.views import View
from .client_sessions import Visitor

if TYPE_CHECKING:
    from ..gateway import Gateway

__all__ = ["ViewUpdater"]

_WITHDRAWN: Final = "the token is not valid any more"


class _Call:
    """A call outside of any connection."""

    __slots__ = ("dismissed", "principal", "task")

    def __init__(self, principal: Principal, task: asyncio.Task[object]) -> None:
        self.principal = principal
        self.task = task
        self.dismissed = False


class ViewUpdater:
    """The views of a gateway's clients; those who have none see what everybody does."""

    def __init__(self, gateway: "Gateway", views: Mapping[str, View], everybody: View) -> None:
        self._gateway = gateway
        self._views = dict(views)
        self._everybody = everybody
        self._calls: set[_Call] = set()  # under way, outside of connections

    def view_for(self, principal: Principal) -> View:
        """What somebody gets to see."""
        view = self._views.get(principal) if isinstance(principal, str) else None
        return self._everybody if view is None else view

    def audience_of(self, server: str) -> set[object] | None:
        """Return the connections whose views have a server; None if all views have it."""
        if all(view.includes(server) for view in (self._everybody, *self._views.values())):
            return None
        gateway = self._gateway
        return {
            *(one.peer for one in gateway.own_visitors() if self._sees(one.principal, server)),
            *(
                one.edge
                for one in gateway.subscribing.listeners
                if self._sees(one.principal, server)
            ),
        }

    def _sees(self, principal: Principal, server: str) -> bool:
        return self.view_for(principal).includes(server)

    def show(self, views: Mapping[str, View], everybody: View) -> None:
        """From now on principals see this; those for whom it changes hear that lists have."""
        gateway = self._gateway
        before = {name: self.view_for(name) for name in {*self._principals(), ANONYMOUS}}
        self._views, self._everybody = dict(views), everybody
        affected = {name for name, old in before.items() if old != self.view_for(name)}
        edges: set[object] = set()
        for visitor in gateway.own_visitors():
            if visitor.principal in affected:
                edges.add(visitor.peer)
                self._narrow(visitor)
        for one in gateway.subscribing.listeners:
            if one.principal in affected:
                edges.add(one.edge)
                if not all(self.view_for(one.principal).permits_uri(uri) for uri in one.uris):
                    gateway.changes.stop(one.edge)
        gateway.changes.all_lists_changed(edges)
        for door in gateway.doors.values():
            door.views_changed(affected)

    def _principals(self) -> Iterator[Principal]:
        gateway = self._gateway
        yield from (visitor.principal for visitor in gateway.visitors())
        yield from (one.principal for one in gateway.subscribing.listeners)
        for door in gateway.doors.values():
            yield from (principal for _, principal in door.listening.values())

    def _narrow(self, visitor: Visitor) -> None:
        """A client sees other things now: what it does not see, it does not hear of."""
        view, gateway = self.view_for(visitor.principal), self._gateway
        gateway.subscribing.narrow(
            visitor, lambda server, uri: view.includes(server) and view.permits_uri(uri)
        )
        for member in gateway.members.values():
            if not view.includes(member.name):
                member.left(visitor)

    def until_disconnected(
        self, exchange: Exchange, answer: Awaitable[Answer]
    ) -> Awaitable[Answer]:
        """Wait for the answer to a call outside of any connection.

        Raises:
            RpcError: its client was dismissed first.
        """
        principal = exchange.caller.principal
        if principal is ANONYMOUS or exchange.method == "subscriptions/listen":
            return answer  # which costs a call less than waiting for it here
        return self._until_dismissed(principal, answer)

    async def _until_dismissed(self, principal: Principal, answer: Awaitable[Answer]) -> Answer:
        task = asyncio.current_task()
        assert task is not None
        call = _Call(principal, task)
        self._calls.add(call)
        try:
            return await answer
        except asyncio.CancelledError:
            if not call.dismissed or task.uncancel():
                raise
            raise own_error(INVALID_REQUEST, _WITHDRAWN) from None
        finally:
            self._calls.discard(call)

    async def disconnect_clients(self, principals: Container[Principal]) -> None:
        """End all connections of somebody who may not come in any more."""
        gateway = self._gateway
        for one in gateway.subscribing.listeners:
            if one.principal in principals:
                gateway.changes.stop(one.edge)
        for door in gateway.doors.values():
            door.end_listen_streams(principals)
        for call in self._calls:
            if call.principal in principals and not call.dismissed:
                call.dismissed = True
                call.task.cancel()
        peers = [one.peer for one in gateway.visitors() if one.principal in principals]
        await asyncio.gather(*(peer.close(_WITHDRAWN) for peer in peers))
