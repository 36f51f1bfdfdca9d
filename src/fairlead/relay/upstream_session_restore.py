"""Connections in place of lost ones, for sessions of the handshake era."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ..errors import RpcError
from ..protocol.caller import Caller
from ..protocol.own_errors import own_error
from ..wire.error_codes import INVALID_PARAMS
from .bridge.client_capabilities import has_roots
from .bridge.handshake_to_stateless import HandshakeToStateless, possibly_missed_changes
from .client_session import Front
from .upstream_connection import Link
from .upstream_pool import Upstream

__all__ = ["UpstreamSessionRestorer"]

ROOTS_KNOWN = 2.0  # seconds that the first request waits for a server that asks for roots
ROOTS_UNKNOWN = 0.05  # the same for a server of which that is not known

log = logging.getLogger("fairlead.gateway")


class UpstreamSessionRestorer:
    """Reconnects sessions of clients and asks the server again for what each had asked for."""

    def __init__(
        self, upstream: Upstream, bridge_for: Callable[[Link], HandshakeToStateless]
    ) -> None:
        """`bridge_for` returns the bridge to a stateless server."""
        self._upstream = upstream
        self._bridge_for = bridge_for

    async def connection_of(self, front: Front, caller: Caller) -> Link:
        """Return the connection that serves a session, a new one if it was lost.

        Raises:
            RpcError: The client has not sent `initialize`, or the server refused it.
            FairleadError: The server cannot be reached.
        """
        link = front.link
        if link is None or not link.alive or front.joining:
            link = await self.reconnect(front, caller)
        link.activate()
        return link

    async def reconnect(self, front: Front, caller: Caller) -> Link:
        """Give a session a connection in place of one that was lost.

        Raises:
            RpcError: The client has not sent `initialize`, or the server refused it.
            FairleadError: The server cannot be reached.
        """
        if front.introduction is None:
            raise own_error(INVALID_PARAMS, "Send initialize first")
        front.joining += 1
        try:
            async with front.opening:  # one for all requests that come meanwhile, in their order
                link = front.link
                if link is None or not link.alive:
                    link = await self._upstream.for_session(front, front.introduction, caller)
                    await self._restore(front, link)
                    await self._wait_for_roots(link, caller)
                return link
        finally:
            front.joining -= 1

    async def _wait_for_roots(self, link: Link, caller: Caller) -> None:
        """Let a server read the roots of a session before the first request of the session.

        Most servers ask for them once they are initialized, and a call that overtakes the answer
        would see other folders.
        """
        if link.stateless or link.borrowed or not has_roots(caller.capabilities):
            return
        known = self._upstream.asks_roots
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ROOTS_KNOWN if known else ROOTS_UNKNOWN):
                await link.roots_answered.wait()

    async def _restore(self, front: Front, link: Link) -> None:
        if link.stateless:
            await self._bridge_for(link).joined()
            await self._bridge_for(link).follow()
        else:
            link.activate()
            try:
                if front.level is not None:
                    await link.peer.request("logging/setLevel", {"level": front.level})
                for uri in front.uris:
                    link.uris.setdefault(uri, set()).add(front)
                    await link.peer.request("resources/subscribe", {"uri": uri})
            except RpcError as exc:
                log.warning("%s: not everything could be restored: %s", link.name, exc)
        # Changes while the server was away were not announced, so clients read everything again.
        for note in possibly_missed_changes(link, front):
            front.tell(note, link)
