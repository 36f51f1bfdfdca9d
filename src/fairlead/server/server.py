"""A server: what it offers, and how it answers, in both eras at once."""

import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..errors import MCPErrorCode, MCPToolError, RemoteProtocolError, RpcError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain, malformed_frame_hook
from ..interceptor.direct_edge import NullReplyPath, direct_exchange
from ..interceptor.rate_limiter import RateLimiter
from ..peer import Peer
from ..protocol.caller import SERVER_INFO_KEY, Caller
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.conversation.conversation_events import RequestReceived, RequestRejected
from ..protocol.downgrade import downgrade_result
from ..protocol.envelope import TransportContext
from ..protocol.identity.principal import ANONYMOUS, Principal
from ..protocol.methods import by_era
from ..protocol.outgoing_params import Identity
from ..protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from ..protocol.trace_context import is_traced, names_trace, request_trace
from ..transport.channel import Channel
from ..transport.http.server.settings import HttpSettings
from ..wire import Batch, Failure, Notification, decode, encode, encode_success, failure, to_json
from ..wire.error_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND
from .config import MCPServerConfig
from .context.context import LOG_LEVELS, Context
from .context.correlation_id import HEADER, correlation_id
from .execution.handler_errors import error_for_caller, log_errors
from .execution.input_required import run_or_request_input
from .execution.tool_runner import ToolRunner
from .features.paged_list import PagedList
from .features.prompts import PromptEntry
from .features.resources import ResourceEntry, TemplateEntry, not_found
from .features.tool_registry import MCPToolRegistry
from .http_app.http_runnable import HttpRunnable
from .lifespan import Lifespan, LifespanFactory
from .registration import Registration
from .results.encode_result import error_content, prompt_messages, resource_contents
from .results.result_envelope import ResultEnvelope

if TYPE_CHECKING:
    from ..protocol.headers import ParamHeader
    from .http_app.app import HttpApp
    from .interception import InterceptedHandler

__all__ = ["MCPServer"]

log = logging.getLogger("fairlead.server")


class MCPServer(HttpRunnable, Registration):
    """An MCP server. Register what it offers, then `run()` it.

    server = MCPServer("weather")

    @server.tool()
    async def forecast(city: str, days: int = 3) -> str:
        "What the weather will be."
        ...

    server.run()
    """

    def __init__(
        self,
        config: MCPServerConfig | str | None = None,
        *,
        interceptors: Sequence[Interceptor] = (),
        registry: MCPToolRegistry | None = None,
        lifespan: LifespanFactory | None = None,
        **settings: Any,
    ) -> None:
        """A string is the name; settings are fields of `MCPServerConfig`.

        `lifespan` takes the server and returns an asynchronous context that is open while it
        serves; what it yields is `server.state`.
        """
        if isinstance(config, str):
            config = MCPServerConfig(name=config, **settings)
        elif config is None:
            config = MCPServerConfig(**settings)
        elif settings:
            raise TypeError("give settings, or a configuration that has them, not both")
        self.info = _without_none(name=config.name, version=config.version, title=config.title)
        self.handler: Handler = self._handle
        self._heard: InterceptedHandler | None = None
        # Outside of a connection, notifications tell a server nothing: only its interceptors.
        self.on_stateless_notification: (
            Callable[[Notification, Caller, TransportContext], None] | None
        ) = None
        if interceptors:
            from . import interception as heard

            self._heard = heard.InterceptedHandler(tuple(interceptors), self.info, self._handle)
            self.handler = chain((log_errors, *interceptors), self._heard)
            self.on_stateless_notification = self._heard.on_stateless_notification
        meta = {SERVER_INFO_KEY: self.info}
        self._calls = ToolRunner(config, meta, lambda: self.state, self.handler)
        # What is answered without a task; interceptors must see everything, so then nothing is.
        self._inline_methods: set[str] = set()
        self.on_malformed = malformed_frame_hook(interceptors)
        if registry is None:
            registry = MCPToolRegistry(config, calls=self._calls)
        super().__init__(config, registry, self._calls.workers)
        routes = self._make_routes()
        self._routes = by_era(routes)
        if not interceptors:
            self._inline_methods.update(name for name, one in routes.items() if not one.in_task)
        limiter = RateLimiter(
            config.rate_limit_rate,
            config.rate_limit_burst,
            config.per_tool_rate,
            config.per_tool_burst,
        )
        self.limiter = limiter if limiter.active else None
        self._said_limited = False
        self._envelope = ResultEnvelope(self.info, self._cache.members())
        self._complete = self._envelope.complete
        self._mounted: list[MCPServer] = []
        self._lifespan = Lifespan(lifespan, self)
        self._peers: weakref.WeakSet[Peer] = weakref.WeakSet()
        self._warm = not config.warm_up

    # How it is run

    def run(self) -> None:
        """Serve the transport of the configuration until the peer or a signal ends it."""
        from .run_program import run_server

        run_server(self)

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ..transport.stdio.own_stdio import open_stdio

        self.load_configured()
        async with open_stdio(limit=self.config.max_message_bytes) as channel:
            await self.serve(channel)

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> "HttpApp":
        """The ASGI application: MCP at `/mcp`, and pages for people and plain HTTP clients.

        Options are fields of `HttpSettings`.
        """
        from .http_app.app import HttpApp
        from .http_app.rest import RestApi

        chosen = _settings(settings, options)
        return HttpApp(self, chosen, pages=RestApi(self, chosen))

    async def serve(self, channel: Channel) -> None:
        """Serve one channel with an anonymous client until it ends. Cancelling closes it."""
        async with self.running():
            peer = self.attach(channel, ANONYMOUS)
            try:
                await peer.wait_closed()
            finally:
                await self.changes.end(peer)
                await peer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        """Keep the lifespan open, of this server and of those mounted in it; yields the state.

        `serve` does this by itself; whoever uses `attach` or `handle_request` does it around them.
        """
        self.load_configured()
        if not self._warm:
            self.warm_up()
        async with AsyncExitStack() as stack:
            for other in self._mounted:
                await stack.enter_async_context(other.running())
            yield await stack.enter_async_context(self._lifespan)

    def describe_tools(self) -> list[tuple[str, str]]:
        """Name and first line of the description of each tool, those of modules included."""
        self.load_configured()
        found = []
        for name in self._tools.names():
            entry = self._tools.get(name)
            about = entry.definition.description if entry is not None else ""
            found.append((name, str(about or "").partition("\n")[0]))
        return found

    @property
    def state(self) -> Any:
        """What the lifespan yielded; None while it is not open."""
        return self._lifespan.state

    def mount(self, other: "MCPServer", prefix: str = "") -> None:
        """Offer what another server offers: tools and prompts as `prefix_name`, resources as is.

        What it adds and removes later is followed. Its own interceptors, limits and lifespan hold
        for what it offers, inside those of this server.

        Raises:
            ValueError: if a name or URI is taken.
        """
        from .mount import mount

        mount(self, other, prefix)
        self._mounted.append(other)

    async def close(self) -> None:
        """End every connection of this loop; those who listen for changes get their last answer."""
        await self.changes.end()
        for peer in list(self._peers):
            await peer.close()

    @property
    def inline_methods(self) -> Container[str]:
        """What `answer_inline` may be asked for; grows when a tool is registered as quick."""
        return self._inline_methods

    def tool_param_headers(self, tool: str, principal: Principal) -> "tuple[ParamHeader, ...]":
        """Which arguments of a tool travel as headers too (stateless HTTP)."""
        entry = self._tools.get(tool)
        return () if entry is None else entry.param_headers

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens for changes."""
        await self.changes.end()

    def load_configured(self) -> None:
        """Import the modules of the configuration; more than once is harmless."""
        config = self.config
        if config.tool_modules or config.tool_entry_points:
            from .features.tool_modules import load_modules

            load_modules(self._registry, config.tool_modules, entry_points=config.tool_entry_points)

    def warm_up(self) -> None:
        """Encode the lists and compile the schemas that the first requests will need.

        Done before the first connection, unless the setting `warm_up` says on demand.
        """
        self._warm = True
        for listing in (
            self._tools,
            self.resources.fixed,
            self.resources.templates,
            self.prompts,
        ):
            listing.warm_up(NEWEST, NEWEST_HANDSHAKE)
        for entry in self._tools.entries():
            entry.warm_up()

    def metrics(self) -> dict[str, Any]:
        """Counts of what is under way, and of what went wrong: a snapshot."""
        peers = [peer for peer in self._peers if peer.connected]
        return {
            "connections": len(peers),
            "malformed": sum(peer.malformed for peer in peers),
            "workers": self._calls.metrics,
            "rate_limit": None if self.limiter is None else self.limiter.metrics,
            "mounted": [other.metrics() for other in self._mounted],
        }

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one channel in the background; the returned peer can be closed.

        `principal` is the authenticated name of the client, or `ANONYMOUS` where the channel does
        not authenticate its clients.
        """
        if not self._warm:
            self.warm_up()
        identity = Identity(self.info, self._capabilities())
        conversation = Conversation(ConversationRole.SERVER, identity, principal=principal)
        make = Peer if self._heard is None else self._heard.make_peer
        attached: list[Peer] = []
        peer = make(
            channel,
            conversation,
            handler=self.handler,
            inline=self.answer_inline,
            inline_methods=self._inline_methods,
            on_eof=self.changes.stop,  # listeners would wait for ever
            on_close=lambda _: self.changes.forget(attached[0]),
            max_in_flight=self.config.max_in_flight,
            input_timeout=self.config.input_timeout,
        )
        attached.append(peer)
        peer.on_malformed = self.on_malformed
        self._peers.add(peer)
        peer.start()
        return peer

    async def handle_request(
        self, message: dict[str, Any], correlation_id: str | None = None
    ) -> dict[str, Any] | None:
        """Process one JSON-RPC message outside any connection; `None` answers a notification.

        `correlation_id` names it in logs and error results; without one it gets one.
        """
        answer = await self._handle_alone(to_json(message), correlation_id)
        if answer is None:
            return None
        result: dict[str, Any] = msgspec.json.decode(answer)
        return result

    async def _handle_alone(self, frame: bytes, name: str | None) -> bytes | None:
        conversation = Conversation(
            ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=ANONYMOUS
        )
        try:
            message = decode(frame)
            if isinstance(message, Batch):
                raise RemoteProtocolError("Send one message at a time", code=INVALID_REQUEST)
        except RemoteProtocolError as exc:
            return _refusal(failure(exc.request_id, exc.code, str(exc)), name)
        event = conversation.receive(message)
        if isinstance(event, RequestRejected):
            return _refusal(event.answer, name)
        if not isinstance(event, RequestReceived):
            return None
        headers = None if name is None else {HEADER: name}
        exchange = direct_exchange(event.message, event.caller, event.head, conversation, headers)
        try:
            answer = await self.handler(exchange)
        except Exception as exc:
            error = error_for_caller(exc, exchange)
            return encode(failure(event.message.id, error.code, error.message, error.data))
        return encode_success(event.message.id, answer or b"{}")

    # How it answers. Every error is in the log before it is returned.

    def _handle(self, exchange: Exchange) -> Awaitable[Answer]:
        if is_traced(exchange.head.meta):
            return self._traced(exchange)
        return self._route(exchange)

    async def _traced(self, exchange: Exchange) -> Answer:
        meta = exchange.head.meta
        if exchange.transport.transport_type == "direct" and not names_trace(meta):
            return await self._route(exchange)  # asked from within: it belongs where that does
        with request_trace(meta):
            return await self._route(exchange)

    def _route(self, exchange: Exchange) -> Awaitable[Answer]:
        try:
            answer = self._find_route(exchange).in_task
        except RpcError as exc:
            raise error_for_caller(exc, exchange) from None
        return self._answer_later(exchange) if answer is None else answer(exchange)

    async def _answer_later(self, exchange: Exchange) -> Answer:
        return self.answer_inline(exchange)

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Answer what needs no waiting; None for everything else.

        Raises:
            RpcError: to refuse.
        """
        try:
            answer = self._find_route(exchange).at_once
            return None if answer is None else answer(exchange)
        except Exception as exc:
            raise error_for_caller(exc, exchange) from None

    def _find_route(self, exchange: Exchange) -> "_Route":
        """Raises `RpcError`: there is none. Stateless callers may ask only for what is declared."""
        stateless = exchange.caller.stateless
        route = self._routes[stateless].get(exchange.message.method)
        if route is None or (stateless and not route.offers):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
        return route

    def _make_routes(self) -> "dict[str, _Route]":
        resources, prompts = self.resources, self.prompts
        return {
            "tools/call": _Route(self._call_inline, self._call_tool),
            "tools/list": _Route(lambda exchange: self._list(self._tools, exchange)),
            "resources/read": _Route(None, self._read_resource, resources),
            "resources/list": _Route(partial(self._list, resources.fixed), offers=resources),
            "resources/templates/list": _Route(
                partial(self._list, resources.templates), offers=resources
            ),
            "resources/subscribe": _Route(self._subscribe),
            "resources/unsubscribe": _Route(self._subscribe),
            "prompts/get": _Route(None, self._get_prompt, prompts),
            "prompts/list": _Route(partial(self._list, prompts), offers=prompts),
            "completion/complete": _Route(None, self._complete_argument, self.completions),
            "subscriptions/listen": _Route(None, self._listen),
            "server/discover": _Route(self._discover),
            "initialize": _Route(self._initialize),
            "ping": _Route(lambda _: b"{}"),
            "logging/setLevel": _Route(self._set_level),
        }

    def _call_inline(self, exchange: Exchange) -> bytes | None:
        entry = self._tools.get(exchange.target or "")
        if entry is None or not entry.inline:
            return None
        tail = self._complete if exchange.caller.stateless else b"}"
        if self.limiter is not None and not self.limiter.allow(entry.name):
            return self._limited(entry.name, exchange, tail)
        return self._calls.run_inline(entry, exchange, tail)

    def _list(self, listing: PagedList[Any], exchange: Exchange) -> bytes:
        params = exchange.message.params
        cursor = None
        if not isinstance(params, UnsetType):
            cursor = _decode(params, _CursorParams).cursor
        members = listing.page(cursor, exchange.caller.revision)
        return self._envelope.listed(members, exchange.caller)

    def _initialize(self, exchange: Exchange) -> bytes:
        caller, capabilities = exchange.caller, self._capabilities()
        self.changes.introduced(exchange, capabilities)
        result = {
            "protocolVersion": caller.revision.value,
            "capabilities": capabilities,
            "serverInfo": self.info,
            **_without_none(instructions=self.config.instructions),
        }
        return bytes(downgrade_result("initialize", Raw(to_json(result)), caller.revision))

    def _discover(self, exchange: Exchange) -> bytes:
        result = {
            "supportedVersions": [revision.value for revision in reversed(Revision)],
            "capabilities": self._capabilities(),
            **_without_none(instructions=self.config.instructions),
        }
        return self._envelope.listed(to_json(result)[1:-1], exchange.caller)

    def _capabilities(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        if len(self.resources):
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if len(self.prompts):
            capabilities["prompts"] = {"listChanged": True}
        if self.completions:
            capabilities["completions"] = {}
        return capabilities

    def _tools_changed(self) -> None:
        super()._tools_changed()
        if self._registry.has_inline and self._heard is None:
            self._inline_methods.add("tools/call")

    def _subscribe(self, exchange: Exchange) -> bytes:
        uri, edge = _uri(exchange), exchange.edge
        if exchange.message.method == "resources/unsubscribe":
            self.changes.unsubscribe(edge, uri)
        elif self.resources.find(uri) is None:
            raise not_found(uri, RESOURCE_NOT_FOUND)
        else:
            self.changes.subscribe(edge, uri)
        return b"{}"

    async def _listen(self, exchange: Exchange) -> bytes:
        try:
            if isinstance(exchange.edge, NullReplyPath):
                raise RpcError(INVALID_REQUEST, "subscriptions/listen needs a connection")
            return await self.changes.listen(exchange, self._capabilities())
        except Exception as exc:
            raise error_for_caller(exc, exchange) from None

    async def _complete_argument(self, exchange: Exchange) -> bytes:
        try:
            members = await self.completions.complete(exchange.message.params)
        except Exception as exc:
            raise error_for_caller(exc, exchange) from None
        return self._envelope.answered(members, exchange.caller)

    def _set_level(self, exchange: Exchange) -> bytes:
        level = _decode(exchange.message.params, _LevelParams).level
        if level not in LOG_LEVELS:
            raise RpcError(
                INVALID_PARAMS, f"No log level {level!r}; there are {', '.join(LOG_LEVELS)}"
            )
        exchange.edge.log_level = level
        return b"{}"

    def _call_tool(self, exchange: Exchange) -> Awaitable[Answer]:
        name = exchange.head.name
        entry = None if isinstance(name, UnsetType) else self._tools.get(name)
        if entry is None or isinstance(name, UnsetType):
            raise error_for_caller(_unknown_tool(name), exchange)
        tail = self._complete if exchange.caller.stateless else b"}"
        if self.limiter is not None and not self.limiter.allow(name):
            return _at_once(self._limited(name, exchange, tail))
        if entry.home is not None:
            return entry.home(exchange)
        return self._calls.run(entry, exchange, tail)

    def _limited(self, name: str, exchange: Exchange, tail: bytes) -> bytes:
        """SRV-23: refused before any work is done."""
        assert self.limiter is not None
        error = MCPToolError(
            f"Too many calls: '{name}' was not run",
            code=MCPErrorCode.RATE_LIMITED,
            tool_name=name,
            correlation_id=correlation_id(exchange),
            suggestion=f"Try again in {max(self.limiter.wait(name), 0.001):.3g} s",
        )
        extra = {"correlation_id": error.correlation_id}
        if self._said_limited:
            log.debug("%s [%s]: limited", name, error.correlation_id, extra=extra)
        else:
            self._said_limited = True
            log.warning(
                "%s [%s]: refused by the rate limit. The settings rate_limit_rate (%g a second) "
                "and rate_limit_burst (%d), or per_tool_rate and per_tool_burst, change it; "
                "0 turns it off. This is said once.",
                name,
                error.correlation_id,
                self.config.rate_limit_rate,
                self.config.rate_limit_burst,
                extra=extra,
            )
        return error_content(error, tail).result

    async def _read_resource(self, exchange: Exchange) -> Answer:
        context = None
        try:
            uri, caller = _uri(exchange), exchange.caller
            found = self.resources.find(uri)
            if found is None:
                raise not_found(uri, INVALID_PARAMS if caller.stateless else RESOURCE_NOT_FOUND)
            entry, values = found
            if entry.home is not None:
                return await entry.home(exchange)
            signature = entry.signature
            if signature is None or signature.context_name is None:
                return await self._contents(exchange, entry, values, None)
            context = self._calls.context(exchange)
            work = self._contents(exchange, entry, values, context)
            return await run_or_request_input(context, work, {SERVER_INFO_KEY: self.info})
        except Exception as exc:
            raise error_for_caller(exc, exchange, context) from None

    async def _contents(
        self,
        exchange: Exchange,
        entry: ResourceEntry | TemplateEntry,
        values: dict[str, str],
        context: Context | None,
    ) -> bytes:
        uri, caller = _uri(exchange), exchange.caller
        value = await self.resources.read(entry, values, context)
        contents = resource_contents(uri, entry.mime_type, value)
        members = to_json({"contents": contents})[1:-1]
        hints = None if entry.cache is None else entry.cache.members()
        answer = self._envelope.listed(members, caller, hints)
        return bytes(downgrade_result("resources/read", Raw(answer), caller.revision))

    async def _get_prompt(self, exchange: Exchange) -> Answer:
        context = None
        try:
            params = _decode(exchange.message.params, _PromptParams)
            entry = self.prompts.get(params.name)
            if entry is None:
                raise RpcError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
            if entry.home is not None:
                return await entry.home(exchange)
            given = params.arguments or {}
            entry.check(given)
            if not entry.wants_context:
                return await self._messages(exchange, entry, given, None)
            context = self._calls.context(exchange)
            work = self._messages(exchange, entry, given, context)
            return await run_or_request_input(context, work, {SERVER_INFO_KEY: self.info})
        except Exception as exc:
            raise error_for_caller(exc, exchange, context) from None

    async def _messages(
        self,
        exchange: Exchange,
        entry: PromptEntry,
        given: dict[str, str],
        context: Context | None,
    ) -> bytes:
        caller = exchange.caller
        if entry.asynchronous:
            value = await entry.render(given, context)
        else:
            value = await self._workers.run(entry.render, given, context)
        result: dict[str, Any] = {"messages": prompt_messages(value)}
        if entry.definition.description is not UNSET:
            result["description"] = entry.definition.description
        answer = self._envelope.answered(to_json(result)[1:-1], caller)
        return bytes(downgrade_result("prompts/get", Raw(answer), caller.revision))


class _Route(NamedTuple):
    """How a method is answered."""

    at_once: Callable[[Exchange], Answer] | None  # may return None if it has to wait after all
    in_task: Callable[[Exchange], Awaitable[Answer]] | None = None  # None: as `at_once` does
    offers: object = True  # what has to be there before `server/discover` declares it


class _CursorParams(msgspec.Struct):
    cursor: str | None = None


class _LevelParams(msgspec.Struct):
    level: str


class _PromptParams(msgspec.Struct):
    name: str
    arguments: dict[str, str] | None = None


def _unknown_tool(name: str | UnsetType) -> RpcError:
    if isinstance(name, UnsetType):
        return RpcError(INVALID_PARAMS, "params.name is required: the name of a tool")
    return RpcError(INVALID_PARAMS, f"Unknown tool: {name}")


def _refusal(answer: Failure, name: str | None) -> bytes:
    """A message that was not even a request, refused."""
    name = name or token_hex(8)
    log.warning("[%s]: %s", name, answer.message, extra={"correlation_id": name})
    return encode(answer)


P = TypeVar("P")


def _decode(params: Raw | UnsetType, kind: type[P]) -> P:
    try:
        return msgspec.json.decode(b"{}" if isinstance(params, UnsetType) else params, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(INVALID_PARAMS, f"Invalid params: {exc}") from exc


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _uri(exchange: Exchange) -> str:
    uri = exchange.head.uri
    if isinstance(uri, UnsetType):
        raise RpcError(INVALID_PARAMS, "params.uri is required: the URI of a resource")
    return uri


async def _at_once(answer: bytes) -> bytes:
    return answer


def _settings(settings: HttpSettings | None, options: dict[str, Any]) -> HttpSettings:
    if settings is not None and options:
        raise TypeError("give settings, or options that make them, not both")
    return settings if settings is not None else HttpSettings(**options)
