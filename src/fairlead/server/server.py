"""A server: what it offers, and how it answers, in both eras at once."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..errors import RemoteProtocolError, RpcError
from ..interceptor import Answer, Exchange, Handler, Interceptor, chain
from ..peer import Peer
from ..protocol.caller import SERVER_INFO_KEY, Caller
from ..protocol.conversation import Conversation, Role
from ..protocol.downgrade import downgrade_result
from ..protocol.envelope import Direction, SessionContext, TransportContext
from ..protocol.events import Asked, Refused
from ..protocol.outgoing import Identity
from ..protocol.revisions import NEWEST_HANDSHAKE, Revision
from ..protocol.types.resources import Resource
from ..protocol.types.tools import ToolAnnotations
from ..transport.base import Channel
from ..wire import Batch, Notification, decode, encode, encode_success, failure, to_json
from ..wire.codes import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
)
from .calls import Calls
from .config import MCPServerConfig
from .context import LOG_LEVELS
from .lists import Listing
from .prompts import PromptEntry, prompt_from_function, prompt_from_template
from .resources import ContentProvider, ResourceEntry, file_resource
from .results import prompt_messages, resource_contents
from .tools import (
    ToolEntry,
    describe_function,
    is_asynchronous,
    tool_from_function,
    tool_from_schema,
)
from .workers import Workers

__all__ = ["MCPServer"]

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("fairlead.server")


class MCPServer:
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
        **settings: Any,
    ) -> None:
        """A string is the name; settings are fields of `MCPServerConfig`."""
        if isinstance(config, str):
            config = MCPServerConfig(name=config, **settings)
        elif config is None:
            config = MCPServerConfig(**settings)
        elif settings:
            raise TypeError("give settings, or a configuration that has them, not both")
        self.config = config
        size = config.page_size
        self._tools: Listing[ToolEntry] = Listing("tool", "tools/list", "tools", size)
        self._resources: Listing[ResourceEntry] = Listing(
            "resource", "resources/list", "resources", size
        )
        self._prompts: Listing[PromptEntry] = Listing("prompt", "prompts/list", "prompts", size)
        # What is answered without a task; interceptors must see everything, so then nothing is.
        self._inline_methods = set[str]() if interceptors else set(_WITHOUT_WAITING)
        self._calls = Calls(config)
        self._workers = Workers()
        self._interceptors = tuple(interceptors)
        self.handler: Handler = chain(self._interceptors, self._handle)
        self._info = _without_none(name=config.name, version=config.version, title=config.title)
        stamp = b'"resultType":"complete","_meta":{"%b":%b}' % (
            SERVER_INFO_KEY.encode(),
            to_json(self._info),
        )
        self._complete = b"," + stamp + b"}"
        self._cacheable = b',"ttlMs":0,"cacheScope":"private",' + stamp + b"}"

    # What it offers

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def tool_count(self) -> int:
        return len(self._tools)

    @property
    def resource_count(self) -> int:
        return len(self._resources)

    @property
    def prompt_count(self) -> int:
        return len(self._prompts)

    @overload
    def tool(self, name: F) -> F: ...
    @overload
    def tool(
        self,
        name: str | None = None,
        description: str | None = None,
        title: str | None = None,
        *,
        annotations: ToolAnnotations | None = None,
        meta: dict[str, Any] | None = None,
        timeout: float | None = None,
        inline: bool = False,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        name: str | F | None = None,
        description: str | None = None,
        title: str | None = None,
        *,
        annotations: ToolAnnotations | None = None,
        meta: dict[str, Any] | None = None,
        timeout: float | None = None,
        inline: bool = False,
    ) -> Any:
        """Register a function as a tool: its type hints are the schema, its docstring the text.

        Coroutine functions run on the loop, plain ones in a thread. `inline=True` calls a plain
        function right on the loop: only for those that are quick and never block.
        """

        def register(function: F) -> F:
            entry = tool_from_function(
                function,
                name=None if callable(name) else name,
                description=description,
                title=title,
                annotations=annotations,
                meta=meta,
                timeout=timeout,
                inline=inline,
            )
            self._tools.add(entry.name, entry)
            if inline and not self._interceptors:
                self._inline_methods.add("tools/call")
            return function

        return register(name) if callable(name) else register

    def register_tool(
        self,
        name: str,
        schema: dict[str, Any],
        handler: Callable[..., Any],
        title: str | None = None,
    ) -> None:
        """Register a tool with a given schema: a bare JSON Schema, or a whole tool object."""
        self._tools.add(name, tool_from_schema(name, schema, handler, title))

    def remove_tool(self, name: str) -> None:
        """Raises `KeyError` if there is no such tool."""
        self._tools.remove(name)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
    ) -> Callable[[F], F]:
        """Register a function as the content provider of a resource."""

        def register(function: F) -> F:
            definition = Resource(
                uri=uri,
                name=name or function.__name__,
                title=title or UNSET,
                description=description or describe_function(function) or UNSET,
                mime_type=mime_type or "text/plain",
            )
            self._add_resource(definition, function)
            return function

        return register

    def register_resource(
        self,
        uri: str,
        name: str,
        description: str | None = None,
        mime_type: str = "text/plain",
        content_provider: ContentProvider | str | bytes | None = None,
    ) -> None:
        """Register a resource; the provider may be a function, or the content itself."""
        definition = Resource(
            uri=uri, name=name, description=description or UNSET, mime_type=mime_type
        )
        provider = content_provider
        self._add_resource(definition, provider if callable(provider) else lambda: provider or "")

    def register_file_resource(self, path: str) -> str:
        """Register a local file and return its URI. Raises `FileNotFoundError`."""
        entry = file_resource(path)
        self._resources.add(entry.definition.uri, entry)
        return entry.definition.uri

    def _add_resource(self, definition: Resource, provider: ContentProvider) -> None:
        entry = ResourceEntry(definition, provider, is_asynchronous(provider))
        self._resources.add(definition.uri, entry)

    def prompt(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
    ) -> Callable[[F], F]:
        """Register a function as a prompt: it takes the arguments and returns the messages."""

        def register(function: F) -> F:
            entry = prompt_from_function(function, name, description, title)
            self._prompts.add(entry.definition.name, entry)
            return function

        return register

    def register_prompt(
        self,
        name: str,
        description: str | None = None,
        arguments: Sequence[Mapping[str, Any]] | None = None,
        template: str | Callable[..., Any] | None = None,
    ) -> None:
        """Register a prompt with a template (`{key}` stands for an argument) or a function."""
        self._prompts.add(name, prompt_from_template(name, description, arguments, template))

    # How it is run

    def run(self) -> None:
        """Serve the transport of the configuration until the peer or a signal ends it."""
        from .run import run_server

        run_server(self)

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until they end."""
        from ..transport.stdio import open_stdio

        async with open_stdio(limit=self.config.max_message_bytes) as channel:
            await self.serve(channel)

    async def serve(self, channel: Channel) -> None:
        """Serve one channel until it ends. Cancelling closes it."""
        peer = self.attach(channel)
        try:
            await peer.wait_closed()
        finally:
            await peer.close()

    def attach(self, channel: Channel) -> Peer:
        """Serve one channel in the background; the returned peer can be closed."""
        conversation = Conversation(Role.SERVER, Identity(self._info, self._capabilities()))
        peer = Peer(
            channel,
            conversation,
            handler=self.handler,
            inline=self.answer_inline,
            inline_methods=self._inline_methods,
            max_in_flight=self.config.max_in_flight,
            input_timeout=self.config.input_timeout,
        )
        peer.start()
        return peer

    async def handle_request(
        self, message: dict[str, Any], correlation_id: str | None = None
    ) -> dict[str, Any] | None:
        """Process one JSON-RPC message outside any connection; `None` answers a notification."""
        answer = await self._handle_alone(to_json(message))
        if answer is None:
            return None
        result: dict[str, Any] = msgspec.json.decode(answer)
        return result

    async def _handle_alone(self, frame: bytes) -> bytes | None:
        conversation = Conversation(Role.SERVER, assume=NEWEST_HANDSHAKE)
        try:
            message = decode(frame)
            if isinstance(message, Batch):
                raise RemoteProtocolError("Send one message at a time", code=INVALID_REQUEST)
        except RemoteProtocolError as exc:
            return encode(failure(exc.request_id, exc.code, str(exc)))
        event = conversation.receive(message)
        if isinstance(event, Refused):
            return encode(event.answer)
        if not isinstance(event, Asked):
            return None
        exchange = Exchange(
            event.message,
            event.caller,
            event.head,
            Direction.CLIENT_TO_SERVER,
            TransportContext(transport_type="direct"),
            _NoEdge(conversation),
        )
        try:
            answer = await self.handler(exchange)
        except RpcError as exc:
            return encode(failure(event.message.id, exc.code, exc.message, exc.data))
        except Exception:
            log.exception("%s failed", event.message.method)
            return encode(failure(event.message.id, INTERNAL_ERROR, "Internal error"))
        return encode_success(event.message.id, answer or b"{}")

    # How it answers

    def _handle(self, exchange: Exchange) -> Awaitable[Answer]:
        match exchange.message.method:
            case "tools/call":
                return self._call_tool(exchange, exchange.head.name)
            case "resources/read":
                return self._read_resource(exchange)
            case "prompts/get":
                return self._get_prompt(exchange)
        return self._answer_later(exchange)

    async def _answer_later(self, exchange: Exchange) -> Answer:
        return self.answer_inline(exchange)

    def answer_inline(self, exchange: Exchange) -> Answer:
        """Answer what needs no waiting; None for everything else.

        Raises:
            RpcError: to refuse.
        """
        method, caller = exchange.message.method, exchange.caller
        match method:
            case "tools/call":
                return self._call_inline(exchange)
            case "tools/list":
                return self._list(self._tools, exchange)
            case "resources/list":
                return self._list(self._resources, exchange)
            case "resources/templates/list":
                return self._answer(b'"resourceTemplates":[]', caller, cacheable=True)
            case "prompts/list":
                return self._list(self._prompts, exchange)
            case "server/discover" if caller.stateless:
                return self._discover(caller)
            case "initialize" if not caller.stateless:
                return self._initialize(caller)
            case "ping" if not caller.stateless:
                return b"{}"
            case "logging/setLevel" if not caller.stateless:
                return self._set_level(exchange)
            case "resources/read" | "prompts/get":
                return None
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _call_inline(self, exchange: Exchange) -> bytes | None:
        entry = self._tools.get(exchange.target or "")
        if entry is None or not entry.inline:
            return None
        return self._calls.run_inline(entry, exchange, self._tail(exchange.caller))

    def _list(self, listing: Listing[Any], exchange: Exchange) -> bytes:
        params = exchange.message.params
        cursor = None
        if not isinstance(params, UnsetType):
            cursor = _decode(params, _CursorParams).cursor
        members = listing.page(cursor, exchange.caller.revision)
        return self._answer(members, exchange.caller, cacheable=True)

    def _answer(self, members: bytes, caller: Caller, *, cacheable: bool = False) -> bytes:
        """A result from its members, with what a stateless caller expects besides."""
        if not caller.stateless:
            return b"{%b}" % members
        return b"{%b%b" % (members, self._cacheable if cacheable else self._complete)

    def _initialize(self, caller: Caller) -> bytes:
        result = {
            "protocolVersion": caller.revision.value,
            "capabilities": self._capabilities(),
            "serverInfo": self._info,
            **_without_none(instructions=self.config.instructions),
        }
        return bytes(downgrade_result("initialize", Raw(to_json(result)), caller.revision))

    def _discover(self, caller: Caller) -> bytes:
        result = {
            "supportedVersions": [revision.value for revision in reversed(Revision)],
            "capabilities": self._capabilities(),
            **_without_none(instructions=self.config.instructions),
        }
        return self._answer(to_json(result)[1:-1], caller, cacheable=True)

    def _capabilities(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
        if len(self._resources):
            capabilities["resources"] = {}
        if len(self._prompts):
            capabilities["prompts"] = {}
        return capabilities

    def _set_level(self, exchange: Exchange) -> bytes:
        level = _decode(exchange.message.params, _LevelParams).level
        if level not in LOG_LEVELS:
            raise RpcError(
                INVALID_PARAMS, f"No log level {level!r}; there are {', '.join(LOG_LEVELS)}"
            )
        exchange.edge.log_level = level
        return b"{}"

    def _call_tool(self, exchange: Exchange, name: str | UnsetType) -> Awaitable[bytes]:
        if isinstance(name, UnsetType):
            raise RpcError(INVALID_PARAMS, "params.name is required: the name of a tool")
        entry = self._tools.get(name)
        if entry is None:
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name}")
        tail = self._complete if exchange.caller.stateless else b"}"
        return self._calls.run(entry, exchange, tail)

    def _tail(self, caller: Caller) -> bytes:
        """What closes a result: nothing but the brace, or what a stateless caller expects."""
        return self._complete if caller.stateless else b"}"

    async def _read_resource(self, exchange: Exchange) -> bytes:
        uri, caller = exchange.head.uri, exchange.caller
        if isinstance(uri, UnsetType):
            raise RpcError(INVALID_PARAMS, "params.uri is required: the URI of a resource")
        entry = self._resources.get(uri)
        if entry is None:
            code = INVALID_PARAMS if caller.stateless else RESOURCE_NOT_FOUND
            raise RpcError(code, f"Resource not found: {uri}", {"uri": uri})
        value = await (
            entry.provider() if entry.asynchronous else self._workers.run(entry.provider)
        )
        contents = resource_contents(uri, entry.mime_type, value)
        answer = self._answer(to_json({"contents": contents})[1:-1], caller, cacheable=True)
        return bytes(downgrade_result("resources/read", Raw(answer), caller.revision))

    async def _get_prompt(self, exchange: Exchange) -> bytes:
        params, caller = _decode(exchange.message.params, _PromptParams), exchange.caller
        entry = self._prompts.get(params.name)
        if entry is None:
            raise RpcError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
        given = params.arguments or {}
        entry.check(given)
        value = await (
            entry.render(given) if entry.asynchronous else self._workers.run(entry.render, given)
        )
        result: dict[str, Any] = {"messages": prompt_messages(value)}
        if entry.definition.description is not UNSET:
            result["description"] = entry.definition.description
        answer = self._answer(to_json(result)[1:-1], caller)
        return bytes(downgrade_result("prompts/get", Raw(answer), caller.revision))


_WITHOUT_WAITING = frozenset(
    {
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)


class _CursorParams(msgspec.Struct):
    cursor: str | None = None


class _LevelParams(msgspec.Struct):
    level: str


class _PromptParams(msgspec.Struct):
    name: str
    arguments: dict[str, str] | None = None


P = TypeVar("P")


def _decode(params: Raw | UnsetType, kind: type[P]) -> P:
    try:
        return msgspec.json.decode(b"{}" if isinstance(params, UnsetType) else params, type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RpcError(INVALID_PARAMS, f"Invalid params: {exc}") from exc


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


class _NoEdge:
    """For a message that came alone: nobody is there to hear anything but the answer."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.log_level: str | None = None

    @property
    def session(self) -> SessionContext:
        return self._conversation.session

    async def tell(self, exchange: Exchange, notification: Notification) -> None:
        pass

    async def ask(self, exchange: Exchange, method: str, params: Any) -> Raw:
        raise RpcError(METHOD_NOT_FOUND, f"{method} cannot be asked: nobody is connected")
