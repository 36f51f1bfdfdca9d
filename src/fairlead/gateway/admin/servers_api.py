"""Routes of the admin API for servers and clients."""

import itertools
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import ConfigError
from ...peer import Peer
from ...protocol.targets.list_kind import ListKind
from ...suggestions import unknown_name
from ...upstream.upstream_registry import UpstreamRegistry
from ..backends.registry import BackendRegistry
from ..catalog.merged_catalog import MergedCatalog
from ..clients.client_registry import ClientRegistry
from ..operations.notification_log import NotificationLog
from .route import PageRequest, Route, mistakes
from .status import GatewayStatus

__all__ = ["ClientSessions", "ServersApi"]


class ClientSessions:
    """Numbers that identify clients in the admin API, because session ids are secret."""

    def __init__(self, clients: ClientRegistry) -> None:
        self._clients = clients
        # Weak references, so that closed connections are freed.
        self._numbers: WeakKeyDictionary[Peer, int] = WeakKeyDictionary()
        self._next = itertools.count(1)

    def list(self) -> list[dict[str, Any]]:
        """Return all clients as plain data."""
        facts = self._clients.describe()
        peers = [client.peer for client in self._clients]
        return [{"id": self._number(p), **one} for p, one in zip(peers, facts, strict=True)]

    async def end(self, number: int) -> None:
        """Close the connection of one client, and cancel its requests.

        Raises:
            ConfigError: The number is unknown.
        """
        for client in self._clients:
            if self._number(client.peer) == number:
                await client.peer.close("the session was ended by an administrator")
                return
        raise ConfigError(f"unknown session {number}")

    def _number(self, peer: Peer) -> int:
        number = self._numbers.get(peer)
        if number is None:
            number = self._numbers[peer] = next(self._next)
        return number


class ServersApi:
    """Handlers of requests about servers and clients."""

    def __init__(
        self,
        *,
        upstreams: UpstreamRegistry,
        registry: BackendRegistry,
        catalog: MergedCatalog,
        clients: ClientRegistry,
        notifications: NotificationLog,
        status: GatewayStatus,
        disconnect: Callable[[str], Awaitable[None]],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        """`disconnect` removes a server by its name, `reload` reads the gateway's files again."""
        self._upstreams = upstreams
        self._registry = registry
        self._catalog = catalog
        self._sessions = ClientSessions(clients)
        self._notifications = notifications
        self._status = status
        self._disconnect = disconnect
        self._reload = reload

    def routes(self) -> tuple[Route, ...]:
        """Return all routes."""
        return (
            Route("GET", "/admin/servers", lambda _: self._status.full()["servers"]),
            Route("POST", "/admin/servers/{name:path}/reconnect", self.reconnect),
            Route("POST", "/admin/servers/{name:path}/refresh", self.refresh),
            Route("DELETE", "/admin/servers/{name:path}", self.disconnect),
            Route("POST", "/admin/reload", self.reload),
            Route("GET", "/admin/resources", self.list_resources),
            Route("GET", "/admin/prompts", lambda _: self._listed(ListKind.PROMPTS)),
            Route("GET", "/admin/notifications", lambda _: self._notifications.list()),
            Route("GET", "/admin/sessions", lambda _: self._sessions.list()),
            Route("DELETE", "/admin/sessions/{id}", self.end_session),
        )

    async def reconnect(self, request: PageRequest) -> dict[str, str]:
        """Reconnect a server, even if the gateway has stopped trying to reconnect it."""
        upstream = self._upstreams.get(request.value)
        if upstream is None:
            raise ConfigError(unknown_name("server", request.value, self._upstreams))
        await upstream.reconnect()
        return {"reconnected": request.value}

    def refresh(self, request: PageRequest) -> dict[str, str]:
        """Fetch the lists of a server again."""
        self._registry.members[self._known(request)].refresh()
        return {"refreshing": request.value}

    async def disconnect(self, request: PageRequest) -> dict[str, str]:
        """Remove a server until the gateway is restarted."""
        await self._disconnect(self._known(request))
        return {"disconnected": request.value}

    async def reload(self, request: PageRequest) -> dict[str, list[str]]:
        """Read the gateway's files again, and fetch all lists again."""
        with mistakes():
            await self._reload()
        for member in self._registry.members.values():
            member.refresh()
        return {"reloaded": list(self._registry.members)}

    async def end_session(self, request: PageRequest) -> dict[str, int]:
        """Disconnect a client, which may connect again with a new session."""
        await self._sessions.end(request.number)
        return {"ended": request.number}

    def list_resources(self, request: PageRequest) -> list[dict[str, Any]]:
        """Return the resources and templates of all servers."""
        return self._listed(ListKind.RESOURCES) + self._listed(ListKind.TEMPLATES)

    def _known(self, request: PageRequest) -> str:
        server, members = request.value, self._registry.members
        if server not in members:
            raise ConfigError(unknown_name("server", server, members))
        return server

    def _listed(self, kind: ListKind) -> list[dict[str, Any]]:
        """Return the items that each server lists, under their merged names."""
        servers = {one["server"]: one for one in self._status.full()["servers"]}
        return [
            {
                kind.key: self._catalog.merged_name(kind, server, name) if kind.named else name,
                "server": server,
                "status": about["status"],
                "source": about["source"],
            }
            for server, about in servers.items()
            for name in self._catalog.own_names(kind, server)
        ]
