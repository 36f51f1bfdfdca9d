"""One of the equal servers behind a name of a gateway, and how it does."""

import asyncio
import time
from typing import Final

from ...errors import ChannelClosed, ConnectFailed
from ...interceptor import Answer, Exchange
from ...interceptor.circuit_breaker import CircuitBreaker
from ...relay.relay import Relay
from ...upstream.upstream import Upstream
from ..clients.client_sessions import ConnectedClient

__all__ = ["LISTEN", "Replica"]

LISTEN: Final = "subscriptions/listen"


class Replica:
    """A server, the relay to it, and a circuit breaker around its calls."""

    def __init__(self, upstream: Upstream, relay: Relay, breaker: CircuitBreaker) -> None:
        self.name = upstream.name
        self.upstream = upstream
        self.relay = relay
        self.breaker = breaker
        self.calls = 0
        self.errors = 0
        self.latency: float | None = None  # seconds, of the calls of late

    @property
    def rank(self) -> int:
        """How good the chances of a call are; 0 is best."""
        if self.breaker.state == "open":
            return 3
        state = self.upstream.status
        return {"connected": 0, "connecting": 1, "reconnecting": 1}.get(state, 2)

    async def answer(self, exchange: Exchange, client: ConnectedClient | None) -> Answer:
        """Forward a request.

        Raises:
            CircuitOpenError: The server failed too often of late.
            RpcError, FairleadError: As `Relay.answer` does.
        """
        session = None if client is None else client.session_with(self.relay)
        if exchange.method == LISTEN:  # takes as long as the client likes
            return await self.relay.answer(exchange, session)
        permit = self.breaker.admit()
        began = time.monotonic()
        self.calls += 1
        error: BaseException | None = None
        try:
            return await self.relay.answer(exchange, session)
        except BaseException as exc:
            error = exc
            self.errors += isinstance(exc, Exception)  # a cancellation is not an error
            raise
        finally:
            # A process that is lost is counted per connection key: a client that crashes its own
            # is no reason to keep others from a server that works.
            lost = isinstance(error, ChannelClosed | ConnectFailed) and self.upstream.is_process
            permit.ended(asyncio.CancelledError() if lost else error)  # which counts as nothing
            took = time.monotonic() - began
            self.latency = took if self.latency is None else 0.9 * self.latency + 0.1 * took

    async def end_streams(self) -> None:
        """End the listen streams of all clients."""
        await self.relay.end_streams()

    def hang_up(self, edge: object) -> None:
        """End the listen streams of one client."""
        self.relay.hang_up(edge)

    async def close(self) -> None:
        """End all clients of the relay; the owner of the server closes its connections."""
        await self.relay.close()
