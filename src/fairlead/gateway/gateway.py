"""Many servers on one endpoint: merged lists, calls to whom they belong, one bad server no harm."""

import asyncio
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import msgspec
from msgspec import Raw, UnsetType

from ..client.entries import MCPServerEntry, read_entry
from ..errors import ConfigError, FairleadError, RpcError, TransportError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain, hearers
from ..interceptor.breaker import CircuitBreaker
from ..manager import MCPManager
from ..manager.manager import Configured, StatusEvent
from ..peer import Peer
from ..protocol.caller import SERVER_INFO_KEY, Caller
from ..protocol.conversation import Conversation, Role
from ..protocol.downgrade import downgrade_result
from ..protocol.envelope import TransportContext
from ..protocol.headers import ParamHeader, param_headers
from ..protocol.outgoing import Identity
from ..protocol.revisions import Revision
from ..server.serving import ServesHttp
from ..server.subscriptions import UPDATED, Changes
from ..transport.base import Channel
from ..transport.http.settings import HttpSettings
from ..wire import Notification, to_json
from ..wire.codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from .admin_servers import Hearsay
from .asked import (
    cursor_of,
    level_of,
    listening_to,
    reference_of,
    uris_of,
    wants_all,
    with_members,
)
from .bridge.errors import ours
from .bridge.parking import Parked
from .call import LEVELS
from .catalog import Catalog, Kind, Target
from .door import Door
from .link import Link
from .member import Member
from .names import full_name
from .replica import Replica
from .settings import GatewaySettings
from .views import View
from .visitor import Visitor
from .watching import Watching

if TYPE_CHECKING:
    from ..server.http import HttpApp
    from .observing import Observing
    from .searching import Searching, Shown

__all__ = ["Gateway"]

log = logging.getLogger("fairlead.gateway")

_LISTS: Final = {kind.method: kind for kind in Kind}
_NEWS: Final = {
    Kind.TOOLS: "notifications/tools/list_changed",
    Kind.PROMPTS: "notifications/prompts/list_changed",
    Kind.RESOURCES: "notifications/resources/list_changed",
    Kind.TEMPLATES: "notifications/resources/list_changed",
}
_CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
Entry: TypeAlias = Configured | MCPServerEntry | dict[str, Any]
_SEPARATOR: Final = "#"  # between a name and the number of its replica


class Gateway(ServesHttp):
    """Serves what many servers offer, as if it were one.

    async with Gateway() as gateway:
        await gateway.connect({"time": {"command": "uvx", "args": ["mcp-server-time"]}})
        await gateway.run_http(port=8765)

    Over HTTP all servers are at `/mcp`, under merged names, and each one at `/mcp/NAME` under its
    own; a view holds at both. With `search=True` the merged list of tools has three that find and
    call the others. All of them can still be called by name, and are listed at `/mcp/NAME`, and
    for who sends `"_meta": {"fairlead/allTools": true}` with `tools/list`.
    """

    port = 8765

    def __init__(
        self,
        manager: MCPManager | None = None,
        *,
        settings: GatewaySettings | None = None,
        interceptors: Sequence[Interceptor] = (),
        views: Mapping[str, View] | None = None,
        observing: "Observing | None" = None,
        **options: Any,
    ) -> None:
        """`views`: what a principal gets to see; everybody else sees what `settings.view` shows.
        `observing` keeps a journal, metrics and a desk for messages that are held.

        Interceptors see the names that clients use at the merged endpoint, and a call inside of
        `call_tool` as well as the `call_tool`. Options are fields of `GatewaySettings`. A manager
        given is yours to close.

        Raises:
            ConfigError: `search` is on, and the library for it is not there.
        """
        self.settings = settings if settings is not None else GatewaySettings(**options)
        self._owns_manager = manager is None
        self.manager = manager or MCPManager(on_roots=None)
        self.info = {"name": self.settings.name, "version": _version()}
        self.observing = observing
        if observing is not None:
            interceptors = (*observing.interceptors, *interceptors)
        self.interceptors = tuple(interceptors)
        self.on_offence = hearers(interceptors)
        self.handler: Handler = chain(interceptors, self._handle)
        self._direct: Handler = chain(interceptors, self._call_directly)
        self.members: dict[str, Member] = {}
        self.doors: dict[str, Door] = {}
        self.catalog = Catalog(self.settings.page_size)
        self.changes = Changes()
        self.parked = Parked(self.settings.relay)
        self.since = time.time()
        self.hearsay = Hearsay()
        self.reload: Callable[[], Awaitable[object]] | None = None  # of who follows files for it
        self._views = dict(views or {})
        self._visitors: dict[object, Visitor] = {}
        self._listening: dict[object, tuple[str | None, list[str]]] = {}  # stateless: who, to what
        self._owners: dict[str, Member] = {}  # by the names that the manager knows
        shown = [one.shown for one in interceptors if hasattr(one, "shown")]  # a tool lock
        self._searching = _searching(self.catalog, shown) if self.settings.search else None
        self._marks: dict[str, tuple[ParamHeader, ...]] = {}
        self._marked = 0  # the version of the tools that they are of
        self._looked = 0.0  # when lists were last looked over
        self._apps: list[HttpApp] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._watching = Watching(self.manager, self._start)
        self.inline_methods: set[str] = set() if interceptors else {"tools/list", "ping"}
        tail = b'"resultType":"complete","_meta":{"%b":%b}}' % (
            SERVER_INFO_KEY.encode(),
            to_json(self.info),
        )
        self._complete = b"," + tail
        self._cacheable = b',"ttlMs":0,"cacheScope":"private",' + tail
        self._quiet = [
            self.manager.add_status_listener(self._status),
            self.manager.add_notification_listener(self._heard),
        ]
        if observing is not None:
            self._quiet += observing.attend(self)

    # Servers

    async def connect(
        self,
        servers: "Mapping[str, Entry | list[Entry]]",
    ) -> None:
        """Add servers; several entries under one name are equal servers that share its calls.

        Returns at once: lists fill as servers answer.

        Raises:
            ConfigError: an entry is wrong.
        """
        wanted: dict[str, Configured] = {}
        members: list[Member] = []
        for name, given in servers.items():
            if not name.strip("/"):
                raise ConfigError("A server needs a name")
            if name in self.members:
                raise ConfigError(f"There is a server {name!r} already; disconnect it first")
            replicas = []
            for number, entry in enumerate(given if isinstance(given, list) else [given]):
                own = name if number == 0 else f"{name}{_SEPARATOR}{number + 1}"
                if own in wanted or own in self._owners:
                    raise ConfigError(f"There are two servers {own!r}")
                known = (
                    entry if isinstance(entry, Configured) else Configured(entry=read_entry(entry))
                )
                wanted[own] = known
                replicas.append(self._replica(own, known))
            if not replicas:
                raise ConfigError(f"There is no entry for {name!r}")
            members.append(Member(name, replicas, self.catalog, self._changed))
        for member in members:
            self.members[member.name] = member
            self.catalog.expect(member.name)
            self._owners.update((replica.name, member) for replica in member.replicas)
            door = self.doors[member.name] = Door(self, member)
            for app in self._apps:
                app.add(f"{app.settings.path}/{member.name}", door)
        await self.manager.connect_servers(wanted, startup="background")
        for member in members:
            self._take_stock(member)

    def arrange(self, names: Iterable[str]) -> None:
        """The order of the servers: what several have is the first one's, whoever came first."""
        names = list(names)
        place = {name: number for number, name in enumerate(names)}
        in_order = sorted(self.members.items(), key=lambda one: place.get(one[0], len(place)))
        self.members = dict(in_order)
        for kind in self.catalog.arrange(names):
            self._changed(kind)

    def _take_stock(self, member: Member) -> None:
        """What is known of a server at once: that it is there, or its tools from last time."""
        known = [self.manager.describe().get(replica.name) for replica in member.replicas]
        member.failed()
        if any(one is not None and one.state == "connected" for one in known):
            member.refresh()
        elif (remembered := self.manager.remembered(member.name)) is not None:
            member.remember(remembered)
        level = self._least_level()
        for supervisor in known:
            if supervisor is not None and level is not None:
                self._start(_quietly(supervisor.set_log_level(level)))

    def _replica(self, name: str, configured: Configured) -> Replica:
        settings = self.settings
        breaker = CircuitBreaker(
            failure_threshold=settings.failure_threshold,
            reset_timeout=settings.reset_timeout,
            name=name,
            counts=lambda exc: isinstance(exc, TransportError),
        )
        return Replica(
            *(name, self.manager, configured, settings.relay, self.parked, breaker),
            interceptors=self.interceptors,
        )

    async def disconnect(self, name: str) -> None:
        """Take a server away; clients hear that the lists have changed."""
        member = self.members.pop(name, None)
        if member is None:
            return
        door = self.doors.pop(name)
        for replica in member.replicas:
            self._owners.pop(replica.name, None)
        for app in self._apps:
            await app.remove(f"{app.settings.path}/{name}")
        for kind in self.catalog.drop(name):
            self._changed(kind)
        self._watching.forget(member)
        for visitor in self._visitors.values():
            member.left(visitor)
            visitor.uris = {uri: owner for uri, owner in visitor.uris.items() if owner != name}
        await door.close()
        await member.close()
        for replica in member.replicas:
            await self.manager.disconnect_server(replica.name)

    def _status(self, event: StatusEvent) -> None:
        for name in event.names:
            member = self._owners.get(name)
            if member is None:
                continue
            for replica in member.replicas:
                replica.lost()
                if event.kind == "connected" and replica.name == name:
                    self._start(_quietly(replica.adopt()))
            if event.kind == "connected":
                member.connected()
                self._watching.connected(member, name)
                for uri in self._watching.uris(member):  # nobody told while it was away
                    self.changes.changed(UPDATED, uri)
            elif event.kind == "failed":
                member.failed()

    def _heard(self, server: str, method: str, params: dict[str, Any]) -> None:
        member = self._owners.get(server)
        if member is None:
            return
        uri = params.get("uri")
        self.hearsay.add(server, method, params)
        if method.endswith("/list_changed"):
            member.heard(server, method)
        elif method == UPDATED and isinstance(uri, str):
            for watched in self._watching.uris(member, uri):
                self.changes.changed(UPDATED, watched)

    def _changed(self, kind: Kind) -> None:
        self.changes.changed(_NEWS[kind])

    # Serving

    async def serve(self, channel: Channel) -> None:
        """Serve one client on a channel until it ends."""
        peer = self.attach(channel)
        try:
            await peer.wait_closed()
        finally:
            await self.changes.end(peer)
            await peer.close()

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ..transport.stdio import open_stdio

        async with open_stdio() as channel:
            await self.serve(channel)

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> "HttpApp":
        """The ASGI application: all servers at `/mcp`, each one at `/mcp/NAME`, a page at `/`."""
        from ..server.http import HttpApp
        from .pages import GatewayPages

        chosen = settings if settings is not None else HttpSettings(**options)
        others = {f"{chosen.path}/{name}": door for name, door in self.doors.items()}
        app = HttpApp(self, chosen, pages=GatewayPages(self, chosen), others=others)
        self._apps.append(app)
        return app

    def http_ended(self, app: "HttpApp") -> None:
        self._apps.remove(app)

    def attach(self, channel: Channel, principal: str | None = None) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        visitor = Visitor(principal, self.settings.relay.input_timeout, self.interceptors)
        peer = Peer(
            channel,
            Conversation(Role.SERVER, Identity(self.info, _CAPABILITIES), principal=principal),
            handler=self.handler,
            inline=self.answer_inline,
            inline_methods=self.inline_methods,
            on_notification=lambda note: visitor.passage.put(
                note, visitor.peer, lambda passed: self._told(visitor, passed)
            ),
            on_cancelled=lambda note, cancel: visitor.passage.cancel(note, visitor.peer, cancel),
            on_eof=self.changes.stop,
            on_close=lambda _: self._left(visitor),
            input_timeout=self.settings.relay.input_timeout,
        )
        visitor.connect(peer)
        self._visitors[peer] = visitor
        peer.start()
        return peer

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It may be served several times; who made it closes it."""
        yield None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all clients, and all servers that are ours."""
        for listener in self._quiet:
            listener()
        self.parked.close()
        await self.changes.end()
        await asyncio.gather(*(v.peer.close() for v in list(self._visitors.values())))
        await asyncio.gather(*(door.close() for door in self.doors.values()))
        await asyncio.gather(*(member.close() for member in self.members.values()))
        self.members.clear()
        self.doors.clear()
        self._owners.clear()
        background = list(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        if self._owns_manager:
            await self.manager.close()

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens."""
        await self.changes.end()

    def told_alone(self, note: Notification, caller: Caller, context: TransportContext) -> None:
        """A notification outside of any connection concerns no server in particular."""

    def marks_of(self, tool: str) -> tuple[ParamHeader, ...]:
        """Which arguments of a tool travel as headers too."""
        version = self.catalog.version(Kind.TOOLS)
        if version != self._marked:
            self._marks.clear()
            self._marked = version
        marks = self._marks.get(tool)
        if marks is None:
            marks = self._find_marks(tool)
            if self.catalog.tool(tool, View.everything()) is not None:
                self._marks[tool] = marks  # there are only so many
        return marks

    def _find_marks(self, tool: str) -> tuple[ParamHeader, ...]:
        definition = self.catalog.definition(tool, View.everything())
        if definition is None or b"x-mcp-header" not in bytes(definition):
            return ()
        try:
            return param_headers(msgspec.json.decode(definition).get("inputSchema"))
        except (ValueError, AttributeError):
            return ()

    @property
    def clients(self) -> int:
        """How many clients are connected; those without a connection are not counted."""
        return sum(1 for _ in self.visitors())

    def sessions(self) -> list[dict[str, Any]]:
        """The connected clients, as plain data."""
        return [
            {
                "client": (visitor.peer.session.client_info or {}).get("name"),
                "protocol_version": visitor.peer.session.protocol_version,
                "principal": visitor.principal,
                "transport": visitor.peer.channel.context.transport_type,
                "subscriptions": sorted(visitor.uris),
            }
            for visitor in self.visitors()
        ]

    def visitors(self) -> Iterator[Visitor]:
        """Everybody on a connection that lasts."""
        yield from self._visitors.values()
        for door in self.doors.values():
            yield from door.guests.values()

    # Requests

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Answer what needs no waiting; None for everything else."""
        if exchange.method == "ping" and not exchange.caller.stateless:
            return b"{}"
        if exchange.method == "tools/list" and self.is_ready:
            return self._page(Kind.TOOLS, exchange)
        return None

    @property
    def is_ready(self) -> bool:
        """Whether every server has said what it offers, or cannot be asked."""
        return all(member.listed.is_set() for member in self.members.values())

    async def _handle(self, exchange: Exchange) -> Answer:
        visitor = self._visitors.get(exchange.edge)
        if visitor is not None:
            await visitor.passage.passed()
        return await self._answer(exchange, visitor)

    async def _answer(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        caller, method = exchange.caller, exchange.method
        if method in _LISTS:
            await self.listed()
            return self._page(_LISTS[method], exchange)
        match method:
            case "tools/call":
                return await self._call(exchange, visitor)
            case "prompts/get":
                target = await self._find(self.catalog.prompt, exchange)
                if target is None:
                    raise self._unknown("prompt", exchange)
                return await self._to(target, exchange, visitor)
            case "resources/read":
                member = await self._member_with(exchange)
                return await member.answer(exchange, visitor)
            case "completion/complete":
                return await self._complete_argument(exchange, visitor)
            case "resources/subscribe" | "resources/unsubscribe" if not caller.stateless:
                return await self._subscribe(exchange, visitor)
            case "subscriptions/listen" if caller.stateless:
                return await self._listen(exchange)
            case "logging/setLevel" if not caller.stateless:
                return self._set_level(exchange, visitor)
            case "initialize" if not caller.stateless:
                return await self._initialize(exchange, visitor)
            case "server/discover" if caller.stateless:
                return await self._discover(exchange)
            case "ping" if not caller.stateless:
                return b"{}"
        raise ours(METHOD_NOT_FOUND, f"Method not found: {method}")

    def view_of(self, caller: Caller) -> View:
        """What somebody gets to see."""
        return self.view_for(caller.principal)

    def view_for(self, principal: str | None) -> View:
        """The same, by name."""
        view = self._views.get(principal) if principal is not None else None
        return view or self.settings.view

    # Changing who sees what

    def show(self, views: Mapping[str, View], view: View) -> None:
        """From now on principals see this; those for whom it changes hear that lists have.

        Nobody hears any more of what he does not see.
        """
        before = {name: self.view_for(name) for name in {*self._principals(), None}}
        self._views = dict(views)
        self.settings = msgspec.structs.replace(self.settings, view=view)
        affected = {name for name, old in before.items() if old != self.view_for(name)}
        edges: set[object] = set()
        for visitor in self._visitors.values():
            if visitor.principal in affected:
                edges.add(visitor.peer)
                self._narrow(visitor)
        for edge, (name, uris) in self._listening.items():
            if name in affected:
                edges.add(edge)
                if not all(self.view_for(name).permits_uri(uri) for uri in uris):
                    self.changes.stop(edge)
        self.changes.look_again(edges)
        for door in self.doors.values():
            door.look_again(affected)

    def _principals(self) -> Iterator[str | None]:
        yield from (visitor.principal for visitor in self.visitors())
        yield from (name for name, _ in self._listening.values())
        for door in self.doors.values():
            yield from door.listening.values()

    def _narrow(self, visitor: Visitor) -> None:
        """A client sees other things now: what it does not see, it does not hear of."""
        view = self.view_for(visitor.principal)
        for uri, server in list(visitor.uris.items()):
            if not (view.includes(server) and view.permits_uri(uri)):
                self.changes.unsubscribe(visitor.peer, uri)
                self._unwatch(visitor, uri)
        for member in self.members.values():
            if not view.includes(member.name):
                member.left(visitor)

    async def dismiss(self, principals: Container[str | None]) -> None:
        """End all connections of somebody who may not come in any more."""
        for edge, (name, _) in self._listening.items():
            if name in principals:
                self.changes.stop(edge)
        for door in self.doors.values():
            door.hang_up_on(principals)
        peers = [one.peer for one in self.visitors() if one.principal in principals]
        await asyncio.gather(*(peer.close("the token is not valid any more") for peer in peers))

    # What it says about itself

    async def _initialize(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        params = exchange.message.params
        if visitor is not None and isinstance(params, Raw):
            visitor.introduction = params.copy()
        self.changes.introduced(exchange.edge, _CAPABILITIES)
        result: dict[str, Any] = {
            "protocolVersion": exchange.caller.revision.value,
            "capabilities": _CAPABILITIES,
            "serverInfo": self.info,
            **await self._instructions(exchange),
        }
        return downgrade_result("initialize", Raw(to_json(result)), exchange.caller.revision)

    async def _discover(self, exchange: Exchange) -> bytes:
        result = {
            "supportedVersions": [revision.value for revision in reversed(Revision)],
            "capabilities": _CAPABILITIES,
            **await self._instructions(exchange),
        }
        return to_json(result)[:-1] + self._cacheable

    async def _instructions(self, exchange: Exchange) -> dict[str, str]:
        """What the servers want a model to know, each under its name."""
        if self.settings.instructions is not None:
            return {"instructions": self.settings.instructions}
        if not exchange.caller.stateless:
            await self.listed()  # it is told only once; others may ask again
        view = self.view_of(exchange.caller)
        said: dict[str, str] = {}
        for server, connection in self.manager.connections.items():
            member = self._owners.get(server)
            text = connection.client.instructions
            if member is not None and text and view.includes(member.name):
                said.setdefault(member.name, text)
        texts = [f"{name}: {text}" for name, text in sorted(said.items())]
        return {"instructions": "\n\n".join(texts)} if texts else {}

    # Lists

    async def listed(self) -> None:
        """Servers that have just been started get a moment to say what they have."""
        for member in [m for m in self.members.values() if not m.listed.is_set()]:
            left = member.began + self.settings.deadline - time.monotonic()
            if left <= 0:
                continue
            try:
                async with asyncio.timeout(left):
                    await member.listed.wait()
            except TimeoutError:
                pass

    def _page(self, kind: Kind, exchange: Exchange) -> bytes:
        caller = exchange.caller
        self._look_over()
        if kind is Kind.TOOLS and self.settings.search and not wants_all(exchange):
            from .search import search_page

            members = search_page(caller.revision)
        else:
            cursor = cursor_of(exchange)
            members = self.catalog.page(kind, self.view_of(caller), caller.revision, cursor)
        return self.framed(members, caller)

    def framed(self, members: bytes, caller: Caller) -> bytes:
        """The members of a list result as the result that this caller expects."""
        if not caller.stateless:
            return b"{%b}" % members
        return b"{%b%b" % (members, self._cacheable)

    def _look_over(self) -> None:
        """Have lists that are old fetched again, behind the answer that they are still good for."""
        fresh, now = self.settings.fresh, time.monotonic()
        if not fresh or now - self._looked < min(fresh, 1.0):
            return
        self._looked = now
        for member in self.members.values():
            member.refresh_if_older(fresh)

    # Calls

    async def _call(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        if self.settings.search:
            answer = await self._search(exchange)
            if answer is not None:
                return answer
        target = await self._find(self.catalog.tool, exchange)
        if target is None:
            raise self._unknown("tool", exchange)
        return await self._to(target, exchange, visitor)

    async def _call_directly(self, exchange: Exchange) -> Answer:
        """The call inside of a `call_tool`; interceptors have seen what it is about."""
        target = self.catalog.tool(exchange.target or "", self.view_of(exchange.caller))
        if target is None:
            raise ours(INVALID_PARAMS, f"Unknown tool: {exchange.target}")
        return await self._to(target, exchange, self._visitors.get(exchange.edge))

    async def _find(
        self, look: Callable[[str, View], Target | None], exchange: Exchange
    ) -> Target | None:
        """Whose something is; it may belong to a server that is just starting."""
        name, view = exchange.target or "", self.view_of(exchange.caller)
        target = look(name, view)
        if target is None:
            await self.listed()
            target = look(name, view)
        return target

    def _unknown(self, what: str, exchange: Exchange) -> RpcError:
        """Why there is no such thing; perhaps its server could not say yet what it has."""
        name, view = exchange.target or "", self.view_of(exchange.caller)
        message = f"Unknown {what}: {name}"
        connected = set(self.manager.get_connected_servers())
        for member in self.members.values():
            if not view.includes(member.name) or not name.startswith(full_name(member.name, "")):
                continue
            if connected.isdisjoint(member.names):
                message += f"; {member.name} is not connected"
            elif not member.listed.is_set() or member.error is not None:
                message += f"; {member.name} has not said what it offers"
        return ours(INVALID_PARAMS, message)

    def _to(self, target: Target, exchange: Exchange, visitor: Visitor | None) -> Awaitable[Answer]:
        member = self.members.get(target.server)
        if member is None:
            raise ours(INVALID_PARAMS, f"The server {target.server!r} has gone")
        exchange.alias = target.name
        return member.answer(exchange, visitor)

    async def _search(self, exchange: Exchange) -> Answer:
        """The three tools of search mode; None for any other."""
        assert self._searching is not None
        found = await self._searching.answer(exchange, self.view_of(exchange.caller))
        if isinstance(found, Exchange):
            return await self._direct(found)
        if found is None:
            return None
        if exchange.caller.stateless:
            return found[:-1] + self._complete
        return bytes(downgrade_result("tools/call", Raw(found), exchange.caller.revision))

    async def _member_with(self, exchange: Exchange) -> Member:
        """Whose a resource is."""
        uri = exchange.head.uri
        if isinstance(uri, UnsetType):
            raise ours(INVALID_PARAMS, "params.uri is required: the URI of a resource")
        if not self.is_ready:  # a server that is just starting may come before who has it so far
            await self.listed()
        owner = self.catalog.owner(uri, self.view_of(exchange.caller))
        member = None if owner is None else self.members.get(owner)
        if member is None:
            code = INVALID_PARAMS if exchange.caller.stateless else RESOURCE_NOT_FOUND
            raise ours(code, f"Resource not found: {uri}", uri=uri)
        return member

    async def _complete_argument(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        reference = reference_of(exchange)
        view = self.view_of(exchange.caller)
        if reference.uri is not None:
            owner = self.catalog.template_owner(reference.uri, view)
            member = None if owner is None else self.members.get(owner)
            if member is None:
                raise ours(INVALID_PARAMS, f"No such template: {reference.uri}")
            return await member.answer(exchange, visitor)
        target = self.catalog.prompt(reference.name or "", view)
        member = None if target is None else self.members.get(target.server)
        if target is None or member is None:
            raise ours(INVALID_PARAMS, f"Unknown prompt: {reference.name}")
        named = {**msgspec.json.decode(reference.raw), "name": target.name}
        return await member.answer(with_members(exchange, ref=named), visitor)

    # Changes

    async def _subscribe(self, exchange: Exchange, visitor: Visitor | None) -> bytes:
        uri = exchange.head.uri
        if exchange.method == "resources/unsubscribe":
            if not isinstance(uri, UnsetType):
                self.changes.unsubscribe(exchange.edge, uri)
                self._unwatch(visitor, uri)
            return b"{}"
        member = await self._member_with(exchange)
        assert isinstance(uri, str)
        self.changes.subscribe(exchange.edge, uri)
        if visitor is not None and not visitor.gone and uri not in visitor.uris:
            visitor.uris[uri] = member.name
            if not await self._watching.add(member, uri, self.settings.deadline):
                visitor.uris.pop(uri, None)
                self.changes.unsubscribe(exchange.edge, uri)
                raise ours(INTERNAL_ERROR, f"{member.name} does not tell of changes of {uri}")
        return b"{}"

    def _unwatch(self, visitor: Visitor | None, uri: str) -> None:
        owner = None if visitor is None else visitor.uris.pop(uri, None)
        member = None if owner is None else self.members.get(owner)
        if member is not None:
            self._watching.remove(member, uri)

    async def _listen(self, exchange: Exchange) -> Answer:
        """Hear of lists, and of the resources that the client may see and a server tells of."""
        view, watched = self.view_of(exchange.caller), dict[str, Member]()
        for uri in uris_of(exchange):
            member = self.members.get(self.catalog.owner(uri, view) or "")
            if member is not None:
                watched[uri] = member
        added: dict[str, Member] = {}

        async def watch(uri: str, member: Member) -> None:
            if await self._watching.add(member, uri, self.settings.deadline):
                added[uri] = member

        try:
            await asyncio.gather(*(watch(uri, member) for uri, member in watched.items()))
            wanted = [uri for uri in watched if uri in added]
            self._listening[exchange.edge] = exchange.caller.principal, wanted
            return await self.changes.listen(listening_to(exchange, wanted), _CAPABILITIES)
        finally:
            self._listening.pop(exchange.edge, None)
            for uri, member in added.items():
                if self.members.get(member.name) is member:
                    self._watching.remove(member, uri)

    def _set_level(self, exchange: Exchange, visitor: Visitor | None) -> bytes:
        level = level_of(exchange)
        if level not in LEVELS:
            raise ours(INVALID_PARAMS, f"No log level {level!r}; there are {', '.join(LEVELS)}")
        exchange.edge.log_level = level
        if visitor is not None:
            visitor.level = level
            for front in visitor.fronts.values():
                front.level = level
                self._set_level_on(front.link)
        for name in self._owners:
            supervisor = self.manager.describe().get(name)
            if supervisor is not None:
                self._start(_quietly(supervisor.set_log_level(self._least_level() or level)))
        return b"{}"

    def _set_level_on(self, link: Link | None) -> None:
        """On a connection that is no manager's: what its sessions want to have logged."""
        if link is None or link.stateless or link.borrowed:
            return
        levels = [front.level for front in link.fronts if front.level is not None]
        wanted = {"level": min(levels, key=LEVELS.index)} if levels else {}
        self._start(_quietly(link.peer.request("logging/setLevel", wanted)))

    def _least_level(self) -> str | None:
        """A server that has one level for all logs what anybody wants."""
        wanted = [v.level for v in self._visitors.values() if v.level is not None]
        return min(wanted, key=LEVELS.index, default=None)

    def _told(self, visitor: Visitor, note: Notification) -> None:
        if note.method == "notifications/initialized":
            return
        for front in list(visitor.fronts.values()):
            link = front.link
            # What a client can do was never said on a connection that all share.
            if link is not None and not link.stateless and not link.borrowed:
                link.outbox.put(note)

    def _left(self, visitor: Visitor) -> None:
        self._visitors.pop(visitor.peer, None)
        visitor.close()
        for member in self.members.values():
            member.left(visitor)
        for uri in list(visitor.uris):
            self._unwatch(visitor, uri)

    def _start(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


def _searching(catalog: Catalog, shown: "Sequence[Shown]") -> "Searching":
    from .searching import Searching  # most gateways have none

    return Searching(catalog, shown)


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)


def _version() -> str:
    from .. import __version__

    return __version__
