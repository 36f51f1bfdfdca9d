"""Log levels: each server logs at the lowest level that a client has set."""

from collections.abc import Mapping

from msgspec import Struct

from ...interceptor import Exchange
from ...protocol.own_errors import own_error
from ...relay.request_params import level_of
from ...transport.background_tasks import BackgroundTasks
from ...upstream.connection.relayed_call import LEVELS
from ...upstream.connection.upstream_connection import UpstreamConnection
from ...upstream.upstream import Upstream
from ...wire.error_codes import INVALID_PARAMS
from ..backends.registry import BackendRegistry
from .client_sessions import ConnectedClient
from .upstream_subscriptions import log_failure

__all__ = ["LogLevels"]


class LogLevels(Struct, eq=False):
    """Levels of clients, and the requests that set them at servers.

    `clients` are the clients of the merged endpoint, by peer.
    """

    registry: BackendRegistry
    clients: Mapping[object, ConnectedClient]
    tasks: BackgroundTasks

    async def set(self, exchange: Exchange, client: ConnectedClient | None) -> bytes:
        """Set the log level of a client.

        Raises:
            RpcError: The level is unknown.
        """
        level = level_of(exchange)
        if level not in LEVELS:
            raise own_error(
                INVALID_PARAMS,
                f"Unknown log level {level!r}: expected one of {', '.join(LEVELS)}",
            )
        exchange.edge.log_level = level
        if client is not None:
            client.level = level
            for session in client.sessions.values():
                session.level = level
                self._set_on(session.connection)
        # On the default connection, which clients share, the lowest level of all of them applies.
        for member in self.registry.members.values():
            self._request(member.upstreams, self._lowest() or level)
        return b"{}"

    def apply_to(self, upstreams: list[Upstream]) -> None:
        """Set the current level at new servers, if a client has set one."""
        level = self._lowest()
        if level is not None:
            self._request(upstreams, level)

    def _request(self, upstreams: list[Upstream], level: str) -> None:
        for upstream in upstreams:
            self.tasks.start(log_failure(upstream.set_log_level(level)))

    def _set_on(self, connection: UpstreamConnection | None) -> None:
        """Set the lowest level of the sessions on a connection that is not the default one."""
        if connection is None or connection.stateless or connection.borrowed:
            return
        levels = [session.level for session in connection.sessions if session.level is not None]
        wanted = {"level": min(levels, key=LEVELS.index)} if levels else {}
        self.tasks.start(log_failure(connection.peer.request("logging/setLevel", wanted)))

    def _lowest(self) -> str | None:
        """Return the lowest level of all clients; None if no client has set one."""
        wanted = [one.level for one in self.clients.values() if one.level is not None]
        return min(wanted, key=LEVELS.index, default=None)
