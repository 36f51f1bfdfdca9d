"""Tests of the ASGI application: paths, headers, start-up and shutdown, without a socket."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.errors import ChannelClosed
from fairlead.protocol.caller import ANONYMOUS
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.asgi import AsgiCall, BodyTimeout
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
    app: HttpApp,
    path: str,
    method: str = "POST",
    *more: tuple[bytes, bytes],
    body: bytes | None = None,
    **scope: Any,
) -> Reply:
    """Send one request with additional headers to an application."""
    if body is None:
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
async def test_an_application_finds_its_endpoint_by_path(
    path: str, method: str, scope: dict[str, str], status: int
) -> None:
    async with application() as app:
        reply = await ask(app, path, method, **scope)
        assert reply.status == status
        if status == 404:
            assert reply.body == b"404 Not Found: MCP is served at /mcp\n"


async def test_endpoints_can_be_added_and_removed() -> None:
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
async def test_the_response_contains_the_correlation_id_of_the_request(
    given: bytes, returned: str | None
) -> None:
    async with application() as app:
        for path in ("/mcp", "/other"):
            reply = await ask(app, path, "POST", (b"x-correlation-id", given))
            assert reply.headers.get("x-correlation-id") == returned


async def test_all_paths_of_an_application_except_probes_require_the_token() -> None:
    async with application(auth_token="token-4711") as app:
        for path in ("/mcp", "/other", "/sse"):
            refused = await ask(app, path, "GET")
            assert refused.status == 401
        token = (b"authorization", b"Bearer token-4711")
        assert (await ask(app, "/other", "GET", token)).status == 404
        twice = await ask(app, "/other", "GET", token, token)
        assert twice.status == 400
        assert twice.body == b"400 Bad Request: the header authorization must occur once\n"


@pytest.mark.covers("SRV-47")
@pytest.mark.parametrize("host", ["localhost", "10.1.2.3:8080", "other.example"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_probes_without_a_token_get_no_details_whatever_their_host_header(
    host: str, method: str
) -> None:
    app = MCPServer("web").create_http_app(auth_token="token-4711")
    name = (b"host", host.encode())
    async with app.running():
        for path, body in (("/health", {"status": "ok"}), ("/ready", {"ready": True})):
            reply = await ask(app, path, method, name, server=("127.0.0.1", 80))
            assert (reply.status, json.loads(reply.body)) == (200, body)
        assert (await ask(app, "/health", "POST")).status == 401
        details = await ask(app, "/health", "GET", (b"authorization", b"Bearer token-4711"))
        assert "server" in json.loads(details.body)


@pytest.mark.parametrize(
    "header", [(b"origin", b"https://evil.example"), (b"sec-fetch-site", b"cross-site")]
)
async def test_web_pages_on_other_origins_cannot_probe_a_server(
    header: tuple[bytes, bytes],
) -> None:
    async with application(auth_token="token-4711") as app:
        for path in ("/health", "/ready"):
            assert (await ask(app, path, "GET", header)).status == 403


async def test_a_server_is_not_ready_before_its_program_has_configured_it() -> None:
    app = MCPServer("s").create_http_app()
    async with app.running():
        app.starting = True
        assert (await ask(app, "/ready", "GET")).status == 503
        assert (await ask(app, "/health", "GET")).status == 200
        app.starting = False
        assert (await ask(app, "/ready", "GET")).status == 200


async def test_a_server_that_is_shutting_down_is_not_ready() -> None:
    async with application() as app:
        await app.end_streams()
        reply = await ask(app, "/ready", "GET")
        assert (reply.status, json.loads(reply.body)) == (503, {"ready": False})


async def test_health_probes_work_in_an_application_without_other_pages() -> None:
    async with HttpApp(MCPServer("bare"), HttpSettings()).running() as app:
        for path, body in (("/health", {"status": "ok"}), ("/ready", {"ready": True})):
            reply = await ask(app, path, "GET")
            assert (reply.status, json.loads(reply.body)) == (200, body)


async def test_an_allowed_origin_may_read_every_response() -> None:
    async with application(allowed_origins=("https://page.example",)) as app:
        origin = (b"origin", b"https://page.example")
        for path in ("/mcp", "/other"):
            reply = await ask(app, path, "POST", origin)
            assert reply.headers["access-control-allow-origin"] == "https://page.example"
        assert (
            await ask(app, "/other", "POST", (b"origin", b"https://evil.example"))
        ).status == 403


async def test_paths_of_the_legacy_transport_can_be_disabled() -> None:
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
async def test_asgi_lifespan_events_are_answered(
    fails: str | None, told: list[dict[str, Any]]
) -> None:
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


async def test_the_first_request_starts_the_server() -> None:
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


class Pages:
    """Handler for other paths that waits until the test sets an event."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.begun = asyncio.Event()
        self.served: list[tuple[str, Any]] = []

    async def serve(self, call: AsgiCall, path: str, principal: Any) -> None:
        self.served.append((path, principal))
        self.begun.set()
        if self.fails is not None:
            raise self.fails
        await asyncio.Event().wait()


async def test_a_request_interrupted_by_the_shutdown_is_answered_with_500() -> None:
    pages = Pages()
    app = HttpApp(MCPServer("s"), HttpSettings(), pages=pages)
    async with app.running():
        first = asyncio.create_task(ask(app, "/api/page", "GET", root_path="/api"))
        await pages.begun.wait()
        assert pages.served == [("/page", ANONYMOUS)]
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        pages.begun.clear()
        second = asyncio.create_task(ask(app, "/page", "GET"))
        await pages.begun.wait()
        await app.edge.close()
        second.cancel()
        reply = await second
    assert (reply.status, "retry-after" in reply.headers) == (500, False)
    assert (
        reply.body
        == b"500 Internal Server Error: the server was stopped before it completed the request\n"
    )


async def test_a_body_that_arrives_too_slowly_is_answered_with_408() -> None:
    app = HttpApp(MCPServer("s"), HttpSettings(), pages=Pages(BodyTimeout()))
    async with app.running():
        reply = await ask(app, "/page", "POST")
    assert reply.status == 408


async def test_a_disconnected_client_gets_no_response() -> None:
    app = HttpApp(MCPServer("s"), HttpSettings(), pages=Pages(ChannelClosed("gone")))
    async with app.running():
        with pytest.raises(IndexError):  # `ask` fails because no response was sent
            await ask(app, "/page", "POST")


@pytest.mark.parametrize(
    ("path", "method", "status", "words"),
    [
        ("/sse", "POST", 405, b"use GET to open the stream"),
        ("/messages", "GET", 405, b"use POST to send messages"),
        ("/messages", "POST", 404, b"session"),
    ],
)
async def test_the_legacy_transport_has_its_own_paths(
    path: str, method: str, status: int, words: bytes
) -> None:
    pages = Pages(ChannelClosed("not for pages"))
    app = HttpApp(MCPServer("s"), HttpSettings(), pages=pages)
    async with app.running():
        reply = await ask(app, path, method)
    assert reply.status == status
    assert words in reply.body
    assert pages.served == []


async def test_streams_of_every_transport_end_when_the_server_stops() -> None:
    server = MCPServer("s")
    app = HttpApp(server, HttpSettings())
    sent: dict[str, list[Any]] = {"sse": [], "ws": [], "listen": []}
    begun = {kind: asyncio.Event() for kind in sent}
    listen = {"notifications": {"toolsListChanged": True}, "_meta": META}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen}
    first = {
        "sse": {"type": "http.request", "body": b""},
        "ws": {"type": "websocket.connect"},
        "listen": {"type": "http.request", "body": json.dumps(body).encode()},
    }

    def start(kind: str, **scope: Any) -> asyncio.Task[None]:
        events = [first[kind]]

        async def receive() -> Any:
            if not events:
                await asyncio.Event().wait()
            return events.pop()

        async def send(event: Any) -> None:
            sent[kind].append(event)
            if event.get("body") or event["type"] == "websocket.accept":
                begun[kind].set()

        headers = {**JSON, "mcp-method": "subscriptions/listen"}
        fields = [(name.encode(), text.encode()) for name, text in headers.items()]
        return asyncio.create_task(
            app({"headers": fields, "client": ("127.0.0.1", 5), **scope}, receive, send)
        )

    async with app.running():
        tasks = [
            start("sse", type="http", method="GET", path="/sse"),
            start("ws", type="websocket", path="/ws"),
            start("listen", type="http", method="POST", path="/mcp"),
        ]
        async with asyncio.timeout(5):
            for event in begun.values():
                await event.wait()
            assert [task.done() for task in tasks] == [False] * 3
            await app.end_streams()
            await asyncio.wait(tasks)
    assert [task.exception() for task in tasks] == [None] * 3
    assert sent["sse"][-1].get("more_body", False) is False
    assert (sent["ws"][-1]["type"], sent["ws"][-1]["code"]) == ("websocket.close", 1001)
    told = b"".join(event.get("body", b"") for event in sent["listen"])
    assert b'"resultType":"complete"' in told


async def test_the_first_websocket_starts_the_server() -> None:
    opened: list[str] = []

    @contextlib.asynccontextmanager
    async def open_all(server: MCPServer) -> AsyncIterator[None]:
        opened.append("opened")
        yield
        opened.append("closed")

    app, sent = HttpApp(MCPServer("s", lifespan=open_all), HttpSettings()), list[Any]()

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(event: Any) -> None:
        sent.append(event)

    for _ in range(2):
        scope = {"type": "websocket", "path": "/nowhere", "headers": [(b"host", b"localhost")]}
        await app(scope, receive, send)
    assert opened == ["opened"]
    assert sent
    await app.close()
    assert opened == ["opened", "closed"]


async def test_running_an_application_opens_and_closes_its_server() -> None:
    opened: list[str] = []

    @contextlib.asynccontextmanager
    async def open_all(server: MCPServer) -> AsyncIterator[None]:
        opened.append("opened")
        yield
        opened.append("closed")

    app = HttpApp(MCPServer("s", lifespan=open_all), HttpSettings())
    async with app.running():
        assert opened == ["opened"]
        assert (await ask(app, "/mcp")).status == 200
        assert app.edge.ending is False
    assert opened == ["opened", "closed"]
    assert app.edge.ending is True


async def test_removing_an_endpoint_closes_its_sessions() -> None:
    ended: list[str] = []

    class Other(MCPServer):
        async def end_streams(self) -> None:
            ended.append(self.name)

    first = Other("first")
    app = HttpApp(MCPServer("s"), HttpSettings(), others={"/first": first})
    async with app.running():
        assert (await ask(app, "/first")).status == 200
        app.add("/second", Other("second"))
        edge = app.edges["/first"]
        assert edge.ending is False
        await app.remove("/first")
        assert edge.ending is True
    assert ended == ["second"]


@pytest.mark.parametrize(
    ("token", "hidden", "status"),
    [
        ("right", False, 200),
        ("right", True, 404),
        ("wrong", True, 401),
        ("wrong", False, 401),
    ],
)
async def test_an_endpoint_may_be_hidden_from_clients_with_certain_tokens(
    token: str, hidden: bool, status: int
) -> None:
    class Other(MCPServer):
        @staticmethod
        def hides(principal: Any) -> bool:
            return hidden

    app = HttpApp(MCPServer("s"), HttpSettings(auth_token="right"), others={"/o": Other("o")})
    async with app.running():
        reply = await ask(app, "/o", "POST", (b"authorization", f"Bearer {token}".encode()))
    assert reply.status == status


async def test_the_token_of_an_application_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    token = "a-long-token-of-this-test"
    async with application(auth_token=token):
        logging.getLogger("fairlead.server").warning("said %s", token)
    assert token not in caplog.text
    assert "said " in caplog.text
