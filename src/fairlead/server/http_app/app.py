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
from ...transport.http.server.request_guard import RequestGuard, RequestRefusal
from ...transport.http.server.request_headers import repeated_header
from ...transport.http.server.token_access import TokenAccess
from ...transport.websocket.websocket_endpoint import WebSocketEndpoint
from ...wire import to_json
from ..features.entry_scopes import InsufficientScope
from .endpoint_handler import EndpointHandler

__all__ = ["HttpApp", "PageHandler"]

log = logging.getLogger("fairlead.server")

CORRELATION = b"x-correlation-id"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
_ANY_ORIGIN = ((b"access-control-allow-origin", b"*"),)
_PREFLIGHT = (
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-max-age", b"600"),
)
_CACHED = (b"cache-control", b"public, max-age=300")
_PROBES = frozenset({"/health", "/ready"})  # answered without details to callers without a token


class PageHandler(Protocol):
    """Handler of all paths that do not belong to the protocol."""

    @property
    def is_ready(self) -> bool:
        """True if requests can be served; `/ready` returns it."""
        ...

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
        self.access = (
            None if settings.auth is None else settings.auth.open_access(server.all_scopes)
        )
        access = self._access_to(settings.path, _other_paths(settings))
        if self.access is not None and others is not None:
            self.access.reserve(settings.path)
        self.edge = _edge(server, settings, access)
        self.edges: dict[str, HttpEndpoint] = {settings.path: self.edge}
        self._others: dict[str, EndpointHandler] = {}
        for path, other in (others or {}).items():
            self.add(path, other)
        self.sockets = WebSocketEndpoint(server.attach, settings, self.edge.guard)
        self._legacy = LegacySse(settings, server.attach, self.edge.refuse_scopes)
        self._pages = pages
        self._open: contextlib.AsyncExitStack | None = None
        self._opening = asyncio.Lock()
        self._draining = False
        self.starting = False  # True while the program still configures its servers

    def add(self, path: str, other: EndpointHandler) -> None:
        """Serve another endpoint at this path from now on."""
        self._others[path] = other
        own = replace(self.settings, path=path)
        self.edges[path] = _edge(other, own, self._access_to(path))

    async def remove(self, path: str) -> None:
        """Stop serving an endpoint and close its sessions."""
        self._others.pop(path, None)
        edge = self.edges.pop(path, None)
        if self.access is not None:
            self.access.forget(path)
        if edge is not None:
            await edge.close()

    def _access_to(self, path: str, aliases: Mapping[str, str] | None = None) -> TokenAccess | None:
        return None if self.access is None else self.access.endpoint(path, aliases or {})

    def listens_at(self, url: str | None) -> None:
        """Set the address of the socket: a URL on this machine, or None if there is no such URL.

        Raises:
            ConfigError: Access tokens are required, and the public URL is not known.
        """
        if self.access is not None:
            self.access.listens_at(url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                if self._open is None:
                    await self._start()
                own = self.settings
                call = AsgiCall(scope, receive, send, own.body_timeout, own.on_refused)
                try:
                    await self._http(call)
                except asyncio.CancelledError:
                    # The task belongs to the ASGI server, which would log this as an error.
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
        if self.access is not None and path.startswith(WELL_KNOWN):
            await self._metadata(call, path)
            return
        edge = self.edges.get(path) or self._endpoint(path, call.method)
        who = None
        if edge is not None and edge.hides is not None and call.method != "OPTIONS":
            # A client that must not see the endpoint gets the response of an unused path.
            who = await edge.admit(call)
        if edge is not None and not (
            edge.hides is not None
            and who is not None
            and not isinstance(who, RequestRefusal)
            and edge.hides(who)
        ):
            await edge.serve(call, who)
            return
        if call.method == "OPTIONS":
            await self.edge.preflight(call)
            return
        if who is None:
            who = await self._admit_unused(call, path)
        if b"origin" in call.headers:
            call.extra += self.edge.guard.cors(call.headers)
        if path in _PROBES and self._answers_itself(call, who):
            await self._probe(call, path)
            return
        if isinstance(who, RequestRefusal):
            await send_rejection(call, who)
            return
        refusal = self.edge.guard.refuse_scopes(who, (), path)
        if refusal is not None and path != MESSAGES:
            await send_rejection(call, refusal)
            return
        # The mapping has one value per name; a different length means a repeated header.
        if len(call.headers) != len(call.scope["headers"]) and (name := repeated_header(call)):
            await call.send_text(400, f"the header {name} must occur once")
            return
        if self.access is not None:
            call.public_base = self.access.base
        try:
            if self.settings.sse_path is not None and path == self.settings.sse_path:
                await self._legacy.listen(call, who)
            elif self.settings.sse_path is not None and path == MESSAGES:
                await self._legacy.post(call, who)
            elif self._pages is not None:
                await self._pages.serve(call, path, who)
            else:
                await call.send_text(404, f"MCP is served at {self.settings.path}")
        except InsufficientScope as exc:
            refused = self.edge.guard.refuse_scopes(who, exc.scopes, path)
            await send_rejection(call, refused or RequestRefusal(403, str(exc)))
        except ChannelClosed:
            pass  # The client disconnected while it was sending.
        except BodyTimeout:
            await call.reject_slow_body()

    async def _admit_unused(self, call: AsgiCall, path: str) -> Principal | RequestRefusal:
        """Return the principal of a request to a path without an endpoint, or a refusal.

        A path without an endpoint gets the same challenges and audiences as an endpoint, so that a
        client cannot find out which endpoints exist.
        """
        access = None if self.access is None else self.access.unused(path)
        if access is None:
            return await self.edge.admit(call, path)
        return await self.edge.admit(call, guard=RequestGuard(self.settings, access))

    def _answers_itself(self, call: AsgiCall, who: Principal | RequestRefusal) -> bool:
        """Return True for a health check that is answered without details and needs no token.

        Load balancers and kubelets have no token and use an address as `Host`. Web pages of other
        origins remain excluded.
        """
        if call.method not in ("GET", "HEAD"):
            return False
        if isinstance(who, RequestRefusal):
            return self.edge.guard.refuse_page(call.headers, call.server) is None
        return self._pages is None or self._is_unready

    async def _metadata(self, call: AsgiCall, path: str) -> None:
        """Send the metadata of an endpoint, which pages of any origin may read without a token."""
        assert self.access is not None
        refusal = self.edge.guard.refuse_host(call.headers, call.server)
        if refusal is not None:
            await send_rejection(call, refusal)
            return
        if call.method == "OPTIONS":
            await call.answer(204, headers=[*_ANY_ORIGIN, *_PREFLIGHT])
            return
        document = self.access.metadata(path)
        if call.method not in ("GET", "HEAD"):
            await call.send_text(405, "the method must be GET", [(b"allow", b"GET")])
        elif document is None:
            await call.send_text(404, "there is no protected resource with this path", _ANY_ORIGIN)
        else:
            await call.answer(200, document, headers=[*_ANY_ORIGIN, _CACHED])

    async def _probe(self, call: AsgiCall, path: str) -> None:
        if path == "/health":
            await call.answer(200, to_json({"status": "ok"}))
            return
        ready = not self._is_unready and (self._pages is None or self._pages.is_ready)
        await call.answer(200 if ready else 503, to_json({"ready": ready}))

    @property
    def _is_unready(self) -> bool:
        return self.starting or self._draining or self.edge.ending

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

    @property
    def requests_in_sessions(self) -> int:
        """The number of running requests in sessions and on WebSockets."""
        others = self.sockets.requests_in_progress + self._legacy.requests_in_progress
        return others + sum(edge.sessions.requests_in_progress for edge in self.edges.values())

    def begin_drain(self) -> None:
        """Report that the application is not ready, and refuse new sessions with 503."""
        self._draining = self.sockets.draining = self._legacy.draining = True
        for edge in self.edges.values():
            edge.sessions.draining = True

    async def end_streams(self, drain: float = 0.0) -> None:
        """End the streams of clients that only listen, and the sessions and sockets of clients.

        Requests that run in these may take `drain` seconds; other running requests continue.
        """
        for server in (self.server, *self._others.values()):
            await server.end_streams()
        edges = self.edges.values()
        await asyncio.gather(
            self.sockets.close(drain), self._legacy.close(drain), *(e.close(drain) for e in edges)
        )

    async def close(self) -> None:
        """Close all connections and the server."""
        await self.end_streams()
        if self._open is not None:
            stack, self._open = self._open, None
            await stack.aclose()
        if self.access is not None:
            await self.access.close()

    async def _start(self) -> None:
        # Concurrent first requests must open the server only once.
        async with self._opening:
            if self._open is None:
                if self.access is not None:
                    self.access.check_address()
                stack = contextlib.AsyncExitStack()
                await stack.enter_async_context(self.server.running())
                self._open = stack

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        # The lifespan is user code and may raise anything; ASGI expects a message instead.
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


def _other_paths(settings: HttpSettings) -> dict[str, str]:
    """Return the server's other paths, each with the path that its clients connect to."""
    paths = {} if settings.ws_path is None else {settings.ws_path: settings.ws_path}
    if settings.sse_path is not None:
        paths |= {settings.sse_path: settings.sse_path, MESSAGES: settings.sse_path}
    return paths


def _edge(
    server: EndpointHandler, settings: HttpSettings, access: TokenAccess | None
) -> HttpEndpoint:
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
        access=access,
        required_scopes=server.required_scopes,
    )
