"""Log levels: each server logs at the lowest level that a client has set."""

from collections.abc import Mapping

from ...interceptor import Exchange
from ...manager import MCPManager
from ...protocol.own_errors import own_error
from ...relay.relayed_call import LEVELS
from ...relay.request_params import level_of
from ...relay.upstream_connection import Link
from ...wire.error_codes import INVALID_PARAMS
from ..backends.registry import BackendRegistry
from ..background_tasks import BackgroundTasks
from .client_sessions import ConnectedClient
from .upstream_subscriptions import log_failure

__all__ = ["LogLevels"]


class LogLevels:
    """Sets the levels of clients, and requests them from servers."""

    def __init__(
        self,
        manager: MCPManager,
        registry: BackendRegistry,
        clients: Mapping[object, ConnectedClient],
        tasks: BackgroundTasks,
    ) -> None:
        """`clients` are those of the merged endpoint."""
        self._manager = manager
        self._registry = registry
        self._clients = clients
        self._tasks = tasks

    async def set(self, exchange: Exchange, client: ConnectedClient | None) -> bytes:
        """Set the level of a client.

        Raises:
            RpcError: There is no such level.
        """
        level = level_of(exchange)
        if level not in LEVELS:
            raise own_error(
                INVALID_PARAMS, f"No log level {level!r}; there are {', '.join(LEVELS)}"
            )
        exchange.edge.log_level = level
        if client is not None:
            client.level = level
            for front in client.fronts.values():
                front.level = level
                self._set_on(front.link)
        for name in self._registry.servers:
            self._request(name, self._lowest() or level)
        return b"{}"

    def apply_to(self, servers: list[str]) -> None:
        """Request the current level from new servers, if a client has set one."""
        level = self._lowest()
        if level is not None:
            for name in servers:
                self._request(name, level)

    def _request(self, server: str, level: str) -> None:
        supervisor = self._manager.describe().get(server)
        if supervisor is not None:
            self._tasks.start(log_failure(supervisor.set_log_level(level)))

    def _set_on(self, link: Link | None) -> None:
        """Request the lowest level of its sessions on a connection that is not the manager's."""
        if link is None or link.stateless or link.borrowed:
            return
        levels = [front.level for front in link.fronts if front.level is not None]
        wanted = {"level": min(levels, key=LEVELS.index)} if levels else {}
        self._tasks.start(log_failure(link.peer.request("logging/setLevel", wanted)))

    def _lowest(self) -> str | None:
        """Return the lowest level of all clients, because a server has one level for all."""
        wanted = [one.level for one in self._clients.values() if one.level is not None]
        return min(wanted, key=LEVELS.index, default=None)
