"""Replacement of lost connections, for sessions of the handshake era."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from msgspec import Raw

from ..errors import RequestTimeout, RpcError
from ..protocol.caller import Caller, has_roots
from ..protocol.own_errors import own_error
from ..transport import timeouts
from ..upstream.connection.connection_pool import UpstreamPool
from ..upstream.connection.relayed_call import LEVELS
from ..upstream.connection.upstream_connection import UpstreamConnection, end_subscription
from ..wire.error_codes import INVALID_PARAMS
from .bridge.handshake_to_stateless import HandshakeToStateless, possibly_missed_changes
from .client_session import ClientSession

__all__ = ["UpstreamSessionRestorer"]

# seconds that the first call waits for `roots/list`, if the server is known to send it
ROOTS_KNOWN = 2.0
ROOTS_UNKNOWN = 0.05  # seconds of the same wait, if the server is not known to send it

_NOT_RESTORED = "cannot restore the log level and all subscriptions"

log = logging.getLogger("fairlead.gateway")


class UpstreamSessionRestorer:
    """Reconnection of client sessions, with their log levels and subscriptions."""

    def __init__(
        self,
        pool: UpstreamPool,
        bridge_for: Callable[[UpstreamConnection], HandshakeToStateless],
    ) -> None:
        """`bridge_for` returns the bridge to a stateless server."""
        self._pool = pool
        self._bridge_for = bridge_for

    async def connection_of(self, session: ClientSession, caller: Caller) -> UpstreamConnection:
        """Return the connection of a session, or a new connection if it was lost.

        Raises:
            RpcError: The client has not sent `initialize`, or the server refused it.
            FairleadError: The server cannot be reached.
        """
        connection = session.connection
        # While earlier requests wait for a connection, later requests queue behind them.
        if connection is None or not connection.alive or session.joining:
            connection = await self.reconnect(session, caller)
        connection.activate()
        return connection

    async def reconnect(self, session: ClientSession, caller: Caller) -> UpstreamConnection:
        """Connect a session whose connection was lost.

        Raises:
            RpcError: The client has not sent `initialize`, or the server refused it.
            FairleadError: The server cannot be reached.
        """
        if session.introduction is None:
            raise own_error(INVALID_PARAMS, "Missing handshake: send initialize first")
        session.joining += 1
        try:
            # The lock is fair, so requests that arrive meanwhile keep their order.
            async with session.opening:
                connection = session.connection
                if connection is None or not connection.alive:
                    connection = await self._pool.for_session(session, session.introduction, caller)
                    session.connection = connection
                    await self._restore(session, connection)
                    await self._wait_for_roots(connection, caller)
                return connection
        finally:
            session.joining -= 1

    async def move(self, session: ClientSession, caller: Caller) -> UpstreamConnection:
        """Move a session to another connection, because calls of other sessions occupy its own.

        Raises:
            FairleadError: The limit of connections is reached, or a connection cannot be opened.
        """
        assert session.introduction is not None
        async with session.opening:
            old = session.connection
            connection = await self._pool.another_for_session(session, session.introduction, caller)
            session.connection = connection
            if old is not None:
                for uri in session.uris:
                    end_subscription(old, uri, session)
                await self._pool.leave(session, old)
            await self._restore(session, connection)
            await self._wait_for_roots(connection, caller)
            return connection

    async def _wait_for_roots(self, connection: UpstreamConnection, caller: Caller) -> None:
        """Wait until the server has requested the roots of the client.

        Most servers request roots after the handshake. A call that reaches the server before the
        response to that request would use the wrong folders.
        """
        # A borrowed connection is the default connection, whose owner has completed the handshake.
        if connection.stateless or connection.borrowed or not has_roots(caller.capabilities):
            return
        known = self._pool.facts.asks_roots_early
        with contextlib.suppress(TimeoutError):
            async with timeouts.timeout(ROOTS_KNOWN if known else ROOTS_UNKNOWN):
                await connection.roots_answered.wait()

    async def _restore(self, session: ClientSession, connection: UpstreamConnection) -> None:
        if connection.stateless:
            await self._bridge_for(connection).joined()
            await self._bridge_for(connection).follow()
        else:
            connection.activate()
            # The gateway itself restores the subscriptions of the shared default connection.
            if connection.borrowed and not session.restores_default:
                return
            await self._send_again(session, connection)
        session.attached()
        # A disconnected server could not report changes, so clients must read everything again.
        for note in possibly_missed_changes(connection, session):
            session.tell(note)

    async def _send_again(self, session: ClientSession, connection: UpstreamConnection) -> None:
        """Send the log level and the subscriptions again, separately, so that one refusal affects
        no other. A server that does not respond in time is used nevertheless.
        """
        requests: list[Awaitable[Raw]] = []
        if session.level is not None:
            # A connection has one level, the lowest of all its sessions.
            levels = [one.level for one in connection.sessions if one.level in LEVELS]
            level = min(levels, key=LEVELS.index, default=session.level)
            requests.append(connection.peer.request("logging/setLevel", {"level": level}))
        for uri in session.uris:
            connection.uris.setdefault(uri, set()).add(session)
            requests.append(connection.peer.request("resources/subscribe", {"uri": uri}))
        limit = self._pool.settings.connect_timeout
        try:
            async with timeouts.timeout(limit or None):
                outcomes = await asyncio.gather(*requests, return_exceptions=True)
        except TimeoutError:
            outcomes = [RequestTimeout(limit, "resources/subscribe")]
        for outcome in outcomes:
            if isinstance(outcome, RpcError | RequestTimeout):
                log.warning("%s: %s: %s", connection.name, _NOT_RESTORED, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
