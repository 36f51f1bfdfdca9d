"""One name of a gateway: its lists, and the equal servers that share its calls."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ...client.api.list_budget import ListBudget, ListTooLarge
from ...client.api.list_pages import read_pages
from ...errors import (
    CircuitOpenError,
    FairleadError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
    TransportError,
)
from ...interceptor import Answer, Exchange
from ...limits import LIST_SECONDS, RELISTING
from ...protocol.caller import SUBSCRIPTION_KEY
from ...protocol.downgrade.downgrade_error import DowngradeError
from ...protocol.identity.principal import ANONYMOUS
from ...protocol.methods import has_capability
from ...protocol.own_errors import own_error, unreachable_error
from ...relay.relayed_call import ASKING
from ...relay.upstream_connection import Link
from ...wire import to_json
from ...wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from ..catalog.list_kind import ListKind
from ..catalog.merged_catalog import MergedCatalog
from ..clients.client_sessions import ConnectedClient
from .replica import LISTEN, Replica
from .round_state import RoundStates
from .startup_calls import StillStarting, still_starting_error

__all__ = ["Member", "unavailable_error"]

LIST_LIMIT: Final = 30.0  # seconds for one page of a list
PAUSE: Final = 0.1  # seconds between two listings of a server in a row

log = logging.getLogger("fairlead.gateway")

# What may go wrong with one list, while the others are answered all the same.
_ONE_LIST: Final = (RpcError, RemoteProtocolError, msgspec.DecodeError, RecursionError)
_NEEDS: Final = {
    ListKind.TOOLS: "tools",
    ListKind.PROMPTS: "prompts",
    ListKind.RESOURCES: "resources",
    ListKind.TEMPLATES: "resources",
}


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
        for replica in replicas:
            replica.changed = self.refresh
        self.listed = asyncio.Event()  # its lists are known, or why they are not
        self.introduced = asyncio.Event()  # and it said so itself; they are not from last time
        self.began = time.monotonic()
        self.listed_at = -inf  # when it was last asked for them
        self.error: BaseException | None = None  # of the last listing
        self._catalog = catalog
        self._changed = changed
        self._states = states or RoundStates()
        self._known = False  # it has said at least once what it offers
        self._next = 0
        self._sticky: dict[ConnectedClient, Replica] = {}
        self._arrival = asyncio.Event()  # of the next replica that is connected
        self._listing: asyncio.Task[None] | None = None
        self._listed_last = -inf  # when the last list was begun
        self._pause = PAUSE  # until the next one may begin
        self._again = False
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
        coming = {loop.create_task(one.base()) for one in starting}
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
            front = visitor.fronts.pop(replica.relay, None)
            if front is not None:
                replica.relay.leave(front)

    # Lists

    def has_tool(self, name: str) -> bool:
        """Whether the configuration lets a tool through."""
        return self.replicas[0].configured.has_tool(name)

    @property
    def filtered(self) -> bool:
        configured = self.replicas[0].configured
        return configured.only_tools is not None or bool(configured.without_tools)

    def remember(self, tools: list[dict[str, Any]]) -> None:
        """Tools from last time, until the server has said what it has."""
        shown = [Raw(to_json(tool)) for tool in tools if self.has_tool(str(tool.get("name")))]
        try:
            if self._catalog.put(self.name, ListKind.TOOLS, shown):
                self._changed(ListKind.TOOLS)
        except ListTooLarge as exc:
            log.warning("%s: what it listed last time is not used: %s", self.name, exc)
        self.listed.set()

    def begins(self) -> None:
        """One of the replicas is being started; if none is there, it may be about to speak."""
        if not self._known and all(replica.rank for replica in self.replicas):
            self.introduced.clear()

    async def introduction(self) -> RpcError | None:
        """Wait until it has said what it offers, or cannot; a refusal if it is still starting."""
        patience = max((one.patience for one in self.replicas), key=lambda one: one.limit)
        try:
            async with asyncio.timeout(patience.seconds):
                await self.introduced.wait()
        except TimeoutError:
            return still_starting_error(self.name, StillStarting(patience))
        return None

    def connected(self) -> None:
        """One of the replicas is there."""
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()
        self.refresh()

    def refresh(self) -> None:
        """List everything again, in the background; what is known stays until then."""
        if self._retired:
            return
        if self._listing is not None and not self._listing.done():
            self._again = True
            return
        self._listing = asyncio.get_running_loop().create_task(self._list())

    def heard(self, server: str, method: str) -> None:
        """A server says that a list has changed, maybe one that it had not promised to tell of."""
        name = method.split("/")[1]
        if all(name not in one.followed for one in self.replicas if one.name == server):
            self.refresh()

    def refresh_if_older(self, seconds: float) -> None:
        """The same, if it is there and has not been asked for so long."""
        if self.replicas[0].rank and not any(one.rank == 0 for one in self.replicas):
            return
        if time.monotonic() - self.listed_at >= seconds:
            self.refresh()

    async def _list(self) -> None:
        while True:
            await self._take_time()
            self._again = False
            self.listed_at = self._listed_last = time.monotonic()
            try:
                await self._list_once()
            except Exception as exc:  # it is one server of many
                self.error = exc
                self.listed_at = -inf  # so the next who asks has it tried again
                log.warning("%s: what it offers cannot be listed: %s", self.name, exc)
            self.listed.set()
            self.introduced.set()
            if not self._again:
                return

    async def _take_time(self) -> None:
        """Wait before a list that follows another, ever longer if changes never end."""
        since = time.monotonic() - self._listed_last
        if since >= 2 * self._pause:
            self._pause = PAUSE
        if since < self._pause:
            RELISTING.hit()
            await asyncio.sleep(self._pause - since)
            self._pause = min(2 * self._pause, RELISTING.value)

    async def _list_once(self) -> None:
        """Raises what kept it from listing everything; what could be listed is."""
        link = await min(self.replicas, key=lambda one: one.rank).base()
        declared = (
            msgspec.json.decode(link.agreement.capabilities) if link.agreement is not None else {}
        )
        failure: Exception | None = None
        for kind, capability in _NEEDS.items():
            items: list[Raw] = []
            if has_capability(declared, capability):
                try:
                    items = await _all_pages(link, kind, self._catalog.budget(kind))
                except TimeoutError as exc:
                    if not isinstance(exc, RequestTimeout):
                        LIST_SECONDS.hit()
                        exc = RequestTimeout(LIST_SECONDS.value, kind.method)
                    failure = failure or exc
                    continue
                except _ONE_LIST as exc:
                    if kind is not ListKind.TEMPLATES or isinstance(exc, ListTooLarge):
                        failure = failure or exc
                        continue
                    log.debug("%s: no templates: %s", self.name, exc)
            if kind is ListKind.TOOLS and self.filtered:
                items = [item for item in items if self.has_tool(_name(item))]
            try:
                if self._catalog.put(self.name, kind, items):
                    self._changed(kind)
            except ListTooLarge as exc:
                failure = failure or exc
        if failure is not None:
            raise failure
        self.error = None
        self._known = True

    def failed(self) -> None:
        """One of the replicas could not be connected; if all of them, nobody need wait."""
        if all(replica.rank > 1 for replica in self.replicas):
            self.listed.set()
            self.introduced.set()

    def retire(self) -> None:
        """It is not one of the gateway's any more: it lists nothing, and nobody waits for it."""
        self._retired = True
        self._arrival.set()
        if self._listing is not None:
            self._listing.cancel()
        self.listed.set()
        self.introduced.set()

    async def close(self) -> None:
        self.retire()
        if self._listing is not None:
            await asyncio.wait((self._listing,))
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


class _Named(Struct):
    name: str = ""


def _name(item: Raw) -> str:
    try:
        return msgspec.json.decode(item, type=_Named).name
    except (msgspec.DecodeError, RecursionError):
        return ""


async def _all_pages(link: Link, kind: ListKind, budget: ListBudget) -> list[Raw]:
    """Return everything of one kind, as the server wrote it.

    Raises:
        ListTooLarge: The server lists more than is read of it.
    """
    found: list[Raw] = []
    ask = partial(link.peer.request, kind.method, timeout=LIST_LIMIT)
    async with asyncio.timeout(LIST_SECONDS.value):
        async for page in read_pages(ask, budget, stateless=link.stateless):
            items = msgspec.json.decode(page.get(kind.value, Raw(b"[]")), type=list[Raw])
            budget.items(len(items))
            found += items
    return found
