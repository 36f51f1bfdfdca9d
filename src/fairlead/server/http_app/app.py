"""ASGI application of a server: routing to its endpoints, start-up and shutdown."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Protocol, Self

from ...errors import ChannelClosed
from ...observe.log_filter import register_secrets
from ...protocol.caller import Principal
from ...transport.http.server.asgi import AsgiCall, BodyTimeout, Receive, Scope, Send
from ...transport.http.server.endpoint import HttpEndpoint
from ...transport.http.server.http_settings import HttpSettings
from ...transport.http.server.legacy_sse import MESSAGES, LegacySse
from ...transport.http.server.refusals import send_rejection
from ...transport.http.server.request_guard import RequestRefusal
from ...transport.http.server.request_headers import repeated_header
from ...transport.websocket.websocket_endpoint import WebSocketEndpoint
from .endpoint_handler import EndpointHandler

__all__ = ["HttpApp", "PageHandler"]

log = logging.getLogger("fairlead.server")

CORRELATION = b"x-correlation-id"


class PageHandler(Protocol):
    """Handler of all paths that do not belong to the protocol."""

    async def serve(self, call: AsgiCall, path: str, principal: Principal) -> None: ...


class HttpApp:
    """The ASGI application of one server. Runs under any ASGI server and can be mounted in FastAPI.

    A mounted application receives no lifespan events. In that case, enter `running()` in the
    lifespan of the outer application; otherwise the first request opens the server.
    """

    def __init__(
        self,
        server: EndpointHandler,
        settings: HttpSettings,
        *,
        pages: PageHandler | None = None,
        others: Mapping[str, EndpointHandler] | None = None,
    ) -> None:
        """`others` maps paths to the handlers of further endpoints; `pages` handles all other
        paths.
        """
        self.server = server
        self.settings = settings
        # Registered, so that the token never appears in the log.
        register_secrets(self, lambda: {"token": settings.auth_token})
        self.edge = _edge(server, settings)
        self.edges: dict[str, HttpEndpoint] = {settings.path: self.edge}
        self._others: dict[str, EndpointHandler] = {}
        for path, other in (others or {}).items():
            self.add(path, other)
        self.sockets = WebSocketEndpoint(server.attach, settings, self.edge.guard)
        self._legacy = LegacySse(settings, server.attach)
        self._pages = pages
        self._open: contextlib.AsyncExitStack | None = None
        self._opening = asyncio.Lock()

    def add(self, path: str, other: EndpointHandler) -> None:
        """Serve another endpoint at this path from now on."""
        self._others[path] = other
        self.edges[path] = _edge(other, replace(self.settings, path=path))

    async def remove(self, path: str) -> None:
        """Stop serving an endpoint and close its sessions."""
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
                    # The task belongs to the ASGI server, which would log the cancellation as an
                    # error.
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
        # Mounted applications receive the full path, including the prefix of the mount.
        path = call.path.removeprefix(call.scope.get("root_path", ""))
        # The value is echoed in a response header, so it is bounded and must be ASCII.
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
        # The mapping has one value per name; a different length means a repeated header.
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
            pass  # The client disconnected while it was sending.
        except BodyTimeout:
            await call.reject_slow_body()

    def _endpoint(self, path: str, method: str) -> HttpEndpoint | None:
        """Return the endpoint for a path, which may end with a slash or be the root of a mounted
        application.
        """
        path = path.rstrip("/")
        # A client may use the mount point itself as the URL; GET there is the status page.
        if not path and method in ("POST", "DELETE"):
            return self.edge
        return self.edges.get(path)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Open the server, and close it and all connections afterwards."""
        await self._start()
        try:
            yield self
        finally:
            await self.close()

    async def end_streams(self) -> None:
        """End the streams of clients that only listen; running requests continue."""
        for server in (self.server, *self._others.values()):
            await server.end_streams()
        await self.sockets.close()
        for edge in self.edges.values():
            await edge.close()
        await self._legacy.close()

    async def close(self) -> None:
        """Close all connections and the server."""
        await self.end_streams()
        if self._open is not None:
            stack, self._open = self._open, None
            await stack.aclose()

    async def _start(self) -> None:
        # Concurrent first requests must open the server only once.
        async with self._opening:
            if self._open is None:
                stack = contextlib.AsyncExitStack()
                await stack.enter_async_context(self.server.running())
                self._open = stack

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        # The lifespan is user code and may raise anything; ASGI requires a message, not an
        # exception.
        except Exception as exc:
            log.exception("the server failed to start")
            await send({"type": "lifespan.startup.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.startup.complete"})
        # An event loop that ends cancels every task.
        with contextlib.suppress(asyncio.CancelledError):
            await receive()
        try:
            await self.close()
        except Exception as exc:
            log.exception("the server failed to shut down")
            await send({"type": "lifespan.shutdown.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.shutdown.complete"})


def _is_hidden(edge: HttpEndpoint, call: AsgiCall) -> bool:
    """Return True if the endpoint is hidden from the client; its path then looks unused."""
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
