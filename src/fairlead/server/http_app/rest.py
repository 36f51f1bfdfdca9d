"""REST API for plain HTTP clients, and the status page."""

from typing import Any

import msgspec
from msgspec import Raw

from ...errors import MCPErrorCode, MCPToolError, RpcError
from ...interceptor import Exchange, Handler
from ...interceptor.direct_edge import NullReplyPath
from ...protocol.caller import Caller, Principal, read_params_head
from ...protocol.envelope import Direction
from ...protocol.revisions import NEWEST_HANDSHAKE, Revision
from ...transport.http.server.asgi import AsgiCall, BodyTooLarge, has_json
from ...transport.http.server.error_status import mapped_status
from ...transport.http.server.http_settings import HttpSettings
from ...wire import Request, to_json
from ..features.entry_scopes import InsufficientScope
from ..registration import Registration
from .openapi import describe_api
from .status_page import render_page

__all__ = ["RestApi"]

_STATUS = {
    MCPErrorCode.VALIDATION_ERROR: 400,
    MCPErrorCode.EXECUTION_ERROR: 500,
    MCPErrorCode.TIMEOUT: 504,
    MCPErrorCode.NOT_FOUND: 404,
    MCPErrorCode.RATE_LIMITED: 429,
    MCPErrorCode.CIRCUIT_OPEN: 503,
    MCPErrorCode.DEPENDENCY_MISSING: 503,
    MCPErrorCode.ACCESS_DENIED: 403,
    MCPErrorCode.INTERNAL: 500,
}
_LISTS = {"/tools": "tools", "/resources": "resources", "/prompts": "prompts"}
_HTML = b"text/html; charset=utf-8"
# The page shows text from third parties, so scripts and external content are forbidden.
_LOCKED = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class RestApi:
    """Handler of the paths beside the MCP endpoint, for clients that are authenticated already."""

    is_ready = True  # always: the application opens the server before its first request

    def __init__(self, server: Registration, handler: Handler, settings: HttpSettings) -> None:
        """`handler` answers the MCP requests that this API sends to the server."""
        self._server = server
        self._handler = handler
        self._settings = settings

    async def serve(self, call: AsgiCall, path: str, principal: Principal) -> None:
        """Handle one HTTP request."""
        path = path.rstrip("/") or "/"
        try:
            if path.startswith("/tools/") and path.endswith("/call"):
                if await _is(call, "POST"):
                    await self._call_tool(call, path[7:-5], principal)
            elif path.startswith("/tools/"):
                if await _is(call, "GET"):
                    await self._tool(call, path[7:], principal)
            elif path in _PATHS:
                if await _is(call, "GET"):
                    await self._get(call, path, principal)
            else:
                await call.send_text(
                    404, f"MCP is served at {self._settings.path}; / lists the other paths"
                )
        except InsufficientScope:
            raise  # the application sends the challenge
        except RpcError as exc:
            await call.answer(mapped_status(exc.code), _error(exc.code, exc.message, exc.data))

    async def _get(self, call: AsgiCall, path: str, principal: Principal) -> None:
        if path in _LISTS:
            kind = _LISTS[path]
            await call.answer(200, to_json({kind: await self._all(call, kind, principal)}))
        elif path == "/health":
            await call.answer(200, to_json(self._health()))
        elif path == "/ready":
            await call.answer(200, to_json({"ready": self.is_ready}))
        elif path == "/openapi.json":
            tools = await self._all(call, "tools", principal)
            where = str(call.scope.get("root_path", ""))
            await call.answer(200, to_json(describe_api(self._server.config, tools, where)))
        else:
            await self._page(call, principal)

    async def _tool(self, call: AsgiCall, name: str, principal: Principal) -> None:
        for tool in await self._all(call, "tools", principal):
            if tool["name"] == name:
                await call.answer(200, to_json(tool))
                return
        await call.answer(404, self._unknown_tool(name))

    def _unknown_tool(self, name: str) -> bytes:
        hint = self._server.registry.listing.hint(name, "GET /tools")
        return _error("NOT_FOUND", f"Unknown tool: {name}{hint}")

    async def _call_tool(self, call: AsgiCall, name: str, principal: Principal) -> None:
        # Required even without a body: web pages may send requests without it to any origin.
        if not has_json(call.headers):
            await call.send_text(415, "Content-Type must be application/json")
            return
        if self._server.registry.listing.get(name) is None:
            await call.answer(404, self._unknown_tool(name))
            return
        try:
            body = await call.body(self._settings.max_body)
        except BodyTooLarge:
            await call.send_text(413, f"the body must have at most {self._settings.max_body} bytes")
            return
        try:
            str(body, "utf-8")  # msgspec does not check the encoding of values that stay raw.
            arguments = msgspec.json.decode(body or b"{}", type=dict[str, Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            problem = f"The body must be a JSON object with the arguments of the tool: {exc}"
            await call.answer(400, _error("VALIDATION_ERROR", problem))
            return
        params = {"name": name, "arguments": arguments}
        answer = await self._ask(call, "tools/call", params, principal)
        result = msgspec.json.decode(answer)
        if result.get("isError"):
            error = _tool_error(result)
            await call.answer(_STATUS[error.code], to_json({"error": error.to_dict()}))
        else:
            await call.answer(200, answer)

    async def _page(self, call: AsgiCall, principal: Principal) -> None:
        offered = {kind: await self._all(call, kind, principal) for kind in _LISTS.values()}
        offered["resourceTemplates"] = await self._all(call, "resourceTemplates", principal)
        page = render_page(self._server.config, call.url_of(self._settings.path), offered)
        await call.answer(200, page.encode(), _HTML, _LOCKED)

    def _health(self) -> dict[str, Any]:
        server = self._server
        return {
            "status": "ok",
            "server": {"name": server.config.name, "version": server.config.version},
            "protocolVersions": [revision.value for revision in reversed(Revision)],
            "transport": "http",
            "counts": {
                "tools": server.tool_count,
                "resources": server.resource_count,
                "prompts": server.prompt_count,
            },
        }

    async def _all(self, call: AsgiCall, kind: str, principal: Principal) -> list[Any]:
        """Return a complete list, requested page by page."""
        method = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
        found: list[Any] = []
        cursor: str | None = None
        while True:
            params = {} if cursor is None else {"cursor": cursor}
            page = msgspec.json.decode(await self._ask(call, method, params, principal))
            found += page[kind]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def _ask(
        self, call: AsgiCall, method: str, params: dict[str, Any], principal: Principal
    ) -> bytes:
        """Send a request to the server like any other client, through its interceptors."""
        message = Request("rest", method, Raw(to_json(params)))
        self._server.entry_scopes.check_message(message, principal)
        caller = Caller(NEWEST_HANDSHAKE, False, principal)
        exchange = Exchange(
            message,
            caller,
            read_params_head(message.params),
            Direction.CLIENT_TO_SERVER,
            call.context,
            NullReplyPath(principal),
        )
        return bytes(await self._handler(exchange) or b"{}")


_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json", *_LISTS})


async def _is(call: AsgiCall, method: str) -> bool:
    """Return True if the request has this method, or HEAD for GET; otherwise, answer with 405."""
    if call.method == method or (call.method == "HEAD" and method == "GET"):
        return True
    await call.send_text(405, f"the method must be {method}", [(b"allow", method.encode())])
    return False


def _error(code: int | str, message: str, data: Any = None) -> bytes:
    facts: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        facts["data"] = data
    return to_json({"error": facts})


def _tool_error(result: dict[str, Any]) -> MCPToolError:
    try:
        return MCPToolError.from_mcp_response(result)
    except ValueError:  # The author of the tool built the result by hand.
        texts = [block.get("text", "") for block in result.get("content", ())]
        return MCPToolError("\n".join(filter(None, texts)) or "The tool failed")
