"""Replicas of a server under one name: selection of a replica for each request, and failover."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Protocol, overload

from ..errors import (
    CircuitOpenError,
    FairleadError,
    LocalProtocolError,
    RpcError,
    TransportError,
)
from ..interceptor import Answer, Exchange
from ..protocol.caller import ANONYMOUS, SUBSCRIPTION_KEY
from ..protocol.downgrade.downgrade_error import DowngradeError
from ..protocol.own_errors import own_error, unreachable_error
from ..upstream.connection.relayed_call import ASKING
from ..upstream.startup_wait import StillStarting, still_starting_error
from ..wire import to_json
from ..wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from .client_session import ClientSession
from .relay import LISTEN, Rank, Relay
from .round_state import RoundStates

__all__ = ["Replicas", "SessionHolder", "unavailable_error"]

_rank = attrgetter("rank")

log = logging.getLogger("fairlead.gateway")


class SessionHolder(Protocol):
    """A connected client, with a session for each server that it uses."""

    sessions: dict[object, ClientSession]
    gone: bool

    def session_with(self, relay: object) -> ClientSession:
        """Return the client's session with the server of a relay."""


class Replicas(Sequence[Relay]):
    """The relays to one server, or to several equal servers, in the order in which they were
    added.
    """

    def __init__(
        self, name: str, relays: Sequence[Relay], states: RoundStates | None = None
    ) -> None:
        """`states` seals each `requestState` that a stateless server sends to a client."""
        self.name = name
        self._relays = tuple(relays)
        self._states = states or RoundStates()
        self._next = 0
        self._sticky: dict[SessionHolder, Relay] = {}
        # Replaced with a new event when a server connects, so that listeners wait for the next.
        self._connected = asyncio.Event()
        self._retired = False

    @overload
    def __getitem__(self, index: int) -> Relay: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Relay]: ...
    def __getitem__(self, index: int | slice) -> Relay | Sequence[Relay]:
        return self._relays[index]

    def __len__(self) -> int:
        return len(self._relays)

    def __iter__(self) -> Iterator[Relay]:
        return iter(self._relays)

    async def answer(self, exchange: Exchange, client: SessionHolder | None) -> Answer:
        """Forward a request to a replica, or to the next replica if it was not delivered.

        Raises:
            RpcError: The server refused the request, or no server can be reached.
        """
        method, caller, asked_by = exchange.message.method, exchange.caller, None
        # Only the client that received the state may return it, and only to the same replica.
        sealed = (
            caller.stateless
            and (caller.principal is not ANONYMOUS or len(self._relays) > 1)
            and method in ASKING
        )
        if sealed:
            exchange, asked_by = self._states.open(exchange, self.name)
        while True:
            failure: Exception | None = None
            # a single relay itself waits for its server, but only if a request needs a connection
            if len(self._relays) > 1:
                failure = await self._wait_for_first()
            for relay in self._order(client, asked_by) if failure is None else ():
                try:
                    session = None if client is None else client.session_with(relay)
                    health = None if relay.upstream is None else relay.upstream.health
                    # A subscription lasts until the client ends it, so it is not counted as a call.
                    if health is None or method == LISTEN:
                        answer = await relay.answer(exchange, session)
                    else:
                        with health.call():
                            answer = await relay.answer(exchange, session)
                except RpcError:
                    raise
                # The other replicas are not tried, because they are starting too.
                except StillStarting as exc:
                    failure = exc
                    break
                # Any other failure is more specific than an open circuit, and is reported instead.
                except CircuitOpenError as exc:
                    failure = failure or exc
                except TransportError as exc:
                    failure = exc
                    if exc.delivered and method == LISTEN:
                        return _ended_subscription(exchange)
                    # The server may have processed the request: do not try another replica.
                    if exc.delivered:
                        break
                except FairleadError as exc:
                    failure = exc
                    break
                else:
                    several = len(self._relays) > 1
                    # The entry of a client that has disconnected would never be removed.
                    if several and not caller.stateless and client is not None and not client.gone:
                        self._sticky[client] = relay
                    if sealed:
                        answer = self._states.seal(
                            answer,
                            server=self.name,
                            replica=relay.name,
                            principal=caller.principal,
                        )
                    return answer
            assert failure is not None
            if method != LISTEN or not isinstance(failure, TransportError):
                log.warning("%s: %s: %s", self.name, method, failure)
                raise unavailable_error(self.name, failure) from None
            # A subscription stays open without a server and continues after the next connect.
            await self._connected.wait()
            if self._retired:
                return _ended_subscription(exchange)

    async def _wait_for_first(self) -> StillStarting | None:
        """Wait until one of several starting servers is connected.

        Return an error if none is connected and one is still starting.
        """
        starting = [
            relay.upstream
            for relay in self._relays
            if relay.upstream is not None and relay.rank == Rank.STARTING
        ]
        if not starting or any(relay.rank == Rank.CONNECTED for relay in self._relays):
            return None
        loop = asyncio.get_running_loop()
        pending = {loop.create_task(one.default_connection()) for one in starting}
        late: StillStarting | None = None
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                errors = [one.exception() for one in done]
                if None in errors:
                    return None
                late = next((one for one in errors if isinstance(one, StillStarting)), late)
            return late
        finally:
            for one in pending:
                one.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    def _order(self, client: SessionHolder | None, asked_by: str | None) -> Sequence[Relay]:
        """Return the relays in the order in which they are tried.

        A session stays with its server, and the response to an input request goes to the server
        that sent it. All other requests are distributed in turn.
        """
        if len(self._relays) == 1:
            return self._relays
        self._next = (self._next + 1) % len(self._relays)
        order = [*self._relays[self._next :], *self._relays[: self._next]]
        # The sort is stable, so servers of the same rank stay in rotation.
        order.sort(key=_rank)
        preferred = next((one for one in order if one.name == asked_by), None)
        if preferred is None and client is not None:
            preferred = self._sticky.get(client)
        if preferred is not None and preferred.rank <= order[0].rank:
            order.remove(preferred)
            order.insert(0, preferred)
        return order

    def leave(self, client: SessionHolder) -> None:
        """End the sessions of a client that has disconnected."""
        self._sticky.pop(client, None)
        for relay in self._relays:
            session = client.sessions.pop(relay, None)
            if session is not None:
                relay.leave(session)

    def connected(self) -> None:
        """Wake the subscriptions that wait for a server."""
        event, self._connected = self._connected, asyncio.Event()
        event.set()

    @property
    def all_unavailable(self) -> bool:
        """True if no server is connected or connecting."""
        return all(relay.rank > Rank.STARTING for relay in self._relays)

    @property
    def none_connected(self) -> bool:
        """True if no server is connected."""
        return all(relay.rank > Rank.CONNECTED for relay in self._relays)

    @property
    def best(self) -> Relay:
        """The first server of the lowest rank."""
        return min(self._relays, key=_rank)

    def retire(self) -> None:
        """End all subscriptions without a server, because the servers are removed."""
        self._retired = True
        self._connected.set()

    async def close(self) -> None:
        """Close all relays."""
        self.retire()
        await asyncio.gather(*(relay.close() for relay in self._relays))


def unavailable_error(server: str, error: Exception) -> RpcError:
    """Return the error for a client whose request the server did not answer."""
    if isinstance(error, CircuitOpenError):
        return own_error(INTERNAL_ERROR, str(error), server=server, retryAfter=error.remaining)
    if isinstance(error, StillStarting):
        return still_starting_error(server, error)
    if isinstance(error, DowngradeError):
        return own_error(METHOD_NOT_FOUND, str(error))
    if isinstance(error, LocalProtocolError):
        return own_error(error.code, str(error))
    assert isinstance(error, FairleadError)
    return unreachable_error(server, error)


def _ended_subscription(exchange: Exchange) -> bytes:
    """Return the result that ends a subscription whose server has disconnected."""
    tag = {SUBSCRIPTION_KEY: exchange.request_id}
    return to_json({"resultType": "complete", "_meta": tag})
