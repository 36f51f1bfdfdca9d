"""One server of a gateway: the connection that is kept to it, its lists, and its replicas."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..client import MCPClient
from ..client.listening import Changes
from ..errors import (
    ChannelClosed,
    CircuitOpenError,
    FairleadError,
    LocalProtocolError,
    RpcError,
    TransportError,
)
from ..interceptor import Answer, Exchange, Interceptor
from ..interceptor.breaker import CircuitBreaker
from ..manager import MCPManager
from ..manager.manager import Configured
from ..protocol.caller import SUBSCRIPTION_KEY
from ..protocol.downgrade import Impossible
from ..protocol.methods import has_capability
from ..wire import Notification, to_json
from ..wire.codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from .bridge.errors import ours, unreachable
from .bridge.parking import Parked
from .call import ASKING
from .catalog import Catalog, Kind
from .front import Front
from .link import Link
from .relay import Relay
from .settings import RelaySettings
from .visitor import Visitor
from .way import way_to

__all__ = ["Member", "Replica", "refusal"]

LISTEN: Final = "subscriptions/listen"
MAX_PAGES: Final = 1000
MAX_ROUNDS: Final = 10_000  # of questions, whose server is remembered
PAUSE: Final = 0.1  # seconds between two listings of a server in a row

log = logging.getLogger("fairlead.gateway")

_NEWS: Final = Notification("notifications/tools/list_changed")
_LISTS: Final[tuple[Changes, ...]] = ("tools", "prompts", "resources")
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
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        """`interceptors` are around what the server asks and tells of its own accord."""
        self.name = name
        self.breaker = breaker
        self.configured = configured
        way = way_to(configured.entry, name, resolve=configured.resolve)
        self.relay = Relay(way, settings=settings, parked=parked)
        self.relay.upstream.base = self.base
        self.relay.upstream.interceptors = interceptors
        self._interceptors = interceptors
        self.calls = 0
        self.errors = 0
        self.latency: float | None = None  # seconds, of the calls of late
        self._manager = manager
        self.changed: Callable[[], object] = lambda: None  # called when its lists have changed
        self.followed: set[Changes] = set()  # lists of whose changes we hear by following them
        self._link: Link | None = None
        self._client: MCPClient | None = None
        self._following: asyncio.Task[None] | None = None
        self._orphans: list[Front] = []  # sessions whose connection was lost

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
            self.lost()
            self._client = client
            self._link = _borrowed(self.name, client, self._interceptors)
            self._follow(client)
        return self._link

    def _follow(self, client: MCPClient) -> None:
        """Hear of changed lists, also after a time in which nobody could tell."""
        declared = client.server.get("capabilities", {})
        self.followed = {name for name in _LISTS if has_capability(declared, f"{name}.listChanged")}
        if self.followed:
            self._following = asyncio.get_running_loop().create_task(self._hear(client))

    async def _hear(self, client: MCPClient) -> None:
        try:
            async with client.changes(*self.followed) as changes:
                async for _ in changes:
                    self.changed()
        except FairleadError as exc:
            log.info("%s: it does not tell of changes: %s", self.name, exc)
            self.followed = set()

    def _current(self) -> MCPClient | None:
        supervisor = self._manager.describe().get(self.name)
        return None if supervisor is None else supervisor.client

    @property
    def rank(self) -> int:
        """How good the chances of a call are; 0 is best."""
        if self.breaker.state == "open":
            return 3
        status = self._manager.get_connection_status(self.name)
        return {"connected": 0, "connecting": 1}.get(status, 2)

    async def answer(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        """Raises as `Relay.answer` does; `CircuitOpenError` if it failed too often of late."""
        front = None if visitor is None else visitor.front(self.relay)
        if exchange.method == LISTEN:  # takes as long as the client likes
            return await self.relay.answer(exchange, front)
        admission = self.breaker.admit()
        began = time.monotonic()
        self.calls += 1
        error: BaseException | None = None
        try:
            return await self.relay.answer(exchange, front)
        except BaseException as exc:
            error = exc
            self.errors += isinstance(exc, Exception)  # who gives up has not been failed
            raise
        finally:
            admission.ended(error)
            took = time.monotonic() - began
            self.latency = took if self.latency is None else 0.9 * self.latency + 0.1 * took

    def lost(self) -> None:
        """The manager's connection may be another now, or none: nobody waits for the old one."""
        link = self._link
        if link is None or (link.alive and self._client is self._current()):
            return
        self._link = self._client = None
        self._unfollow()
        for front in list(link.fronts):
            front.link = None
        self._orphans += link.fronts
        link.fronts.clear()
        if self.relay.upstream.on_lost is not None:
            self.relay.upstream.on_lost(link, link.peer.end or ChannelClosed())

    async def adopt(self) -> None:
        """The server is there again, for those too who only listen to it."""
        orphans, self._orphans = self._orphans, []
        for front in orphans:
            caller = front.peer.conversation.peer
            if caller is None or front.introduction is None or not front.takes(_NEWS):
                continue
            if front.peer.connected and front.link is None:
                await self.relay.rejoin(front, caller)

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens."""
        await self.relay.end_streams()
        if self._link is not None and self._link.changes is not None:
            await self._link.changes.end()

    def _unfollow(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            following.cancel()

    async def close(self) -> None:
        following = self._following
        self._unfollow()
        if following is not None:
            await asyncio.wait((following,))
        await self.relay.close()
        if self._link is not None:
            await self._link.close()


def _borrowed(name: str, client: MCPClient, interceptors: Sequence[Interceptor]) -> Link:
    """A link on a client's connection: both hear what the server says."""
    transport = client.transport
    link = Link(name, transport.peer, interceptors=interceptors)
    before = transport.overhear

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
        for replica in replicas:
            replica.changed = self.refresh
        self.listed = asyncio.Event()  # its lists are known, or why they are not
        self.listed_at = 0.0  # when it was last asked for them
        self.error: BaseException | None = None  # of the last listing
        self._catalog = catalog
        self._changed = changed
        self._next = 0
        self._sticky: dict[Visitor, Replica] = {}
        self._rounds: OrderedDict[str, Replica] = OrderedDict()  # by the state of a round
        self._arrival = asyncio.Event()  # of the next replica that is connected
        self._listing: asyncio.Task[None] | None = None
        self._again = False

    @property
    def names(self) -> list[str]:
        """What the manager calls the servers behind it."""
        return [replica.name for replica in self.replicas]

    # Calls

    async def answer(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        """Have one of the replicas answer; another if it certainly was not asked.

        Raises:
            RpcError: the server said no, or none of them could be asked.
        """
        failure: Exception | None = None
        for replica in self._order(exchange, visitor):
            try:
                answer = await replica.answer(exchange, visitor)
            except RpcError:
                raise
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
                    self._remember_turn(exchange, visitor, replica, answer)
                return answer
        assert failure is not None
        if exchange.method == LISTEN and isinstance(failure, TransportError):
            await self._arrival.wait()  # there is nothing to tell before it is back
            return await self.answer(exchange, visitor)
        log.warning("%s: %s: %s", self.name, exchange.method, failure)
        raise refusal(self.name, failure) from None

    def _order(self, exchange: Exchange, visitor: Visitor | None) -> list[Replica]:
        """Who is asked first: a session stays where it is, others take turns."""
        if len(self.replicas) == 1:
            return self.replicas
        self._next = (self._next + 1) % len(self.replicas)
        order = self.replicas[self._next :] + self.replicas[: self._next]
        order.sort(key=lambda replica: replica.rank)
        mine = self._mine(exchange, visitor)
        if mine is not None and mine.rank <= order[0].rank:
            order.remove(mine)
            order.insert(0, mine)
        return order

    def _mine(self, exchange: Exchange, visitor: Visitor | None) -> Replica | None:
        if not exchange.caller.stateless:
            return None if visitor is None else self._sticky.get(visitor)
        if exchange.method not in ASKING:
            return None
        state = _state(exchange.message.params)
        return None if state is None else self._rounds.get(state)

    def _remember_turn(
        self, exchange: Exchange, visitor: Visitor | None, replica: Replica, answer: Answer
    ) -> None:
        """Who comes again with a session, or with the state of a round, gets the same server."""
        if not exchange.caller.stateless:
            if visitor is not None and not visitor.gone:
                self._sticky[visitor] = replica
            return
        if answer is not None and exchange.method in ASKING and b"input_required" in bytes(answer):
            state = _state(answer)
            if state is not None:
                self._rounds[state] = replica
                if len(self._rounds) > MAX_ROUNDS:
                    self._rounds.popitem(last=False)

    def left(self, visitor: Visitor) -> None:
        """A client has gone."""
        self._sticky.pop(visitor, None)
        for replica in self.replicas:
            front = visitor.fronts.pop(replica.relay, None)
            if front is not None:
                replica.relay.leave(front)

    # Lists

    def has_tool(self, name: str) -> bool:
        """Whether the configuration lets a tool through."""
        configured = self.replicas[0].configured
        only = configured.only_tools
        return (only is None or name in only) and name not in configured.without_tools

    @property
    def filtered(self) -> bool:
        configured = self.replicas[0].configured
        return configured.only_tools is not None or bool(configured.without_tools)

    def remember(self, tools: list[dict[str, Any]]) -> None:
        """Tools from last time, until the server has said what it has."""
        shown = [Raw(to_json(tool)) for tool in tools if self.has_tool(str(tool.get("name")))]
        if self._catalog.put(self.name, Kind.TOOLS, shown):
            self._changed(Kind.TOOLS)
        self.listed.set()

    def connected(self) -> None:
        """One of the replicas is there."""
        arrival, self._arrival = self._arrival, asyncio.Event()
        arrival.set()
        self.refresh()

    def refresh(self) -> None:
        """List everything again, in the background; what is known stays until then."""
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
            self._again = False
            self.listed_at = time.monotonic()
            try:
                await self._list_once()
            except Exception as exc:  # it is one server of many
                self.error = exc
                self.listed_at = 0.0  # so the next who asks has it tried again
                log.warning("%s: what it offers cannot be listed: %s", self.name, exc)
            self.listed.set()
            if not self._again:
                return
            await asyncio.sleep(PAUSE)  # for one that talks of changes all the time

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
                    items = await _all_pages(link, kind)
                except TransportError:
                    raise
                except (RpcError, msgspec.DecodeError, RecursionError) as exc:
                    if kind is not Kind.TEMPLATES:
                        failure = exc
                        continue
                    log.debug("%s: no templates: %s", self.name, exc)
            if kind is Kind.TOOLS and self.filtered:
                items = [item for item in items if self.has_tool(_name(item))]
            if self._catalog.put(self.name, kind, items):
                self._changed(kind)
        if failure is not None:
            raise failure
        self.error = None

    def failed(self) -> None:
        """One of the replicas could not be connected; if all of them, nobody need wait."""
        if all(replica.rank > 1 for replica in self.replicas):
            self.listed.set()

    async def close(self) -> None:
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait((self._listing,))
        await asyncio.gather(*(replica.close() for replica in self.replicas))


def refusal(server: str, error: Exception) -> RpcError:
    """What a client hears if a server could not be asked."""
    if isinstance(error, CircuitOpenError):
        return ours(INTERNAL_ERROR, str(error), server=server, retryAfter=error.remaining)
    if isinstance(error, Impossible):
        return ours(METHOD_NOT_FOUND, str(error))
    if isinstance(error, LocalProtocolError):
        return ours(error.code, str(error))
    assert isinstance(error, FairleadError)
    return unreachable(server, error)


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


class _Round(Struct, rename="camel"):
    request_state: str | None = None


def _state(params: Any) -> str | None:
    """The state of a round of questions, in what is asked or answered."""
    if params is None or isinstance(params, UnsetType):
        return None
    try:
        return msgspec.json.decode(params, type=_Round).request_state
    except (msgspec.DecodeError, RecursionError):
        return None


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
