"""The ASGI application of a server: paths, headers, start and end, without a socket."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.http_settings import HttpSettings
from tests.support.raw_server_client import META

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
JSON = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "host": "localhost",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/list",
}


class Reply:
    def __init__(self, events: list[Any]) -> None:
        self.status: int = events[0]["status"]
        self.headers = {name.decode(): text.decode() for name, text in events[0]["headers"]}
        self.body = b"".join(event.get("body", b"") for event in events[1:])


async def ask(
    app: HttpApp, path: str, method: str = "POST", *more: tuple[bytes, bytes], **scope: Any
) -> Reply:
    """Send one request to an application, with further headers."""
    body = json.dumps(CALL).encode() if method == "POST" else b""
    events = [{"type": "http.request", "body": body}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not events:
            await asyncio.Event().wait()
        return events.pop()

    async def send(event: Any) -> None:
        sent.append(event)

    fields = [(name.encode(), text.encode()) for name, text in JSON.items()]
    await app(
        {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [*fields, *more],
            "client": ("127.0.0.1", 5),
            **scope,
        },
        receive,
        send,
    )
    return Reply(sent)


@contextlib.asynccontextmanager
async def application(server: MCPServer | None = None, **settings: Any) -> AsyncIterator[HttpApp]:
    app = HttpApp(server or MCPServer("s"), HttpSettings(**settings))
    async with app.running() as running:
        assert running is app
        yield app


@pytest.mark.parametrize(
    ("path", "method", "scope", "status"),
    [
        ("/mcp", "POST", {}, 200),
        ("/mcp/", "POST", {}, 200),
        ("/", "POST", {}, 200),
        ("", "POST", {}, 200),
        ("/", "GET", {}, 404),
        ("/api/mcp", "POST", {"root_path": "/api"}, 200),
        ("/api/mcp", "POST", {}, 404),
        ("/other", "POST", {}, 404),
        ("/other", "OPTIONS", {}, 403),
    ],
)
async def test_the_endpoint_is_found_by_its_path(
    path: str, method: str, scope: dict[str, str], status: int
) -> None:
    async with application() as app:
        reply = await ask(app, path, method, **scope)
        assert reply.status == status
        if status == 404:
            assert reply.body == b"404 Not Found: MCP is served at /mcp\n"


async def test_further_endpoints_come_and_go() -> None:
    other = MCPServer("other")
    other.tool(name="t")(lambda: "x")
    async with application() as app:
        app.add("/other", other)
        listed = json.loads((await ask(app, "/other")).body)
        assert [tool["name"] for tool in listed["result"]["tools"]] == ["t"]
        assert app.edges.keys() == {"/mcp", "/other"}
        await app.remove("/other")
        await app.remove("/other")
        assert (await ask(app, "/other")).status == 404
        assert app.edges.keys() == {"/mcp"}
        assert app._others == {}


@pytest.mark.parametrize(
    ("given", "returned"),
    [(b"abc", "abc"), (b"a" * 129, "a" * 128), (b"\xff", None)],
    ids=["short", "too long", "not ascii"],
)
async def test_a_correlation_id_comes_back(given: bytes, returned: str | None) -> None:
    async with application() as app:
        for path in ("/mcp", "/other"):
            reply = await ask(app, path, "POST", (b"x-correlation-id", given))
            assert reply.headers.get("x-correlation-id") == returned


async def test_other_paths_are_guarded_like_the_endpoint() -> None:
    async with application(auth_token="secret") as app:
        for path in ("/mcp", "/other", "/sse"):
            refused = await ask(app, path, "GET")
            assert refused.status == 401
        token = (b"authorization", b"Bearer secret")
        assert (await ask(app, "/other", "GET", token)).status == 404
        twice = await ask(app, "/other", "GET", token, token)
        assert twice.status == 400
        assert twice.body == b"400 Bad Request: the header authorization must occur once\n"


async def test_a_page_of_a_listed_origin_may_read_every_answer() -> None:
    async with application(allowed_origins=("https://page.example",)) as app:
        origin = (b"origin", b"https://page.example")
        for path in ("/mcp", "/other"):
            reply = await ask(app, path, "POST", origin)
            assert reply.headers["access-control-allow-origin"] == "https://page.example"
        assert (
            await ask(app, "/other", "POST", (b"origin", b"https://evil.example"))
        ).status == 403


async def test_an_application_without_the_old_transport_has_no_such_path() -> None:
    async with application(sse_path=None) as app:
        assert (await ask(app, "/sse", "GET")).status == 404


async def lifespan(app: HttpApp) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    events = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]

    async def receive() -> Any:
        return events.pop()

    async def send(event: Any) -> None:
        sent.append(event)

    await app({"type": "lifespan"}, receive, send)
    return sent


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (None, [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]),
        ("start", [{"type": "lifespan.startup.failed", "message": "odd"}]),
        (
            "end",
            [
                {"type": "lifespan.startup.complete"},
                {"type": "lifespan.shutdown.failed", "message": "odd"},
            ],
        ),
    ],
)
async def test_start_and_end_are_told(fails: str | None, told: list[dict[str, Any]]) -> None:
    @contextlib.asynccontextmanager
    async def open_all(server: MCPServer) -> AsyncIterator[None]:
        if fails == "start":
            raise ValueError("odd")
        yield
        if fails == "end":
            raise ValueError("odd")

    app = HttpApp(MCPServer("s", lifespan=open_all), HttpSettings())
    assert await lifespan(app) == told
    assert app._open is None


async def test_the_first_request_starts_what_nobody_has_started() -> None:
    opened: list[str] = []

    @contextlib.asynccontextmanager
    async def open_all(server: MCPServer) -> AsyncIterator[None]:
        opened.append("opened")
        yield
        opened.append("closed")

    app = HttpApp(MCPServer("s", lifespan=open_all), HttpSettings())
    await asyncio.gather(*(ask(app, "/mcp") for _ in range(3)))
    assert opened == ["opened"]
    await app.close()
    await app.close()
    assert opened == ["opened", "closed"]
