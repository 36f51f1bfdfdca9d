"""Tests of the WebSocket endpoint with ASGI events instead of a socket."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.server.http_app.app import HttpApp
from fairlead.transport.http.server.http_settings import HttpSettings

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}


class Client:
    """A WebSocket client whose ASGI events are sent and received by the test."""

    def __init__(self, app: HttpApp, *headers: tuple[bytes, bytes], **scope: Any) -> None:
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        self._events.put_nowait({"type": "websocket.connect"})
        self.scope = {
            "type": "websocket",
            "path": "/ws",
            "headers": [(b"host", b"localhost"), *headers],
            "client": ("10.0.0.1", 5),
            "extensions": {"websocket.http.response": {}},
            **scope,
        }
        self.task = asyncio.create_task(app(self.scope, self._events.get, self._send))

    async def _send(self, event: Any) -> None:
        self._sent.put_nowait(event)

    def say(self, **event: Any) -> None:
        self._events.put_nowait({"type": "websocket.receive", **event})

    def leave(self) -> None:
        self._events.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def next(self) -> Any:
        async with asyncio.timeout(5):
            return await self._sent.get()

    async def opened(self) -> "Client":
        assert (await self.next())["type"] == "websocket.accept"
        return self

    async def closed(self) -> tuple[int, str]:
        event = await self.next()
        assert event["type"] == "websocket.close", event
        async with asyncio.timeout(5):
            self.leave()
            await self.task
        return event["code"], event["reason"]

    async def refused(self) -> tuple[int, str]:
        start, body = await self.next(), await self.next()
        assert start["type"] == "websocket.http.response.start"
        await self.task
        return start["status"], body["body"].decode().partition(": ")[2].rstrip()


@contextlib.asynccontextmanager
async def application(**settings: Any) -> AsyncIterator[HttpApp]:
    app = HttpApp(MCPServer("s"), HttpSettings(**settings))
    async with app.running():
        yield app


async def test_a_client_is_served_until_it_disconnects() -> None:
    async with application() as app:
        client = await Client(app).opened()
        client.say(text=json.dumps(PING))
        answer = json.loads((await client.next())["text"])
        assert answer["id"] == 1
        assert "result" in answer
        assert len(app.sockets._open) == 1
        client.leave()
        async with asyncio.timeout(5):
            await client.task
        assert app.sockets._open == set()


@pytest.mark.parametrize(
    ("settings", "path", "root", "status", "text"),
    [
        ({}, "/ws", "", None, ""),
        ({}, "/ws/", "", None, ""),
        ({}, "/api/ws", "/api", None, ""),
        ({}, "/other", "", 404, "WebSockets are served at /ws"),
        ({"ws_path": None}, "/ws", "", 404, "WebSockets are not served here"),
        ({"ws_path": "/a/"}, "/a", "", None, ""),
        ({"auth_token": "x"}, "/ws", "", 401, None),
        ({"auth_token": "x"}, "/other", "", 401, None),
    ],
)
async def test_only_the_configured_path_has_a_websocket(
    settings: dict[str, Any], path: str, root: str, status: int | None, text: str | None
) -> None:
    async with application(**settings) as app:
        client = Client(app, path=path, root_path=root)
        if status is None:
            await client.opened()
            client.leave()
            await client.task
            return
        refused = await client.refused()
        assert refused[0] == status
        assert text is None or refused[1] == text


async def test_repeated_headers_for_access_control_are_rejected() -> None:
    async with application(allowed_origins=("https://a.example",)) as app:
        origin = (b"origin", b"https://a.example")
        client = await Client(app, origin, (b"x", b"1"), (b"x", b"2")).opened()
        client.leave()
        await client.task
        said = "host, origin, authorization and dpop headers must not be repeated"
        assert await Client(app, origin, origin).refused() == (400, said)
        assert await Client(app, (b"host", b"localhost")).refused() == (400, said)


async def test_a_refused_handshake_is_closed_if_the_response_extension_is_missing() -> None:
    async with application(ws_path=None) as app:
        for extensions in ({}, None):
            client = Client(app, extensions=extensions)
            assert await client.closed() == (1008, "WebSockets are not served here")


@pytest.mark.parametrize(
    ("event", "code", "reason"),
    [
        ({"bytes": b"{}"}, 1003, "messages must be text frames"),
        ({"text": "x" * 101}, 1009, "a message has at most 100 bytes"),
        ({"text": "ü" * 51}, 1009, "a message has at most 100 bytes"),
    ],
    ids=["bytes", "long", "long in bytes"],
)
async def test_an_invalid_websocket_frame_ends_the_connection(
    event: dict[str, Any], code: int, reason: str
) -> None:
    async with application(max_body=100) as app:
        client = await Client(app).opened()
        client.say(text="x" * 100)  # an invalid message, which is answered with an error
        assert "error" in (await client.next())["text"]
        client.say(**event)
        assert await client.closed() == (code, reason)


async def test_a_client_over_its_limit_is_refused_or_loses_a_connection() -> None:
    async with application(max_sockets=3, max_sockets_per_client=2) as app:
        clients = [await Client(app).opened() for _ in range(2)]
        third = await Client(app).opened()
        assert await third.closed() == (1013, "too many connections; try again later")
        other = await Client(app, client=("10.0.0.2", 5)).opened()
        assert len(app.sockets._open) == 3
        another = await Client(app, client=("10.0.0.3", 5)).opened()
        assert await clients[0].closed() == (1013, "this client has too many connections")
        for one in (clients[1], other, another):
            one.say(text=json.dumps(PING))
            assert "result" in json.loads((await one.next())["text"])
        assert len(app.sockets._open) == 3
        for one in (clients[1], other, another):
            one.leave()
            await one.task
        assert len(app.sockets._shares) == 0
        assert app.sockets._ending == set()


async def test_a_server_that_shuts_down_closes_its_connections_with_1001() -> None:
    async with application() as app:
        clients = [await Client(app).opened() for _ in range(2)]
        closing = asyncio.create_task(app.sockets.close())
        for client in clients:
            assert await client.closed() == (1001, "the server is shutting down")
        await closing
        await app.sockets.close()
        assert app.sockets._open == set()


async def test_keep_alive_frames_are_not_answered() -> None:
    async with application() as app:
        client = await Client(app).opened()
        client.say(text='{"type":"ping"}')
        client.say(text='{"type":"ping","id":1}')
        first = json.loads((await client.next())["text"])
        assert first["error"]["code"] == -32600
        client.leave()
        await client.task


async def test_a_refused_handshake_has_content_type_and_authenticate_headers() -> None:
    async with application(auth_token="x") as app:
        client = Client(app)
        start, body = await client.next(), await client.next()
        names = [name for name, _ in start["headers"]]
        assert names == [b"content-type", b"www-authenticate"], "the ASGI server sets the others"
        assert start["headers"][0][1] == b"text/plain; charset=utf-8"
        assert body["body"].startswith(b"401 Unauthorized: A valid bearer token")
        await client.task


@pytest.mark.parametrize(
    ("offered", "chosen"), [(["a", "mcp"], "mcp"), (["a"], None), ([], None), (None, None)]
)
async def test_the_subprotocol_is_selected_if_it_is_offered(
    offered: list[str] | None, chosen: str | None
) -> None:
    async with application() as app:
        client = Client(app, subprotocols=offered)
        assert await client.next() == {"type": "websocket.accept", "subprotocol": chosen}
        client.leave()
        await client.task


async def test_a_websocket_is_closed_with_1011_if_accept_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with application() as app:

        def fail(channel: Any, principal: Any) -> Any:
            raise ValueError("odd")

        app.sockets._accept = fail
        client = await Client(app).opened()
        assert await client.closed() == (1011, "internal error")
        assert "a WebSocket could not be served" in caplog.text
        assert app.sockets._open == set()
