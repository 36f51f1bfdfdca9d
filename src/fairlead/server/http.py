"""A server over HTTP: the ASGI application around its endpoint, and its start and end."""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import ChannelClosed
from ..protocol.headers import ParamHeader, param_headers
from ..transport.http.asgi import AsgiCall, Receive, Scope, Send
from ..transport.http.edge import HttpEdge, preflight, refuse
from ..transport.http.guard import Refusal
from ..transport.http.legacy_sse import MESSAGES, LegacySse
from ..transport.http.settings import HttpSettings
from ..transport.websocket.edge import WebSocketEdge
from .rest import Rest

if TYPE_CHECKING:
    from .server import MCPServer

__all__ = ["HttpApp"]

log = logging.getLogger("fairlead.server")

CORRELATION = b"x-correlation-id"


class HttpApp:
    """The ASGI application of one server. Runs under any ASGI server and mounts in FastAPI.

    Mounted in another application it hears nothing of start and end; then `running()` around that
    application's own lifespan opens what the server needs. Without it the first request does.
    """

    def __init__(self, server: "MCPServer", settings: HttpSettings) -> None:
        self.server = server
        self.settings = settings
        self.edge = HttpEdge(
            server.handler,
            server.attach,
            settings,
            inline=server.answer_inline,
            inline_methods=server.inline_methods,
            marks_of=_Marks(server),
        )
        self.sockets = WebSocketEdge(server.attach, settings, self.edge.guard)
        self._legacy = LegacySse(settings, server.attach)
        self._rest = Rest(server, settings)
        self._open: contextlib.AsyncExitStack | None = None
        self._opening: asyncio.Lock | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                if self._open is None:
                    await self._start()
                call = AsgiCall(scope, receive, send)
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
        if path == self.settings.path or self._is_endpoint(path, call.method):
            await self.edge.serve(call)
            return
        who = self.edge.admit(call, call.method)
        if isinstance(who, Refusal):
            await refuse(call, who)
            return
        if call.headers.get(b"origin") is not None:
            call.extra += self.edge.guard.cors(call.headers)
        try:
            if call.method == "OPTIONS":
                await preflight(call)
            elif self.settings.sse_path is not None and path == self.settings.sse_path:
                await self._legacy.listen(call, who)
            elif self.settings.sse_path is not None and path == MESSAGES:
                await self._legacy.post(call, who)
            else:
                await self._rest.serve(call, path, who)
        except ChannelClosed:
            pass  # the client left while it was sending

    def _is_endpoint(self, path: str, method: str) -> bool:
        """Also with a slash behind it; and where the application is mounted at a path of its own,
        everything sent to that path is meant for it."""
        path = path.rstrip("/")
        return path == self.settings.path or (not path and method in ("POST", "DELETE"))

    # Start and end

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Open what the server needs, and close it and all connections afterwards."""
        await self._start()
        try:
            yield self
        finally:
            await self.close()

    async def end_streams(self) -> None:
        """Hang up on everybody who only listens; what is under way goes on."""
        await self.server.changes.end()
        await self.sockets.close()
        await self.edge.close()
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
                self.server.load_configured()
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
        await receive()
        try:
            await self.close()
        except Exception as exc:
            log.exception("the server did not end well")
            await send({"type": "lifespan.shutdown.failed", "message": str(exc)})
            return
        await send({"type": "lifespan.shutdown.complete"})


class _Marks:
    """Which arguments of a tool travel as headers; found out once for each tool."""

    def __init__(self, server: "MCPServer") -> None:
        self._server = server
        self._known: dict[str, tuple[object, tuple[ParamHeader, ...]]] = {}

    def __call__(self, name: str) -> tuple[ParamHeader, ...]:
        known = self._known.get(name)
        entry = self._server.registry.listing.get(name)
        if entry is None:
            return ()
        if known is None or known[0] is not entry:
            marks = param_headers(msgspec.json.decode(entry.definition.input_schema))
            known = self._known[name] = entry, marks
        return known[1]
