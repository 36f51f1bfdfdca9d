"""Tests of our server on a real port, with valid, unusual and hostile WebSocket clients."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from msgspec.json import decode as parse
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from fairlead import MCPServer
from fairlead.protocol.contracts import validate_tool_error, validate_tool_response
from fairlead.server.context.context import Context
from fairlead.transport.http.server.asgi import Scope
from fairlead.transport.http.server.http_settings import HttpSettings
from fairlead.transport.http.server.request_guard import RequestGuard
from fairlead.transport.websocket import websocket_endpoint as websocket_server
from fairlead.transport.websocket.websocket_channel import WebSocketClosed
from fairlead.transport.websocket.websocket_endpoint import WebSocketEndpoint

VERSION, CAPABILITIES = (
    f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientCapabilities")
)
META = {"_meta": {VERSION: "2026-07-28", CAPABILITIES: {}}}


class Busy(MCPServer):
    """A server whose tools signal their progress to the test."""

    def __init__(self) -> None:
        super().__init__("sockets")
        self.waiting = asyncio.Event()
        self.wait_ended = asyncio.Event()
        self.repeated = asyncio.Semaphore(0)


def make_server() -> Busy:
    server = Busy()

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def quiet() -> None:
        pass

    @server.tool()
    async def repeat(text: str, times: int) -> str:
        server.repeated.release()
        return text * times

    @server.tool()
    async def ask(ctx: Context) -> Any:
        return await ctx.sample("What now?")

    @server.tool()
    async def wait() -> None:
        server.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.wait_ended.set()

    return server


@contextlib.asynccontextmanager
async def serving(server: MCPServer | None = None, **options: Any) -> AsyncIterator[str]:
    """Yield the URL of the WebSocket endpoint of a server on its own port."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        (server or make_server()).run_http(port=0, started=url.set_result, **options)
    )
    try:
        await asyncio.wait((task, url), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield url.result().replace("http://", "ws://").replace("/mcp", "/ws")
    finally:
        task.cancel()
        await asyncio.wait((task,))


@contextlib.asynccontextmanager
async def stranger(url: str, **options: Any) -> AsyncIterator["Stranger"]:
    options.setdefault("subprotocols", [Subprotocol("mcp")])
    async with connect(url, max_size=None, proxy=None, **options) as connection:
        yield Stranger(connection)


class Stranger:
    """A client that sends exactly the given frames."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, frame: str | bytes | Mapping[str, Any]) -> None:
        await self.connection.send(json.dumps(frame) if isinstance(frame, Mapping) else frame)

    async def hear(self) -> Any:
        async with asyncio.timeout(10):
            return parse(await self.connection.recv())

    async def ask(self, frame: str | bytes | Mapping[str, Any]) -> Any:
        await self.say(frame)
        return await self.hear()

    async def end(self) -> tuple[int, str]:
        """Return the code and reason that the server closes with."""
        with pytest.raises(ConnectionClosed) as caught:
            async with asyncio.timeout(10):
                while True:
                    await self.connection.recv()
        assert caught.value.rcvd is not None
        return caught.value.rcvd.code, caught.value.rcvd.reason


def request(request_id: int | str, method: str, params: Mapping[str, Any] = META) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params)}


def call(request_id: int | str, name: str, **arguments: Any) -> dict[str, Any]:
    return request(request_id, "tools/call", {"name": name, "arguments": arguments, **META})


# JSON-RPC


@pytest.mark.covers("WSK-09")
async def test_a_stateless_request_needs_no_handshake() -> None:
    async with serving() as url, stranger(url) as client:
        assert client.connection.subprotocol == "mcp"
        # compression is off, so decompression bombs are impossible
        assert client.connection.protocol.extensions == []
        answer = await client.ask(call(1, "add", a=1, b=2))
        assert answer["id"] == 1
        assert answer["result"]["content"] == [{"type": "text", "text": "3"}]


async def test_a_client_that_offers_no_subprotocol_gets_none() -> None:
    async with serving() as url, stranger(url, subprotocols=None) as client:
        assert client.connection.subprotocol is None
        assert (await client.ask(request(1, "server/discover")))["id"] == 1


@pytest.mark.covers("WSK-05")
async def test_a_websocket_handshake_request_selects_the_handshake_era() -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "stranger", "version": "1"},
    }
    async with serving() as url, stranger(url) as client:
        answer = await client.ask(request(1, "initialize", hello))
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        await client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        listed = await client.ask(request("two", "tools/list", {}))
        assert {tool["name"] for tool in listed["result"]["tools"]} >= {"add", "repeat"}


async def test_paths_other_than_the_configured_one_have_no_websocket() -> None:
    async with serving() as url:
        with pytest.raises(InvalidStatus) as caught:
            async with stranger(url.replace("/ws", "/elsewhere")):
                pass
        assert caught.value.response.status_code == 404
    async with serving(ws_path=None) as url:
        with pytest.raises(InvalidStatus) as caught:
            async with stranger(url):
                pass
        assert caught.value.response.status_code == 404


# Admission


@pytest.mark.covers("WSK-09")
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"origin": Origin("https://evil.example")}, 403),
        ({"origin": Origin("null")}, 403),
        ({"additional_headers": {"Host": "evil.example"}}, 403),
        ({"additional_headers": {"Host": "evil.example:80"}}, 403),
    ],
)
async def test_handshakes_with_other_origins_and_host_names_are_refused(
    options: dict[str, Any], status: int
) -> None:
    headers = options.get("additional_headers", {})
    async with serving() as url:
        answer = await upgrade(url, {**headers, **_origin(options)})
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert "allowed_" in answer


def _origin(options: dict[str, Any]) -> dict[str, str]:
    return {"Origin": options["origin"]} if "origin" in options else {}


async def upgrade(url: str, headers: Mapping[str, str], *more: tuple[str, str]) -> str:
    """Send a handshake with these headers over a socket and return the response."""
    reader, writer = await raw(url, headers, *more)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer.decode()


async def raw(
    url: str, headers: Mapping[str, str] | None = None, *more: tuple[str, str]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("ws://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
    fields = {
        "Host": f"{host}:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Version": "13",
        **(headers or {}),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in (*fields.items(), *more))
    writer.write(f"GET /ws HTTP/1.1\r\n{lines}\r\n".encode())
    return reader, writer


@pytest.mark.covers("WSK-09")
async def test_a_handshake_from_an_allowed_origin_is_admitted() -> None:
    async with (
        serving(allowed_origins=("https://app.example",)) as url,
        stranger(url, origin=Origin("https://app.example")) as client,
    ):
        assert (await client.ask(request(1, "server/discover")))["id"] == 1


@pytest.mark.covers("WSK-09")
async def test_a_token_is_required_if_one_is_configured() -> None:
    async with serving(auth_token="s3cret") as url:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            with pytest.raises(InvalidStatus) as caught:
                async with stranger(url, additional_headers=headers):
                    pass
            assert caught.value.response.status_code == 401
            assert caught.value.response.headers["www-authenticate"] == "Bearer"
        good = {"Authorization": "Bearer s3cret"}
        async with stranger(url, additional_headers=good) as client:
            assert (await client.ask(request(1, "server/discover")))["id"] == 1


class Hand:
    """A stand-in for an ASGI server that has no limits or checks."""

    def __init__(self, *headers: tuple[bytes, bytes], extensions: Mapping[str, Any] | None = None):
        self.scope: Scope = {
            "type": "websocket",
            "path": "/ws",
            "headers": [(b"host", b"127.0.0.1"), *headers],
            "server": ("127.0.0.1", 80),
            "subprotocols": ["mcp"],
            "extensions": extensions,
        }
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self.sent: list[Any] = []

    async def send(self, event: Any) -> None:
        self.sent.append(event)

    async def serve(self, accept: Any = None, **options: Any) -> None:
        settings = HttpSettings(**options)
        server = make_server()
        async with server.running(), asyncio.timeout(10):
            edge = WebSocketEndpoint(accept or server.attach, settings, RequestGuard(settings))
            await edge.serve(self.scope, self.inbox.get, self.send)


async def test_a_repeated_origin_header_is_refused() -> None:
    twice = (b"origin", b"http://localhost")
    hand = Hand(twice, twice, extensions={"websocket.http.response": {}})
    await hand.serve()
    assert hand.sent[0]["status"] == 400


async def test_an_asgi_server_without_the_extension_closes_the_handshake() -> None:
    hand = Hand((b"origin", b"https://evil.example"))
    await hand.serve()
    assert [(event["type"], event["code"]) for event in hand.sent] == [("websocket.close", 1008)]


# Invalid frames


@pytest.mark.covers("WSK-10")
async def test_invalid_frames_are_answered_and_the_connection_stays_open() -> None:
    async with serving() as url, stranger(url) as client:
        for frame, code, its_id in (
            ("this is not JSON", -32700, None),
            ("", -32700, None),
            ("42", -32600, None),
            ('{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
            ('{"jsonrpc":"2.0","id":8}', -32600, 8),
            ('{"id":9,"method":"ping"}', -32600, 9),
            ('{"name":"add"}', -32600, None),
        ):
            answer = await client.ask(frame)
            assert answer["error"]["code"] == code, frame
            assert answer.get("id") == its_id, frame
        assert (await client.ask(call(1, "add", a=1, b=1)))["result"]["content"]


@pytest.mark.covers("WSK-06")
async def test_keep_alive_frames_are_not_answered() -> None:
    async with serving() as url, stranger(url) as client:
        await client.say({"type": "ping"})
        await client.say({"type": "notification", "text": "hello"})
        await client.say({"jsonrpc": "2.0", "method": "notifications/of/our/own"})
        assert (await client.ask(call(5, "add", a=1, b=1)))["id"] == 5
        pong = await client.connection.ping()
        async with asyncio.timeout(10):
            await pong


# The tool-call dialect


@pytest.mark.covers("WSK-04", "DEC-07")
async def test_a_tool_call_frame_gets_a_response_frame() -> None:
    async with serving() as url, stranger(url) as client:
        answer = await client.ask({"id": 1, "name": "add", "arguments": {"a": 20, "b": 22}})
        assert validate_tool_response(answer).problems == ()
        assert answer["id"] == 1
        assert answer["result"]["content"] == [{"type": "text", "text": "42"}]
        assert "resultType" not in answer["result"]
        answer = await client.ask({"id": "b", "name": "quiet"})
        assert validate_tool_response(answer).problems == ()
        assert answer["id"] == "b"


@pytest.mark.covers("WSK-04")
async def test_the_response_to_a_failing_tool_call_frame_has_its_id() -> None:
    async with serving() as url, stranger(url) as client:
        for frame in (
            {"id": 3, "name": "no such tool"},
            {"id": 4, "name": "add", "arguments": [1, 2]},
            {"id": 5, "name": 17},
        ):
            answer = await client.ask(frame)
            assert validate_tool_error(answer).problems == ()
            assert (answer["id"], answer["error"]["code"]) == (frame["id"], -32602)
        wrong = await client.ask({"id": 6, "name": "add", "arguments": {"a": "x"}})
        assert wrong["id"] == 6
        assert wrong["result"]["isError"] is True
        asks = await client.ask({"id": 7, "name": "ask"})
        assert (asks["id"], "sampling" in json.dumps(asks)) == (7, True)
        for nameless in ({"name": "add"}, {"id": 1.5, "name": "add"}, {"id": None, "name": "add"}):
            answer = await client.ask(nameless)
            assert (answer["error"]["code"], answer.get("id")) == (-32600, None)


@pytest.mark.covers("DEC-07")
async def test_the_dialect_is_determined_separately_for_each_frame() -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "stranger", "version": "1"},
    }
    async with serving() as url, stranger(url) as client:
        first = await client.ask({"id": 1, "name": "add", "arguments": {"a": 1, "b": 1}})
        assert first["result"]["content"][0]["text"] == "2"
        assert (await client.ask(request(1, "initialize", hello)))["result"]["serverInfo"]
        await client.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        second = await client.ask({"id": 1, "name": "add", "arguments": {"a": 2, "b": 2}})
        assert second["result"]["content"][0]["text"] == "4"
        third = await client.ask(call(1, "add", a=3, b=3))
        assert third["result"]["resultType"] == "complete"


# Ends


@pytest.mark.covers("WSK-08")
async def test_each_reason_for_closing_has_its_own_close_code() -> None:
    async with serving(max_body=2000, max_sockets=1) as url:
        async with stranger(url) as client:
            async with stranger(url) as second:
                assert (await second.end())[0] == 1013
            await client.say(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
            assert (await client.end())[0] == 1003
        async with stranger(url) as client:
            await client.say(json.dumps(call(1, "add", a="x" * 2000)))
            assert (await client.end())[0] == 1009
        async with stranger(url) as client:
            await client.connection.close()
            assert client.connection.close_code == 1000


@pytest.mark.covers("WSK-08")
async def test_a_malformed_websocket_frame_closes_with_a_protocol_error() -> None:
    async with serving() as url:
        reader, writer = await raw(url)
        async with asyncio.timeout(10):
            await reader.readuntil(b"\r\n\r\n")
            # Clients must mask their frames, and this frame is not masked.
            writer.write(b"\x81\x02{}")
            answer = await reader.read()
        writer.close()
        assert answer[0] == 0x88
        assert int.from_bytes(answer[2:4], "big") == 1002


@pytest.mark.covers("WSK-08")
async def test_a_server_that_shuts_down_closes_with_1001() -> None:
    server = make_server()
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(server))
        async with stranger(url) as client:
            await client.say(call(1, "wait"))
            await server.waiting.wait()
            await stack.aclose()
            assert await client.end() == (1001, "the server is shutting down")
            assert server.wait_ended.is_set()


@pytest.mark.covers("WSK-08")
async def test_a_websocket_is_closed_with_1011_if_serving_fails() -> None:
    def broken(channel: Any) -> Any:
        raise RuntimeError("out of order")

    hand = Hand()
    await hand.serve(broken)
    assert [event["type"] for event in hand.sent] == ["websocket.accept", "websocket.close"]
    assert hand.sent[1]["code"] == 1011


@pytest.mark.covers("WSK-08")
async def test_the_message_limit_applies_even_if_the_asgi_server_has_none() -> None:
    hand = Hand()
    hand.inbox.put_nowait({"type": "websocket.receive", "text": "ü" * 501})
    await hand.serve(max_body=1000)
    assert hand.sent[-1]["code"] == 1009


async def test_a_disconnected_client_cancels_its_calls() -> None:
    server = make_server()
    async with serving(server) as url, stranger(url) as client:
        await client.say(call(1, "wait"))
        await client.say({"id": 2, "name": "wait"})
        await server.waiting.wait()
        client.connection.transport.abort()
        async with asyncio.timeout(10):
            await server.wait_ended.wait()


# A slow reader


async def flood(
    server: Busy, url: str, count: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect a client that requests a megabyte `count` times and reads nothing.

    Return when some calls have started; their number depends on the sizes of socket buffers.
    """
    reader, writer = await raw(url)
    await reader.readuntil(b"\r\n\r\n")
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    for number in range(count):
        frame = json.dumps(call(number, "repeat", text="x" * 1024, times=1024))
        writer.write(masked(frame.encode()))
    for _ in range(3):
        await server.repeated.acquire()
    return reader, writer


async def test_a_client_that_reads_late_gets_all_responses() -> None:
    """The responses exceed the write queue: the server stops reading and resumes when there is
    room.
    """
    server = make_server()
    async with serving(server) as url, asyncio.timeout(30):
        reader, writer = await flood(server, url, 60)
        reader._transport.resume_reading()  # type: ignore[attr-defined]
        seen: set[int] = set()
        while len(seen) < 60:
            seen.add(parse(await read_frame(reader))["id"])
        assert seen == set(range(60))
        writer.close()


async def test_a_client_that_does_not_read_does_not_delay_other_clients() -> None:
    server = make_server()
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(30):
        url = await stack.enter_async_context(serving(server))
        _, writer = await flood(server, url, 60)
        async with stranger(url) as other:
            answer = await other.ask(call(1, "add", a=1, b=2))
            assert answer["result"]["content"][0]["text"] == "3"
        async with asyncio.timeout(10):
            await stack.aclose()
        writer.close()


def masked(payload: bytes) -> bytes:
    """Return a text frame as sent by a client, with a mask of zeros."""
    size = len(payload)
    head = b"\x81" + bytes([0x80 | 126]) + size.to_bytes(2, "big")
    assert 125 < size < 1 << 16
    return head + b"\0\0\0\0" + payload


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    while True:
        first, second = await reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await reader.readexactly(8), "big")
        payload = await reader.readexactly(size)
        if first == 0x81:
            return payload


# An ASGI server's socket


class Events:
    """The send and receive callables of an ASGI server, with recorded events."""

    def __init__(self, *events: dict[str, Any], fails: Exception | None = None) -> None:
        self.incoming = list(events)
        self.sent: list[Any] = []
        self.socket = websocket_server._AsgiSocket(self._receive, self._send)
        self._fails = fails

    async def _receive(self) -> dict[str, Any]:
        return self.incoming.pop(0)

    async def _send(self, event: Any) -> None:
        if self._fails is not None:
            raise self._fails
        self.sent.append(event)


async def test_asgi_events_are_translated_to_frames() -> None:
    events = Events(
        {"type": "websocket.receive", "text": "a"},
        {"type": "websocket.receive", "text": None, "bytes": b"b"},
        {"type": "websocket.receive", "text": ""},
    )
    assert [await events.socket.receive() for _ in range(3)] == ["a", b"b", ""]
    await events.socket.send("ü".encode())
    assert events.sent == [{"type": "websocket.send", "text": "ü"}]
    assert events.socket.open


@pytest.mark.parametrize(
    ("event", "code", "reason"),
    [
        ({"code": 1001, "reason": "bye"}, 1001, "bye"),
        ({"code": 1000, "reason": None}, 1000, ""),
        ({}, 1005, ""),
    ],
)
async def test_an_asgi_disconnect_event_closes_the_socket(
    event: dict[str, Any], code: int, reason: str
) -> None:
    events = Events({"type": "websocket.disconnect", **event})
    with pytest.raises(WebSocketClosed) as gone:
        await events.socket.receive()
    assert (gone.value.code, gone.value.reason) == (code, reason)
    assert not events.socket.open
    await events.socket.close(1000, "")
    assert events.sent == [], "no close event after a disconnect"


async def test_an_asgi_socket_is_closed_once_with_a_shortened_reason() -> None:
    events = Events()
    await events.socket.close(1008, "é" * 61)
    await events.socket.close(1000, "again")
    assert events.sent == [{"type": "websocket.close", "code": 1008, "reason": "é" * 60}]
    assert not events.socket.open


@pytest.mark.parametrize("failure", [OSError("broken"), RuntimeError("closed there")])
async def test_a_failed_write_closes_the_websocket(failure: Exception) -> None:
    events = Events(fails=failure)
    with pytest.raises(WebSocketClosed) as gone:
        await events.socket.send(b"x")
    assert (gone.value.code, gone.value.reason) == (1006, str(failure))
    assert not events.socket.open


@pytest.mark.parametrize(
    ("members", "aside"),
    [
        ({"type": "ping"}, True),
        ({"type": "ping", "id": 1}, False),
        ({"type": "x", "method": "y"}, False),
        ({"type": "x", "jsonrpc": "2.0"}, False),
        ({"other": 1}, False),
    ],
)
def test_keep_alive_frames_of_some_clients_are_recognized(
    members: dict[str, Any], aside: bool
) -> None:
    assert websocket_server._is_aside(members) is aside
