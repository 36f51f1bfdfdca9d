"""Many servers on one endpoint: merged lists, calls to whom they belong, one bad server no harm."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..client.entries import MCPServerEntry, read_entry
from ..errors import CircuitOpenError, FairleadError, MCPToolError, RpcError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain
from ..interceptor.breaker import CircuitBreaker
from ..manager import MCPManager
from ..manager.manager import Configured, StatusEvent
from ..peer import Peer
from ..protocol.caller import SERVER_INFO_KEY, Caller, read_head
from ..protocol.conversation import Conversation, Role
from ..protocol.downgrade import downgrade_result
from ..protocol.headers import ParamHeader, param_headers
from ..protocol.outgoing import Identity
from ..protocol.revisions import Revision
from ..server.subscriptions import UPDATED, Changes
from ..transport.base import Channel
from ..transport.http.settings import HttpSettings
from ..wire import Notification, to_json
from ..wire.codes import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from .bridge.errors import ours, unreachable
from .bridge.parking import Parked
from .call import LEVELS
from .catalog import Catalog, Kind, Target
from .member import Member, Replica
from .settings import GatewaySettings
from .views import View
from .visitor import Visitor

if TYPE_CHECKING:
    import ssl

    from ..server.http import HttpApp
    from .search import ToolSearch

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


class Gateway:
    """Serves what many servers offer, as if it were one.

    async with Gateway() as gateway:
        await gateway.connect({"time": {"command": "uvx", "args": ["mcp-server-time"]}})
        await gateway.run_http(port=8765)
    """

    def __init__(
        self,
        manager: MCPManager | None = None,
        *,
        settings: GatewaySettings | None = None,
        interceptors: Sequence[Interceptor] = (),
        views: Mapping[str, View] | None = None,
        **options: Any,
    ) -> None:
        """`views`: what a principal gets to see; everybody else sees what `settings.view` shows.

        Options are fields of `GatewaySettings`. A manager given is yours to close.
        """
        self.settings = settings if settings is not None else GatewaySettings(**options)
        self._owns_manager = manager is None
        self.manager = manager or MCPManager(on_roots=None)
        self.info = {"name": self.settings.name, "version": _version()}
        self.handler: Handler = chain(interceptors, self._handle)
        self.members: dict[str, Member] = {}
        self.catalog = Catalog(self.settings.page_size)
        self.changes = Changes()
        self.parked = Parked(self.settings.relay)
        self.since = time.time()
        self._views = dict(views or {})
        self._visitors: dict[object, Visitor] = {}
        self._watched: dict[str, int] = {}  # how many clients watch a resource
        self._searches: dict[View, ToolSearch] = {}
        self._marks: dict[tuple[str, int], tuple[ParamHeader, ...]] = {}
        self._apps: list[HttpApp] = []
        self._started: float | None = None
        self._background: set[asyncio.Task[Any]] = set()
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
        loop = asyncio.get_running_loop()
        self._started = self._started or loop.time()
        wanted: dict[str, Configured] = {}
        for name, given in servers.items():
            entries = given if isinstance(given, list) else [given]
            replicas = []
            for number, entry in enumerate(entries):
                known = (
                    entry if isinstance(entry, Configured) else Configured(entry=read_entry(entry))
                )
                own = name if number == 0 else f"{name}{_SEPARATOR}{number + 1}"
                wanted[own] = known
                replicas.append(self._replica(own, known))
            member = self.members[name] = Member(name, replicas, self.catalog, self._changed)
            for app in self._apps:
                app.add(f"{app.settings.path}/{name}", member.replicas[0].relay)
        await self.manager.connect_servers(wanted, startup="background")
        for name in servers:
            self._take_stock(name)

    def _take_stock(self, name: str) -> None:
        """What is known of a server at once: that it is there, or its tools from last time."""
        member = self.members[name]
        supervisor = self.manager.describe().get(name)
        if supervisor is None or supervisor.state in ("failed", "suspended"):
            member.failed(str(None if supervisor is None else supervisor.error))
        remembered = self.manager.remembered(name)
        if supervisor is not None and supervisor.state == "connected":
            member.refresh()
        elif remembered is not None:
            member.remember(remembered)

    def _replica(self, name: str, configured: Configured) -> Replica:
        settings = self.settings
        breaker = CircuitBreaker(
            failure_threshold=settings.failure_threshold,
            reset_timeout=settings.reset_timeout,
            name=name,
        )
        return Replica(name, self.manager, configured, settings.relay, self.parked, breaker)

    async def disconnect(self, name: str) -> None:
        """Take a server away; clients hear that the lists have changed."""
        member = self.members.pop(name, None)
        if member is None:
            return
        for app in self._apps:
            await app.remove(f"{app.settings.path}/{name}")
        for kind in self.catalog.drop(name):
            self._changed(kind)
        await member.close()
        for replica in member.replicas:
            await self.manager.disconnect_server(replica.name)

    def _member_of(self, server: str) -> Member | None:
        """The member to which a server of the manager belongs."""
        return self.members.get(server.partition(_SEPARATOR)[0])

    def _status(self, event: StatusEvent) -> None:
        for name in event.names:
            member = self._member_of(name)
            if member is None:
                continue
            if event.kind == "connected":
                member.refresh()
            elif event.kind == "failed":
                member.failed(event.error or "it failed")

    def _heard(self, server: str, method: str, params: dict[str, Any]) -> None:
        member = self._member_of(server)
        if member is None:
            return
        if method.endswith("/list_changed"):
            member.refresh()
        elif method == UPDATED and isinstance(params.get("uri"), str):
            self.changes.changed(UPDATED, params["uri"])

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
        others = {
            f"{chosen.path}/{name}": member.replicas[0].relay
            for name, member in self.members.items()
        }
        app = HttpApp(self, chosen, pages=GatewayPages(self, chosen), others=others)
        self._apps.append(app)
        return app

    async def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8765,
        *,
        uds: str | None = None,
        tls: "ssl.SSLContext | None" = None,
        insecure: bool = False,
        started: Callable[[str], None] | None = None,
        settings: HttpSettings | None = None,
        **options: Any,
    ) -> None:
        """Serve HTTP until cancelled, as `MCPServer.run_http` does."""
        from ..server.run_http import run_app

        app = self.create_http_app(settings, **options)
        try:
            await run_app(app, host, port, uds=uds, tls=tls, insecure=insecure, started=started)
        finally:
            self._apps.remove(app)

    def attach(self, channel: Channel, principal: str | None = None) -> Peer:
        """Serve one client in the background; the returned peer can be closed."""
        visitor = Visitor(principal, self.settings.relay.input_timeout)
        peer = Peer(
            channel,
            Conversation(Role.SERVER, Identity(self.info, _CAPABILITIES), principal=principal),
            handler=self.handler,
            inline=self.answer_inline,
            inline_methods=self.inline_methods,
            on_notification=lambda note: self._told(visitor, note),
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
        await asyncio.gather(*(member.close() for member in self.members.values()))
        self.members.clear()
        for task in list(self._background):
            task.cancel()
        if self._owns_manager:
            await self.manager.close()

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens."""
        await self.changes.end()

    def told_alone(self, note: Notification, caller: Caller) -> None:
        """A notification outside of any connection concerns no server in particular."""

    def marks_of(self, tool: str) -> tuple[ParamHeader, ...]:
        """Which arguments of a tool travel as headers too."""
        key = tool, self.catalog.version(Kind.TOOLS)
        marks = self._marks.get(key)
        if marks is None:
            if len(self._marks) > 10_000:
                self._marks.clear()
            marks = self._marks[key] = self._find_marks(tool)
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
        return len(self._visitors)

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
            for visitor in self._visitors.values()
        ]

    # Requests

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Answer what needs no waiting; None for everything else."""
        if exchange.method == "ping" and not exchange.caller.stateless:
            return b"{}"
        if exchange.method == "tools/list" and self._all_listed:
            return self._page(Kind.TOOLS, exchange)
        return None

    @property
    def _all_listed(self) -> bool:
        return all(member.listed.is_set() for member in self.members.values())

    async def _handle(self, exchange: Exchange) -> Answer:
        visitor = self._visitors.get(exchange.edge)
        try:
            return await self._answer(exchange, visitor)
        except RpcError:
            raise
        except CircuitOpenError as exc:
            raise ours(-32603, str(exc), retryAfter=exc.remaining) from None
        except FairleadError as exc:
            log.warning("%s: %s", exchange.method, exc)
            raise unreachable(self._where(exchange), exc) from None

    def _where(self, exchange: Exchange) -> str:
        target = exchange.target
        found = self.catalog.tool(target or "", View.everything())
        return "the server" if found is None else found.server

    async def _answer(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        caller, method = exchange.caller, exchange.method
        if method in _LISTS:
            await self._listed()
            return self._page(_LISTS[method], exchange)
        match method:
            case "tools/call":
                return await self._call(exchange, visitor)
            case "prompts/get":
                target = self.catalog.prompt(exchange.target or "", self.view_of(caller))
                if target is None:
                    raise ours(INVALID_PARAMS, f"Unknown prompt: {exchange.target}")
                return await self._to(target, exchange, visitor)
            case "resources/read":
                return await self._member_with(exchange).answer(exchange, visitor)
            case "completion/complete":
                return await self._complete_argument(exchange, visitor)
            case "resources/subscribe" | "resources/unsubscribe" if not caller.stateless:
                return await self._subscribe(exchange, visitor)
            case "subscriptions/listen" if caller.stateless:
                return await self._listen(exchange)
            case "logging/setLevel" if not caller.stateless:
                return self._set_level(exchange, visitor)
            case "initialize" if not caller.stateless:
                return self._initialize(exchange, visitor)
            case "server/discover" if caller.stateless:
                return self._discover()
            case "ping" if not caller.stateless:
                return b"{}"
        raise ours(METHOD_NOT_FOUND, f"Method not found: {method}")

    def view_of(self, caller: Caller) -> View:
        """What somebody gets to see."""
        view = self._views.get(caller.principal) if caller.principal is not None else None
        return view or self.settings.view

    # What it says about itself

    def _initialize(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        params = exchange.message.params
        if visitor is not None and isinstance(params, Raw):
            visitor.introduction = params.copy()
        self.changes.introduced(exchange.edge, _CAPABILITIES)
        result: dict[str, Any] = {
            "protocolVersion": exchange.caller.revision.value,
            "capabilities": _CAPABILITIES,
            "serverInfo": self.info,
            **self._instructions(),
        }
        return downgrade_result("initialize", Raw(to_json(result)), exchange.caller.revision)

    def _discover(self) -> bytes:
        result = {
            "supportedVersions": [revision.value for revision in reversed(Revision)],
            "capabilities": _CAPABILITIES,
            **self._instructions(),
        }
        return to_json(result)[:-1] + self._cacheable

    def _instructions(self) -> dict[str, str]:
        """What the servers want a model to know, each under its name."""
        if self.settings.instructions is not None:
            return {"instructions": self.settings.instructions}
        said = {
            name: connection.client.instructions
            for name, connection in self.manager.connections.items()
            if name in self.members
        }
        texts = [f"{name}: {text}" for name, text in sorted(said.items()) if text]
        return {"instructions": "\n\n".join(texts)} if texts else {}

    # Lists

    async def _listed(self) -> None:
        """Servers that have just been started get a moment to say what they have."""
        missing = [m.listed for m in self.members.values() if not m.listed.is_set()]
        if not missing or self._started is None:
            return
        left = self._started + self.settings.deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return
        try:
            async with asyncio.timeout(left):
                for event in missing:
                    await event.wait()
        except TimeoutError:
            pass

    def _page(self, kind: Kind, exchange: Exchange) -> bytes:
        caller = exchange.caller
        if kind is Kind.TOOLS and self.settings.search:
            from .search import search_page

            members = search_page(caller.revision)
        else:
            cursor = _read(exchange, _Cursor).cursor
            members = self.catalog.page(kind, self.view_of(caller), caller.revision, cursor)
        if not caller.stateless:
            return b"{%b}" % members
        return b"{%b%b" % (members, self._cacheable)

    # Calls

    async def _call(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        name, view = exchange.target or "", self.view_of(exchange.caller)
        if self.settings.search:
            answer = await self._search(name, exchange, visitor, view)
            if answer is not None:
                return answer
        target = self.catalog.tool(name, view)
        if target is None:
            await self._listed()  # it may belong to a server that is just starting
            target = self.catalog.tool(name, view)
        if target is None:
            raise ours(INVALID_PARAMS, f"Unknown tool: {name}")
        return await self._to(target, exchange, visitor)

    def _to(self, target: Target, exchange: Exchange, visitor: Visitor | None) -> Awaitable[Answer]:
        member = self.members.get(target.server)
        if member is None:
            raise ours(INVALID_PARAMS, f"The server {target.server!r} has gone")
        exchange.alias = target.name
        return member.answer(exchange, visitor)

    async def _search(
        self, name: str, exchange: Exchange, visitor: Visitor | None, view: View
    ) -> Answer:
        """The three tools of search mode; None for any other."""
        from . import search as mode

        arguments = exchange.head.arguments
        try:
            wanted = mode.read_arguments(
                name, None if isinstance(arguments, UnsetType) else arguments
            )
        except MCPToolError as exc:
            return self._tool_answer(to_json(exc.to_mcp_response()), exchange)
        if wanted is None:
            return None
        index = self._index(view)
        if (build := index.prepare()) is not None:
            await asyncio.to_thread(build)
        if isinstance(wanted, mode.Search):
            found = index.search(wanted.query, wanted.limit)
            return self._tool_answer(mode.search_result(wanted.query, found, len(index)), exchange)
        definition = self.catalog.definition(wanted.name, view)
        target = self.catalog.tool(wanted.name, view)
        if definition is None or target is None:
            near = index.search(wanted.name, 3)
            return self._tool_answer(mode.not_found_result(wanted.name, near), exchange)
        if isinstance(wanted, mode.Describe):
            return self._tool_answer(mode.describe_result(definition), exchange)
        unwrapped = _with(exchange, name=wanted.name, arguments=wanted.arguments)
        return await self._to(target, unwrapped, visitor)

    def _index(self, view: View) -> "ToolSearch":
        index = self._searches.get(view)
        if index is None:
            from .search import ToolSearch

            index = self._searches[view] = ToolSearch(
                lambda: self.catalog.definitions(view), lambda: self.catalog.version(Kind.TOOLS)
            )
        return index

    def _tool_answer(self, result: bytes, exchange: Exchange) -> bytes:
        if exchange.caller.stateless:
            return result[:-1] + self._complete
        return bytes(downgrade_result("tools/call", Raw(result), exchange.caller.revision))

    def _member_with(self, exchange: Exchange) -> Member:
        """Whose a resource is."""
        uri = exchange.head.uri
        if isinstance(uri, UnsetType):
            raise ours(INVALID_PARAMS, "params.uri is required: the URI of a resource")
        owner = self.catalog.owner(uri, self.view_of(exchange.caller))
        member = None if owner is None else self.members.get(owner)
        if member is None:
            code = INVALID_PARAMS if exchange.caller.stateless else RESOURCE_NOT_FOUND
            raise ours(code, f"Resource not found: {uri}", uri=uri)
        return member

    async def _complete_argument(self, exchange: Exchange, visitor: Visitor | None) -> Answer:
        reference = _reference(exchange)
        view = self.view_of(exchange.caller)
        if reference.uri is not None:
            owner = self.catalog.owner(reference.uri, view)
            member = None if owner is None else self.members.get(owner)
            if member is None:
                raise ours(INVALID_PARAMS, f"No such template: {reference.uri}")
            return await member.answer(exchange, visitor)
        target = self.catalog.prompt(reference.name or "", view)
        if target is None:
            raise ours(INVALID_PARAMS, f"Unknown prompt: {reference.name}")
        named = {**msgspec.json.decode(reference.raw), "name": target.name}
        member = self.members.get(target.server)
        if member is None:
            raise ours(INVALID_PARAMS, f"Unknown prompt: {reference.name}")
        return await member.answer(_with(exchange, ref=named), visitor)

    # Changes

    async def _subscribe(self, exchange: Exchange, visitor: Visitor | None) -> bytes:
        member = self._member_with(exchange)
        uri = str(exchange.head.uri)
        if exchange.method == "resources/subscribe":
            self.changes.subscribe(exchange.edge, uri)
            if visitor is not None and uri not in visitor.uris:
                visitor.uris.add(uri)
                await self._watch(member, uri)
        else:
            self.changes.unsubscribe(exchange.edge, uri)
            if visitor is not None and uri in visitor.uris:
                visitor.uris.discard(uri)
                self._unwatch(uri)
        return b"{}"

    async def _listen(self, exchange: Exchange) -> Answer:
        view = self.view_of(exchange.caller)
        uris = [
            (uri, owner)
            for uri in _read(exchange, _Listen).notifications.resource_subscriptions[:1000]
            if (owner := self.catalog.owner(uri, view)) is not None
        ]
        try:
            for uri, owner in uris:
                await self._watch(self.members[owner], uri)
            return await self.changes.listen(exchange, _CAPABILITIES)
        finally:
            for uri, _ in uris:
                self._unwatch(uri)

    async def _watch(self, member: Member, uri: str) -> None:
        count = self._watched.get(uri, 0)
        self._watched[uri] = count + 1
        if count == 0:
            supervisor = self.manager.describe().get(member.replicas[0].name)
            if supervisor is not None:
                try:
                    await supervisor.subscribe(uri)
                except FairleadError as exc:
                    log.warning("%s: no subscription to %s: %s", member.name, uri, exc)

    def _unwatch(self, uri: str) -> None:
        count = self._watched.get(uri, 0)
        if count > 1:
            self._watched[uri] = count - 1
            return
        self._watched.pop(uri, None)
        owner = self.catalog.owner(uri, View.everything())
        supervisor = None if owner is None else self.manager.describe().get(owner)
        if supervisor is not None:
            self._start(_quietly(supervisor.unsubscribe(uri)))

    def _set_level(self, exchange: Exchange, visitor: Visitor | None) -> bytes:
        level = _read(exchange, _Level).level
        if level not in LEVELS:
            raise ours(INVALID_PARAMS, f"No log level {level!r}; there are {', '.join(LEVELS)}")
        exchange.edge.log_level = level
        if visitor is not None:
            visitor.level = level
            for front in visitor.fronts.values():
                front.level = level
        wanted = [v.level for v in self._visitors.values() if v.level is not None]
        most = min(wanted, key=LEVELS.index, default=level)
        for name in self.manager.get_connected_servers():
            supervisor = self.manager.describe().get(name)
            if supervisor is not None:
                self._start(_quietly(supervisor.set_log_level(most)))
        return b"{}"

    def _told(self, visitor: Visitor, note: Notification) -> None:
        if note.method == "notifications/initialized":
            return
        for front in list(visitor.fronts.values()):
            if front.link is not None and not front.link.stateless:
                front.link.outbox.put(note)

    def _left(self, visitor: Visitor) -> None:
        self._visitors.pop(visitor.peer, None)
        visitor.close()
        for member in self.members.values():
            member.left(visitor)
            for replica in member.replicas:
                front = visitor.fronts.get(replica.relay)
                if front is not None:
                    replica.relay.leave(front)
        for uri in visitor.uris:
            self._unwatch(uri)
        visitor.uris.clear()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


class _Cursor(Struct):
    cursor: str | None = None


class _Level(Struct):
    level: str = ""


class _Ref(Struct):
    name: str | None = None
    uri: str | None = None
    raw: Raw = Raw(b"{}")


class _Reference(Struct):
    ref: Raw = Raw(b"{}")


class _Filter(Struct, rename="camel"):
    resource_subscriptions: list[str] = []


class _Listen(Struct):
    notifications: _Filter = msgspec.field(default_factory=_Filter)


def _read(exchange: Exchange, kind: Any) -> Any:
    params = exchange.message.params
    try:
        return msgspec.json.decode(b"{}" if isinstance(params, UnsetType) else params, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ours(INVALID_PARAMS, f"Invalid params: {exc}") from exc


def _reference(exchange: Exchange) -> _Ref:
    """What an argument shall be completed of: a prompt, or a template."""
    raw = _read(exchange, _Reference).ref
    try:
        reference = msgspec.json.decode(raw, type=_Ref)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise ours(INVALID_PARAMS, f"Invalid params: {exc}") from exc
    reference.raw = raw
    return reference


def _with(exchange: Exchange, **members: Any) -> Exchange:
    """The same exchange with other members in its params; the rest of them stays as it came."""
    message, params = exchange.message, exchange.message.params
    old = {} if isinstance(params, UnsetType) else msgspec.json.decode(params, type=dict[str, Raw])
    new = Raw(to_json({**old, **members}))
    return msgspec.structs.replace(
        exchange,
        message=msgspec.structs.replace(message, params=new),
        head=read_head(new),
    )


async def _quietly(work: Awaitable[object]) -> None:
    try:
        await work
    except FairleadError as exc:
        log.debug("%s", exc)


def _version() -> str:
    from .. import __version__

    return __version__
