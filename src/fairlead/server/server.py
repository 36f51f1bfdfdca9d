"""The MCP server: construction, lifetime, and the channels it serves."""

import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..interceptor import Interceptor, chain, malformed_frame_hook
from ..keyword_arguments import named_arguments, require_known
from ..peer import Peer
from ..protocol.caller import ANONYMOUS, SERVER_INFO_KEY, Principal
from ..protocol.conversation.conversation import Conversation, ConversationRole
from ..protocol.outgoing_params import Identity
from ..protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from ..transport.channel import Channel
from ..wire import Notification, Request, to_json
from .dispatch import (
    MethodRoute,
    RequestDispatcher,
    answer_completion,
    answer_list,
    set_level,
)
from .execution.handler_errors import log_errors
from .execution.tool_runner import ToolRunner
from .features.entry_requests import PromptGets, ResourceReads
from .features.resource_registry import CacheHints
from .features.subscription_requests import SubscriptionRequests
from .features.tool_calls import ToolCalls
from .features.tool_registry import MCPToolRegistry
from .http_app.endpoint_handler import EndpointHandler
from .http_app.http_runnable import HttpRunnable
from .introduction import Introduction, server_info
from .lifespan import Lifespan, LifespanFactory
from .registration import Registration, migration_hints
from .results.result_envelope import ResultEnvelope
from .server_config import MCPServerConfig

if TYPE_CHECKING:
    from ..auth.server.server_auth import ServerAuth
    from ..protocol.headers import ParamHeader
    from ..transport.http.server.http_settings import HttpSettings
    from .http_app.app import HttpApp
    from .interception import InterceptedHandler

__all__ = ["MCPServer"]


class MCPServer(HttpRunnable, EndpointHandler, Registration):
    """An MCP server. Register tools, resources and prompts, then call `run()`.

    server = MCPServer("weather")

    @server.tool()
    async def forecast(city: str, days: int = 3) -> str:
        "Return the weather forecast of a city."
        ...

    server.run()
    """

    @named_arguments
    def __init__(
        self,
        config: MCPServerConfig | str | None = None,
        *,
        interceptors: Sequence[Interceptor] = (),
        registry: MCPToolRegistry | None = None,
        lifespan: LifespanFactory | None = None,
        auth: "ServerAuth | None" = None,
        **settings: Any,
    ) -> None:
        """`config` is the configuration, or the name of the server; `settings` are fields of
        `MCPServerConfig`.

        `lifespan` takes the server and returns an asynchronous context that is open while the
        server runs. The value that the context yields is available as `server.state`.

        `auth` specifies the access tokens that clients need over HTTP and WebSocket.
        """
        self.auth = auth
        config = _make_config(config, settings)
        self.info = server_info(config)
        # Inline answers are synchronous and would bypass the asynchronous interceptors.
        self._dispatcher = RequestDispatcher(inline=not interceptors)
        self.handler = self._dispatcher.handle
        self.inline_methods = self._dispatcher.inline_methods  # inline tools add `tools/call`
        self.answer_inline = self._dispatcher.answer_inline
        self._heard: InterceptedHandler | None = None
        if interceptors:
            self._intercept(tuple(interceptors))
        self.on_malformed = malformed_frame_hook(interceptors)
        cache = CacheHints(config.cache_ttl, config.cache_scope)
        self._envelope = ResultEnvelope(self.info, cache.members())
        self._meta = {SERVER_INFO_KEY: self.info}
        # A callable, because the lifespan is opened after the runner is built.
        self._runner = ToolRunner(config, self._meta, lambda: self.state, self.handler)
        if registry is None:
            registry = MCPToolRegistry(config, calls=self._runner)
        self._calls = ToolCalls(config, registry.listing, self._runner, self._envelope.complete)
        self.limiter = self._calls.limiter
        super().__init__(config, registry, self._runner.workers)
        self._introduction = Introduction(self, self.info, self._envelope)
        self._dispatcher.register(self._make_routes())
        self._dispatcher.check_scopes = self.entry_scopes.check
        self._mounted: list[MCPServer] = []
        self._lifespan = Lifespan(lifespan, self)
        # Weak references, so that a peer that was not closed can be freed.
        self._peers: weakref.WeakSet[Peer] = weakref.WeakSet()
        self._warm = not config.warm_up
        # No suggestions, because interceptors may hide entries.
        for listing in (self._tools, self.prompts, self.resources.fixed, self.resources.templates):
            listing.suggests = not interceptors

    # Hidden from type checkers, which would otherwise accept any misspelled name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Loaded on first use: only errors need them.
            from ..suggestions import missing_attribute
            from .server_migration_hints import SERVER_HINTS

            raise missing_attribute(self, name, SERVER_HINTS)

    def _intercept(self, interceptors: tuple[Interceptor, ...]) -> None:
        """Pass every request and notification through the interceptors."""
        # Most servers have no interceptors, so the module is loaded on demand.
        from .interception import InterceptedHandler

        self._heard = InterceptedHandler(interceptors, self.info, self._dispatcher.handle)
        self.handler = chain((log_errors, *interceptors), self._heard)
        # A server ignores notifications outside of a connection; only its interceptors see them.
        self.on_stateless_notification = self._heard.on_stateless_notification

    def _make_routes(self) -> dict[str, MethodRoute]:
        """Return the route of every method that the server answers."""
        calls, introduction, envelope = self._calls, self._introduction, self._envelope
        resources, prompts, completions = self.resources, self.prompts, self.completions
        parts = (self._workers, self._runner.context, envelope, self._meta)
        subscriptions = SubscriptionRequests(self.changes, resources, introduction.capabilities)
        listed = partial(answer_list, envelope)
        completed = partial(answer_completion, envelope, completions)
        return {
            "tools/call": MethodRoute(calls.call_inline, calls.call),
            # The listing is looked up in each request, because another registry may replace it.
            "tools/list": MethodRoute(
                lambda exchange: answer_list(envelope, calls.listing, exchange)
            ),
            "resources/read": MethodRoute(None, ResourceReads(resources, *parts).answer, resources),
            "resources/list": MethodRoute(partial(listed, resources.fixed), offers=resources),
            "resources/templates/list": MethodRoute(
                partial(listed, resources.templates), offers=resources
            ),
            "resources/subscribe": MethodRoute(subscriptions.subscribe),
            "resources/unsubscribe": MethodRoute(subscriptions.unsubscribe),
            "prompts/get": MethodRoute(None, PromptGets(prompts, *parts).answer, prompts),
            "prompts/list": MethodRoute(partial(listed, prompts), offers=prompts),
            "completion/complete": MethodRoute(None, completed, completions),
            "subscriptions/listen": MethodRoute(None, subscriptions.listen),
            "server/discover": MethodRoute(introduction.discover),
            "initialize": MethodRoute(introduction.initialize),
            # `ping` has an empty result in every revision.
            "ping": MethodRoute(lambda _: b"{}"),
            "logging/setLevel": MethodRoute(set_level),
        }

    def _tools_changed(self) -> None:
        super()._tools_changed()
        # The registry may have been replaced by a registry with its own listing.
        self._calls.listing = self._registry.listing
        if self._registry.has_inline:
            self._dispatcher.allow_inline("tools/call")

    @named_arguments(hints=migration_hints("RUN_KEYWORDS"))
    def run(self) -> None:
        """Serve the configured transport until the client disconnects or a signal arrives."""
        from .run_program import run_server

        run_server(self)

    async def run_stdio(self) -> None:
        """Serve stdin and stdout until stdin is closed."""
        from ..transport.stdio.own_stdio import open_stdio

        self.load_configured()
        async with open_stdio(limit=self.config.max_message_bytes) as channel:
            await self.serve(channel)

    def create_http_app(self, settings: "HttpSettings | None" = None, **options: Any) -> "HttpApp":
        """Return the ASGI application: MCP at `/mcp`, a status page and a REST API.

        `options` are fields of `HttpSettings`.
        """
        # A server that uses only stdio does not load the HTTP modules.
        from ..transport.http.server.http_settings import HttpSettings
        from .http_app.app import HttpApp
        from .http_app.rest import RestApi

        if settings is not None and options:
            raise TypeError("pass either HttpSettings or options, not both")
        require_known(options, HttpSettings.__annotations__, migration_hints("HTTP_KEYWORDS"))
        chosen = settings if settings is not None else HttpSettings(**options)
        if chosen.auth is None and self.auth is not None:
            chosen = replace(chosen, auth=self.auth)
        return HttpApp(self, chosen, pages=RestApi(self, self.handler, chosen))

    async def serve(self, channel: Channel) -> None:
        """Serve the channel of an anonymous client until it ends. Cancelling closes the channel."""
        async with self.running():
            peer = self.attach(channel, ANONYMOUS)
            try:
                await peer.wait_closed()
            finally:
                # Streams of `subscriptions/listen` get their result before the channel closes.
                await self.changes.end(peer)
                await peer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Any]:
        """Open the lifespan of this server and of the servers mounted in it, and yield the state.

        `serve` and clients in the same process do this themselves. Code that uses `attach` or
        `handle_request` wraps them in this context.
        """
        self.load_configured()
        if not self._warm:
            self.warm_up()
        async with AsyncExitStack() as stack:
            for other in self._mounted:
                await stack.enter_async_context(other.running())
            yield await stack.enter_async_context(self._lifespan)

    def open_lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return `running()`, for clients in the same process."""
        return self.running()

    def describe_tools(self) -> list[tuple[str, str]]:
        """Return the name and the first line of the description of each tool, including those of
        modules.
        """
        self.load_configured()
        tools = self._registry.list_tools()
        return [(tool.name, str(tool.description or "").partition("\n")[0]) for tool in tools]

    @property
    def state(self) -> Any:
        """The value that the lifespan yielded; None while the lifespan is not open."""
        return self._lifespan.state

    @named_arguments(hints=migration_hints("MOUNT_KEYWORDS"), unchecked=("prefix",))
    def mount(self, other: "MCPServer", prefix: str = "") -> None:
        """Register the entries of another server here: tools and prompts as `prefix_name`,
        resources as is.

        Later additions and removals are followed. The interceptors, limits and lifespan of the
        other server apply to its entries, in addition to those of this server.

        Raises:
            TypeError: An argument has the wrong type, such as a server of another package.
            ValueError: A name or URI is registered already.
        """
        from .mount import check_mountable, mount

        check_mountable(other, prefix)
        mount(self, other, prefix, info=self.info, handler=other.handler)
        self._mounted.append(other)

    async def close(self) -> None:
        """Close every connection, after sending the final result to `subscriptions/listen`
        requests.
        """
        await self.changes.end()
        # A copy, because the set may change while `close` waits.
        for peer in list(self._peers):
            await peer.close()

    def tool_param_headers(self, tool: str, principal: Principal) -> "tuple[ParamHeader, ...]":
        """Return the arguments of a tool that are also sent as headers (stateless HTTP)."""
        entry = self._tools.get(tool)
        return () if entry is None else entry.param_headers

    def required_scopes(
        self, message: Request | Notification, principal: Principal
    ) -> Sequence[str]:
        """Return the scopes that a message requires, by the entry that it names."""
        return self.entry_scopes.required(message)

    def all_scopes(self) -> Sequence[str]:
        """Return the scopes of all entries."""
        return self.entry_scopes.scopes

    async def end_streams(self) -> None:
        """End the streams of clients that only listen for changes."""
        await self.changes.end()

    def load_configured(self) -> None:
        """Import the modules of the configuration. Safe to call more than once."""
        config = self.config
        if config.tool_modules or config.tool_entry_points:
            from .features.tool_modules import load_modules

            load_modules(self._registry, config.tool_modules, entry_points=config.tool_entry_points)

    def warm_up(self) -> None:
        """Encode the lists and compile the schemas that the first requests will need.

        Called before the first connection, unless the setting `warm_up` is False.
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
        """Return a snapshot of counters: connections, malformed frames, worker threads, rate
        limits.
        """
        peers = [peer for peer in self._peers if peer.connected]
        return {
            "connections": len(peers),
            "malformed": sum(peer.malformed for peer in peers),
            "workers": self._runner.metrics,
            "rate_limit": None if self.limiter is None else self.limiter.metrics,
            "mounted": [other.metrics() for other in self._mounted],
        }

    def attach(self, channel: Channel, principal: Principal) -> Peer:
        """Serve one channel in the background and return its peer, which can be closed.

        `principal` is the authenticated name of the client, or `ANONYMOUS` if the channel does not
        authenticate its clients.
        """
        if not self._warm:
            self.warm_up()
        identity = Identity(self.info, self._introduction.capabilities())
        conversation = Conversation(
            ConversationRole.SERVER,
            identity,
            principal=principal,
            # A bridge may connect several clients to one pipe. Over HTTP each has a session.
            restartable=channel.context.transport_type not in ("http", "sse"),
        )
        make = Peer if self._heard is None else self._heard.make_peer
        # `on_close` needs the peer, which does not exist before its constructor returns.
        attached: list[Peer] = []
        peer = make(
            channel,
            conversation,
            handler=self.handler,
            inline=self.answer_inline,
            inline_methods=self.inline_methods,
            on_eof=self.changes.stop,  # ends `subscriptions/listen` requests, which would stay open
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
        """Handle one JSON-RPC message outside of any connection; return None for a notification.

        `correlation_id` identifies the request in logs and error results; by default it is
        generated.
        """
        from .single_message import answer_single_message

        answer = await answer_single_message(self.handler, to_json(message), correlation_id)
        if answer is None:
            return None
        result: dict[str, Any] = msgspec.json.decode(answer)
        return result


def _make_config(config: MCPServerConfig | str | None, settings: dict[str, Any]) -> MCPServerConfig:
    known = (*MCPServerConfig.__annotations__, "interceptors", "registry", "lifespan", "auth")
    require_known(settings, known, migration_hints("SERVER_KEYWORDS"))
    if isinstance(config, str):
        return MCPServerConfig(name=config, **settings)
    if config is None:
        return MCPServerConfig(**settings)
    if settings:
        raise TypeError("pass either an MCPServerConfig or settings, not both")
    return config
