"""One name of a gateway: its lists, and the equal servers that share its calls."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from ...client.api.list_budget import ListTooLarge
from ...config.server_spec import ServerSpec
from ...errors import (
    CircuitOpenError,
    FairleadError,
    LocalProtocolError,
    RpcError,
    TransportError,
)
from ...interceptor import Answer, Exchange
from ...protocol.caller import SUBSCRIPTION_KEY
from ...protocol.downgrade.downgrade_error import DowngradeError
from ...protocol.identity.principal import ANONYMOUS
from ...protocol.own_errors import own_error, unreachable_error
from ...protocol.targets.list_kind import ListKind
from ...upstream.connection.relayed_call import ASKING
from ...upstream.startup_wait import StillStarting
from ...upstream.upstream import Upstream
from ...wire import to_json
from ...wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from ..catalog.merged_catalog import MergedCatalog
from ..clients.client_sessions import ConnectedClient
from .replica import LISTEN, Replica
from .round_state import RoundStates
from .startup_calls import still_starting_error

__all__ = ["Member", "unavailable_error"]

log = logging.getLogger("fairlead.gateway")


class Member:
    """One name of a gateway, with one server behind it or several equal ones."""

    def __init__(
        self,
        name: str,
        replicas: list[Replica],
        catalog: MergedCatalog,
        changed: Callable[[ListKind], None],
        states: RoundStates | None = None,
    ) -> None:
        self.name = name
        self.replicas = replicas
        self.listed = asyncio.Event()  # its lists are known, or why they are not
        self.introduced = asyncio.Event()  # and it said so itself; they are not from last time
        self.began = time.monotonic()
        self.error: BaseException | None = None  # of the last listing
        self._catalog = catalog
        self._changed = changed
        self._states = states or RoundStates()
        self._known = False  # it has said at least once what it offers
        self._next = 0
        self._sticky: dict[ConnectedClient, Replica] = {}
        self._arrival = asyncio.Event()  # of the next replica that is connected
        self._applied: dict[ListKind, list[Raw]] = {}
        self._refused: dict[ListKind, ListTooLarge] = {}  # lists that are too large
        self._retired = False

    @property
    def names(self) -> list[str]:
        """What the manager calls the servers behind it."""
        return [replica.name for replica in self.replicas]

    # Calls

    async def answer(self, exchange: Exchange, visitor: ConnectedClient | None) -> Answer:
        """Have one of the replicas answer; another if it certainly was not asked.

        Raises:
            RpcError: the server said no, or none of them could be asked.
        """
        sealed, asked_by = self._seals_states(exchange), None
        if sealed:
            exchange, asked_by = self._states.open(exchange, self.name)
        while True:
            failure: Exception | None = None
            if len(self.replicas) > 1:  # one alone is waited for where it is asked
                failure = await self._first_there()
            for replica in self._order(visitor, asked_by) if failure is None else ():
                try:
                    answer = await replica.answer(exchange, visitor)
                except RpcError:
                    raise
                except StillStarting as exc:
                    failure = exc
                    break  # the others are no better, and would take as long again
                except CircuitOpenError as exc:
                    failure = failure or exc
                except TransportError as exc:
                    failure = exc
                    if exc.delivered and exchange.method == LISTEN:
                        return _over(exchange)
                    if exc.delivered:
                        break
                except FairleadError as exc:
                    failure = exc
                    break
                else:
                    if len(self.replicas) > 1:
                        self._remember_session(exchange, visitor, replica)
                    if sealed:
                        principal = exchange.caller.principal
                        answer = self._states.seal(
                            answer, server=self.name, replica=replica.name, principal=principal
                        )
                    return answer
            assert failure is not None
            if exchange.method != LISTEN or not isinstance(failure, TransportError):
                log.warning("%s: %s: %s", self.name, exchange.method, failure)
                raise unavailable_error(self.name, failure) from None
            await self._arrival.wait()  # there is nothing to tell before it is back
            if self._retired:
                return _over(exchange)

    async def _first_there(self) -> StillStarting | None:
        """Of several that are just starting, whoever is first is asked; says if nobody is."""
        starting = [one for one in self.replicas if one.rank == 1]
        if not starting or any(one.rank == 0 for one in self.replicas):
            return None
        loop = asyncio.get_running_loop()
        coming = {loop.create_task(one.upstream.default_connection()) for one in starting}
        late: StillStarting | None = None
        try:
            while coming:
                done, coming = await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
                errors = [one.exception() for one in done]
                if None in errors:
                    return None
                late = next((one for one in errors if isinstance(one, StillStarting)), late)
            return late
        finally:
            for one in coming:
                one.cancel()
            await asyncio.gather(*coming, return_exceptions=True)

    def _seals_states(self, exchange: Exchange) -> bool:
        """Return True if the state of a question is for one client, or from one of several."""
        if not exchange.caller.stateless or exchange.method not in ASKING:
            return False
        return exchange.caller.principal is not ANONYMOUS or len(self.replicas) > 1

    def _order(self, visitor: ConnectedClient | None, asked_by: str | None) -> list[Replica]:
        """Return the replicas in the order in which they are tried.

        A session stays where it is, and answers go to the replica that asked; others take turns.
        """
        if len(self.replicas) == 1:
            return self.replicas
        self._next = (self._next + 1) % len(self.replicas)
        order = self.replicas[self._next :] + self.replicas[: self._next]
        order.sort(key=lambda replica: replica.rank)
        mine = next((one for one in order if one.name == asked_by), None)
        if mine is None and visitor is not None:
            mine = self._sticky.get(visitor)
        if mine is not None and mine.rank <= order[0].rank:
            order.remove(mine)
            order.insert(0, mine)
        return order

    def _remember_session(
        self, exchange: Exchange, visitor: ConnectedClient | None, replica: Replica
    ) -> None:
        if not exchange.caller.stateless and visitor is not None and not visitor.gone:
            self._sticky[visitor] = replica

    def left(self, visitor: ConnectedClient) -> None:
        """A client has gone."""
        self._sticky.pop(visitor, None)
        for replica in self.replicas:
            session = visitor.sessions.pop(replica.relay, None)
            if session is not None:
                replica.relay.leave(session)

    # Lists

    def has_tool(self, name: str) -> bool:
        """Whether the configuration lets a tool through."""
        return self._spec.has_tool(name)

    @property
    def filtered(self) -> bool:
        return self._spec.filters_tools

    @property
    def _spec(self) -> ServerSpec:
        return self.replicas[0].upstream.spec

    def remember(self, tools: list[dict[str, Any]]) -> None:
        """List tools from last time, until the server has listed its tools."""
        shown = [Raw(to_json(tool)) for tool in tools if self.has_tool(str(tool.get("name")))]
        try:
            if self._catalog.put(self.name, ListKind.TOOLS, shown):
                self._changed(ListKind.TOOLS)
        except ListTooLarge as exc:
            log.warning("%s: what it listed last time is not used: %s", self.name, exc)
        self.listed.set()

    def begins(self) -> None:
        """One of the replicas is being started; if none is there, it may be about to list."""
        if not self._known and all(replica.rank for replica in self.replicas):
            self.introduced.clear()

    async def introduction(self) -> RpcError | None:
        """Wait until it has listed what it offers, or cannot; an error if it is still starting."""
        waits = [one.upstream.startup_wait for one in self.replicas]
        longest = max(waits, key=lambda one: one.limit)
        try:
            async with asyncio.timeout(longest.seconds):
                await self.introduced.wait()
        except TimeoutError:
            return still_starting_error(self.name, StillStarting(longest))
        return None

    def connected(self) -> None:
        """One of the replicas is there."""
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()

    def update(self, upstream: Upstream) -> None:
        """Take in new lists of one of the replicas."""
        if self._retired:
            return
        source = min(self.replicas, key=lambda one: one.rank).upstream
        if source is not upstream:
            return
        failure = source.lists.error
        for kind, items in source.lists.items.items():
            if self._applied.get(kind) is not items:
                self._applied[kind] = items
                self._put(kind, items)
        self.error = failure or next(iter(self._refused.values()), None)
        self._known = self._known or (self.error is None and bool(self._applied))
        if upstream.state == "connected":
            self.listed.set()
            self.introduced.set()

    def _put(self, kind: ListKind, items: list[Raw]) -> None:
        self._refused.pop(kind, None)
        try:
            shown = self._spec.permitted(items) if kind is ListKind.TOOLS else items
            if self._catalog.put(self.name, kind, shown):
                self._changed(kind)
        except ListTooLarge as exc:
            log.warning("%s: what it offers cannot be listed: %s", self.name, exc)
            self._refused[kind] = exc

    def refresh(self) -> None:
        """List everything again, in the background; what is known stays until then."""
        for replica in self.replicas:
            replica.upstream.refresh_lists()

    def refresh_if_older(self, seconds: float) -> None:
        """Do the same, if it is connected and its lists are that old."""
        for replica in self.replicas:
            upstream = replica.upstream
            age = time.monotonic() - upstream.lists.listed_at
            if upstream.state == "connected" and age >= seconds:
                upstream.refresh_lists()

    def failed(self) -> None:
        """One of the replicas could not be connected; if all of them, nothing need wait."""
        if all(replica.rank > 1 for replica in self.replicas):
            self.listed.set()
            self.introduced.set()

    def retire(self) -> None:
        """Take it out of the gateway: it lists nothing, and nothing waits for it."""
        self._retired = True
        self._arrival.set()
        self.listed.set()
        self.introduced.set()

    async def close(self) -> None:
        self.retire()
        await asyncio.gather(*(replica.close() for replica in self.replicas))


def unavailable_error(server: str, error: Exception) -> RpcError:
    """What a client hears if a server could not be asked."""
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


def _over(exchange: Exchange) -> bytes:
    """A subscription ends with its server; who wants to go on subscribes again."""
    tag = {SUBSCRIPTION_KEY: exchange.request_id}
    return to_json({"resultType": "complete", "_meta": tag})
