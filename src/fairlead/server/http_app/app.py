"""A server over HTTP: the ASGI application around its endpoint, and its start and end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Container, Mapping
from dataclasses import replace
from typing import Any, Protocol, Self

from ...errors import ChannelClosed
from ...interceptor import Answer, Exchange, Handler, OnMalformed
from ...observe.log_filter import register_secrets
from ...peer import Peer
from ...protocol.caller import Caller
from ...protocol.envelope import TransportContext
from ...protocol.headers import ParamHeader
from ...protocol.identity.principal import Principal
from ...transport.channel import Channel
from ...transport.http.server.asgi import AsgiCall, BodyTimeout, Receive, Scope, Send
from ...transport.http.server.endpoint import HttpEndpoint
from ...transport.http.server.http_settings import HttpSettings
from ...transport.http.server.legacy_sse import MESSAGES, LegacySse
from ...transport.http.server.refusals import send_rejection
from ...transport.http.server.request_guard import RequestRefusal
from ...transport.http.server.request_headers import repeated_header
from ...transport.http.server.stateless_post import DelegatePost
from ...transport.websocket.websocket_endpoint import WebSocketEndpoint
from ...wire import Notification

__all__ = ["EndpointHandler", "HttpApp", "PageHandler"]

log = logging.getLogger("fairlead.server")

CORRELATION = b"x-correlation-id"


class EndpointHandler(Protocol):
    """Whoever answers behind an endpoint: a server, or a gateway to servers.

    `EndpointHooks` has the defaults of the three attributes that may be None.
    """

    @property
    def delegate_post(self) -> DelegatePost | None:
        """Takes over stateless requests that need no task; a relay has it."""

    @property
    def on_malformed(self) -> OnMalformed | None:
        """Receives bodies that are not messages."""

    @property
    def hides(self) -> Callable[[Principal], bool] | None:
        """Returns True for clients that are served nothing at this path."""

    @property
    def handler(self) -> Handler: ...

    @property
    def inline_methods(self) -> Container[str]: ...

    def attach(self, channel: Channel, principal: Principal, /) -> Peer: ...

    @property
    def answer_inline(self) -> Callable[[Exchange], Answer]: ...

    def tool_param_headers(self, tool: str, principal: Principal, /) -> tuple[ParamHeader, ...]:
        """Which arguments of a tool travel as headers too; none of a tool it may not know."""
        ...

    @property
    def on_stateless_notification(
        self,
    ) -> Callable[[Notification, Caller, TransportContext], None] | None:
        """Takes in a notification that came outside of any connection, if anybody wants it."""

    def running(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Open while it is served."""
        ...

    async def end_streams(self) -> None:
        """Hang up on those who only listen."""


class PageHandler(Protocol):
    """Answers everything that is not the protocol's."""

    async def serve(self, call: AsgiCall, path: str, principal: Principal) -> None: ...


class HttpApp:
    """The ASGI application of one server. Runs under any ASGI server and mounts in FastAPI.

    Mounted in another application it hears nothing of start and end; then `running()` around that
    application's own lifespan opens what the server needs. Without it the first request does.
    """

    def __init__(
        self,
        server: EndpointHandler,
        settings: HttpSettings,
        *,
        pages: PageHandler | None = None,
        others: Mapping[str, EndpointHandler] | None = None,
    ) -> None:
        """`others` are further endpoints, by their paths."""
        self.server = server
        self.settings = settings
        register_secrets(self, lambda: {"token": settings.auth_token})
        self.edge = _edge(server, settings)
        self.edges: dict[str, HttpEndpoint] = {settings.path: self.edge}
        self._others = dict(others or {})
        for path, other in self._others.items():
            self.edges[path] = _edge(other, replace(settings, path=path))
        self.sockets = WebSocketEndpoint(server.attach, settings, self.edge.guard)
        self._legacy = LegacySse(settings, server.attach)
        self._pages = pages
        self._open: contextlib.AsyncExitStack | None = None
        self._opening: asyncio.Lock | None = None

    def add(self, path: str, other: EndpointHandler) -> None:
        """Serve one more endpoint from now on."""
        self._others[path] = other
        self.edges[path] = _edge(other, replace(self.settings, path=path))

    async def remove(self, path: str) -> None:
        """Serve it no longer; its sessions end."""
        self._others.pop(path, None)
        edge = self.edges.pop(path, None)
        if edge is not None:
            await edge.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                if self._open is None:
                    await self._start()
                call = AsgiCall(scope, receive, send, self.settings.body_timeout)
                try:
                    await self._http(call)
                except asyncio.CancelledError:
                    # The task is the ASGI server's, which would take it for a failure of ours.
                    if not self.edge.ending:
                        raise
                    await call.give_up()
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                if self._open is None:
                    await self._start()
                await self.sockets.serve(scope, receive, send)

    async def _http(self, call: AsgiCall) -> None:
        path = call.path.removeprefix(call.scope.get("root_path", ""))
        if (named := call.headers.get(CORRELATION)) is not None and named.isascii():
            call.extra = ((CORRELATION, named[:128]),)
        edge = self.edges.get(path) or self._endpoint(path, call.method)
        if edge is not None and not _is_hidden(edge, call):
            await edge.serve(call)
            return
        if call.method == "OPTIONS":
            await self.edge.preflight(call)
            return
        who = self.edge.admit(call)
        if isinstance(who, RequestRefusal):
            await send_rejection(call, who)
            return
        if len(call.headers) != len(call.scope["headers"]) and (name := repeated_header(call)):
            await call.send_text(400, f"the header {name} must occur once")
            return
        if call.headers.get(b"origin") is not None:
            call.extra += self.edge.guard.cors(call.headers)
        try:
            if self.settings.sse_path is not None and path == self.settings.sse_path:
                await self._legacy.listen(call, who)
            elif self.settings.sse_path is not None and path == MESSAGES:
                await self._legacy.post(call, who)
            elif self._pages is not None:
                await self._pages.serve(call, path, who)
            else:
                await call.send_text(404, f"MCP is served at {self.settings.path}")
        except ChannelClosed:
            pass  # the client left while it was sending
        except BodyTimeout:
            await call.reject_slow_body()

    def _endpoint(self, path: str, method: str) -> HttpEndpoint | None:
        """Also with a slash behind it; and where the application is mounted at a path of its own,
        everything sent to that path is meant for it."""
        path = path.rstrip("/")
        if not path and method in ("POST", "DELETE"):
            return self.edge
        return self.edges.get(path)

    # Start and end

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Open what the server needs, and close it and all connections afterwards."""
        await self._start()
        try:
            yield self
        finally:
            await self.close()

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens; what is under way goes on."""
        for server in (self.server, *self._others.values()):
            await server.end_streams()
        await self.sockets.close()
        for edge in self.edges.values():
            await edge.close()
        await self._legacy.close()

    async def close(self) -> None:
        """End everything."""
        await self.end_streams()
        if self._open is not None:
            stack, self._open = self._open, None
            await stack.aclose()

    async def _start(self) -> None:
        if self._opening is None:
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._open is None:
                stack = contextlib.AsyncExitStack()
                await stack.enter_async_context(self.server.running())
                self._open = stack

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as exc:
            log.exception("the server could not start")
            await send({"type": "lifespan.startup.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.startup.complete"})
        with contextlib.suppress(asyncio.CancelledError):  # a loop that ends cancels every task
            await receive()
        try:
            await self.close()
        except Exception as exc:
            log.exception("the server did not end well")
            await send({"type": "lifespan.shutdown.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.shutdown.complete"})


def _is_hidden(edge: HttpEndpoint, call: AsgiCall) -> bool:
    """Return True if the client must not know of an endpoint; then its path is like any other."""
    if edge.hides is None:
        return False
    who = edge.admit(call)
    return not isinstance(who, RequestRefusal) and edge.hides(who)


def _edge(server: EndpointHandler, settings: HttpSettings) -> HttpEndpoint:
    return HttpEndpoint(
        server.handler,
        server.attach,
        settings,
        inline=server.answer_inline,
        inline_methods=server.inline_methods,
        tool_param_headers=server.tool_param_headers,
        on_stateless_notification=server.on_stateless_notification,
        delegate_post=server.delegate_post,
        on_malformed=server.on_malformed,
        hides=server.hides,
    )
