"""One server of a gateway: the connection that is kept to it, its lists, and its replicas."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..client import MCPClient
from ..errors import CircuitOpenError, FairleadError, RpcError, TransportError
from ..interceptor import Answer, Exchange
from ..interceptor.breaker import CircuitBreaker
from ..manager import MCPManager
from ..manager.manager import Configured
from ..protocol.methods import has_capability
from ..wire import Notification, to_json
from .bridge.parking import Parked
from .catalog import Catalog, Kind
from .link import Link
from .relay import Relay
from .settings import RelaySettings
from .visitor import Visitor
from .way import way_to

__all__ = ["Member", "Replica"]

MAX_PAGES: Final = 1000

log = logging.getLogger("fairlead.gateway")

_NEEDS: Final = {
    Kind.TOOLS: "tools",
    Kind.PROMPTS: "prompts",
    Kind.RESOURCES: "resources",
    Kind.TEMPLATES: "resources",
}


class Replica:
    """One of the equal servers behind one name."""

    def __init__(
        self,
        name: str,
        manager: MCPManager,
        configured: Configured,
        settings: RelaySettings,
        parked: Parked,
        breaker: CircuitBreaker,
    ) -> None:
        self.name = name
        self.breaker = breaker
        way = way_to(configured.entry, name, resolve=configured.resolve)
        self.relay = Relay(way, settings=settings, parked=parked)
        self.relay.upstream.base = self.base
        self.calls = 0
        self.errors = 0
        self.latency: float | None = None  # seconds, of the calls of late
        self._manager = manager
        self._link: Link | None = None
        self._client: MCPClient | None = None

    async def base(self) -> Link:
        """The connection that the manager keeps, which all share who are not asked back.

        Raises:
            FairleadError: there is none now.
        """
        link, client = self._link, self._client
        if link is not None and link.alive and client is self._current():
            return link
        connection = await self._manager.wait_for_connection(self.name)
        client = connection.client
        if self._link is None or client is not self._client:
            self._client = client
            self._link = _borrowed(self.name, client)
        return self._link

    def _current(self) -> MCPClient | None:
        supervisor = self._manager.describe().get(self.name)
        return None if supervisor is None else supervisor.client

    @property
    def healthy(self) -> bool:
        """Whether a call has a chance."""
        state = self._manager.get_connection_status(self.name)
        return self.breaker.state != "open" and state != "disconnected"

    async def answer(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        """Raises as `Relay.answer` does; `CircuitOpenError` if it failed too often of late."""
        admission = self.breaker.admit()
        began = time.monotonic()
        self.calls += 1
        error: BaseException | None = None
        try:
            front = None if visitor is None else visitor.front(self.relay)
            return await self.relay.answer(exchange, front)
        except BaseException as exc:
            error = exc
            self.errors += 1
            raise
        finally:
            admission.ended(error)
            took = time.monotonic() - began
            self.latency = took if self.latency is None else 0.9 * self.latency + 0.1 * took

    async def close(self) -> None:
        await self.relay.close()


def _borrowed(name: str, client: MCPClient) -> Link:
    """A link on a client's connection: both hear what the server says."""
    transport = client.transport
    link, before = Link(name, transport.peer), transport.overhear

    def overhear(note: Notification) -> None:
        if before is not None:
            before(note)
        link.told(note)

    transport.overhear = overhear
    return link


class Member:
    """One name of a gateway, with one server behind it or several equal ones."""

    def __init__(
        self,
        name: str,
        replicas: list[Replica],
        catalog: Catalog,
        changed: Callable[[Kind], None],
    ) -> None:
        self.name = name
        self.replicas = replicas
        self.listed = asyncio.Event()  # its lists are known, or why they are not
        self.error: BaseException | None = None  # of the last listing
        self._catalog = catalog
        self._changed = changed
        self._next = 0
        self._sticky: dict[Visitor, Replica] = {}
        self._listing: asyncio.Task[None] | None = None
        self._again = False

    # Calls

    async def answer(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        """Have one of the replicas answer; another if it certainly was not asked.

        Raises:
            RpcError: the server said no.
            FairleadError: none of them could be asked.
        """
        failure: FairleadError | None = None
        for replica in self._order(exchange, visitor):
            try:
                answer = await replica.answer(exchange, visitor)
            except CircuitOpenError as exc:
                failure = failure or exc
            except RpcError:
                raise
            except TransportError as exc:
                if exc.delivered:
                    raise
                failure = exc
            else:
                if visitor is not None and len(self.replicas) > 1:
                    self._sticky[visitor] = replica
                return answer
        assert failure is not None
        raise failure

    def _order(self, exchange: Exchange, visitor: Visitor | None) -> list[Replica]:
        """Who is asked first: a session stays where it is, others take turns."""
        if len(self.replicas) == 1:
            return self.replicas
        self._next = (self._next + 1) % len(self.replicas)
        order = self.replicas[self._next :] + self.replicas[: self._next]
        order.sort(key=lambda replica: not replica.healthy)
        mine = None if visitor is None else self._sticky.get(visitor)
        if mine is not None and mine.healthy:
            order.remove(mine)
            order.insert(0, mine)
        return order

    def left(self, visitor: Visitor) -> None:
        self._sticky.pop(visitor, None)

    # Lists

    def remember(self, tools: list[dict[str, Any]]) -> None:
        """Tools from last time, until the server has said what it has."""
        if self._catalog.put(self.name, Kind.TOOLS, [Raw(to_json(tool)) for tool in tools]):
            self._changed(Kind.TOOLS)
        self.listed.set()

    def refresh(self) -> None:
        """List everything again, in the background; what is known stays until then."""
        if self._listing is not None and not self._listing.done():
            self._again = True
            return
        self._listing = asyncio.get_running_loop().create_task(self._list())

    async def _list(self) -> None:
        self._again = True
        while self._again:
            self._again = False
            try:
                await self._list_once()
                self.error = None
            except Exception as exc:  # it is one server of many
                self.error = exc
                log.warning("%s: what it offers cannot be listed: %s", self.name, exc)
            self.listed.set()

    async def _list_once(self) -> None:
        replica = next((one for one in self.replicas if one.healthy), self.replicas[0])
        link = await replica.base()
        declared = (
            msgspec.json.decode(link.agreement.capabilities) if link.agreement is not None else {}
        )
        for kind, capability in _NEEDS.items():
            items: list[Raw] = []
            if has_capability(declared, capability):
                try:
                    items = await _all_pages(link, kind)
                except RpcError as exc:
                    if kind is not Kind.TEMPLATES:
                        raise
                    log.debug("%s: no templates: %s", self.name, exc)
            if self._catalog.put(self.name, kind, items):
                self._changed(kind)

    def failed(self, error: str) -> None:
        """It could not be connected; nobody need wait for its lists."""
        self.error = self.error or FairleadError(error)
        self.listed.set()

    async def close(self) -> None:
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait((self._listing,))
        await asyncio.gather(*(replica.close() for replica in self.replicas))


class _Cursor(Struct, rename="camel"):
    next_cursor: str | None = None


async def _all_pages(link: Link, kind: Kind) -> list[Raw]:
    """Everything of one kind, as the server wrote it."""
    found: list[Raw] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        params = None if cursor is None else {"cursor": cursor}
        page = await link.peer.request(kind.method, params)
        members = msgspec.json.decode(page, type=dict[str, Raw])
        found += msgspec.json.decode(members.get(kind.value, Raw(b"[]")), type=list[Raw])
        following = msgspec.json.decode(page, type=_Cursor).next_cursor
        if not following or following == cursor:
            break
        cursor = following
    return found
