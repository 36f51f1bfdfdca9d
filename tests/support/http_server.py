"""A Fairlead server on a real port, and a plain HTTP client for it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from fairlead import Context, MCPServer

LIMIT = 10.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BOTH = "application/json, text/event-stream"


class Web:
    """A plain HTTP client for one endpoint."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def post(
        self, body: Any, headers: dict[str, str] | None = None, url: str | None = None
    ) -> "Answer":
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
        async with self.http.post(url or self.url, data=data, headers=sent) as response:
            return Answer(response, await response.read())

    async def stateless(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **meta: Any,
    ) -> "Answer":
        """Send a valid stateless request; `headers` override the default ones."""
        return await self.post(*stateless(method, params, headers, **meta))

    async def initialize(self, version: str = "2025-11-25", **capabilities: Any) -> "Session":
        """Open a session and send `notifications/initialized`."""
        answer = await self.post(introduction(version, **capabilities))
        session = Session(self, answer.headers["mcp-session-id"], version)
        told = await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert told.status == 202
        return session

    async def get(self, url: str | None = None, headers: dict[str, str] | None = None) -> "Answer":
        async with self.http.get(url or self.url, headers=headers) as response:
            return Answer(response, await response.read())


class Session:
    """A session of the handshake era."""

    def __init__(self, web: Web, session_id: str, version: str) -> None:
        self.web = web
        self.headers = {"Mcp-Session-Id": session_id, "MCP-Protocol-Version": version}

    async def post(self, body: Any, headers: dict[str, str] | None = None) -> "Answer":
        return await self.web.post(body, {**self.headers, **(headers or {})})

    async def call(self, tool: str, arguments: Any = None, request_id: int = 7) -> "Answer":
        return await self.post(call(tool, arguments, request_id))

    def stream(self, body: Any = None, **headers: str) -> Any:
        """Open a request whose response is streamed: a POST, or a GET without a body."""
        sent = {"Content-Type": "application/json", **self.headers, **headers}
        if body is None:
            sent["Accept"] = "text/event-stream"
            return self.web.http.get(self.web.url, headers=sent)
        sent["Accept"] = BOTH
        return self.web.http.post(self.web.url, data=json.dumps(body), headers=sent)


class Answer:
    """A response that has been read completely."""

    def __init__(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.kind = response.content_type
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> int:
        return int(self.json["error"]["code"])

    @property
    def result(self) -> Any:
        return self.json["result"]

    @property
    def text(self) -> str:
        return str(self.result["content"][0]["text"])

    @property
    def events(self) -> list[dict[str, str]]:
        return [event for block in self.body.decode().split("\n\n") if (event := fields(block))]

    @property
    def messages(self) -> list[Any]:
        return [json.loads(event["data"]) for event in self.events if event.get("data")]


def fields(block: str) -> dict[str, str]:
    """Return the fields of one event, without its comments."""
    lines = [line.partition(":") for line in block.splitlines() if not line.startswith(":")]
    return {name: value.removeprefix(" ") for name, _, value in lines}


async def next_event(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the next event of a stream, or an empty dictionary at its end."""
    async with asyncio.timeout(LIMIT):
        block = ""
        while line := (await response.content.readline()).decode():
            if line.strip():
                block += line
            elif found := fields(block):
                return found
            else:
                block = ""
    return {}


async def happens(event: asyncio.Event) -> None:
    """Wait for an event, with a time limit."""
    async with asyncio.timeout(LIMIT):
        await event.wait()


async def next_message(response: aiohttp.ClientResponse) -> Any:
    """Return the next event that has data, decoded."""
    while event := await next_event(response):
        if event.get("data"):
            return json.loads(event["data"])
    raise AssertionError("the stream ended")


def call(tool: str, arguments: Any = None, request_id: int = 7, **meta: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments or {}, **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def introduction(version: str = "2025-11-25", **capabilities: Any) -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": {"name": "web", "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


def stateless(
    method: str,
    params: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    **meta: Any,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return body and headers of a stateless request; headers with an empty value are omitted."""
    params = {**(params or {}), "_meta": {**META, **meta}}
    sent = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    if name := params.get("name") or params.get("uri"):
        sent["Mcp-Name"] = name
    sent = {k: v for k, v in {**sent, **(headers or {})}.items() if v != ""}
    return {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}, sent


@contextlib.asynccontextmanager
async def serving(server: MCPServer, **options: Any) -> AsyncIterator[Web]:
    """Serve on a free local port while the block runs."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result, **options))
    async with asyncio.timeout(LIMIT):
        await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        await running
    async with aiohttp.ClientSession() as http:
        try:
            yield Web(ready.result(), http)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


class Desk:
    """Events with which tests observe and control the tools of the test server."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()


def make_server(desk: Desk | None = None, **settings: Any) -> MCPServer:
    """Return the server that most tests use."""
    server = MCPServer("web", rate_limit_rate=0, **settings)
    desk = desk or Desk()

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def steps(ctx: Context, n: int = 2) -> str:
        for i in range(n):
            await ctx.progress(i + 1, n)
        return "done"

    @server.tool()
    async def wait(ctx: Context) -> str:
        desk.started.set()
        try:
            await desk.go_on.wait()
        except asyncio.CancelledError:
            desk.cancelled.set()
            raise
        return "waited"

    @server.tool()
    async def come_back(ctx: Context) -> str:
        desk.started.set()
        ctx.close_stream()
        await desk.go_on.wait()
        return "here it is"

    @server.tool()
    async def name(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str)
        return f"{answer.action} {answer.data}"

    @server.tool()
    async def fail() -> str:
        raise ValueError("no")

    @server.resource("note://one")
    async def note() -> str:
        return "a note"

    return server
