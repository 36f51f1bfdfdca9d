"""Tests of WebSocket clients, with our own server and with misbehaving servers."""

import asyncio
import contextlib
import datetime
import ipaddress
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec import Raw
from msgspec.json import decode as parse
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.frames import Close
from websockets.http11 import Request as Handshake
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol

from fairlead import MCPServer
from fairlead.errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    HttpError,
    RemoteProtocolError,
    RequestTimeout,
    RpcError,
)
from fairlead.interceptor import Answer, Exchange
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Agreement, Conversation, ConversationRole
from fairlead.protocol.envelope import TransportContext
from fairlead.protocol.outgoing_params import Identity
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.server.context.context import Context
from fairlead.transport.channel import Incoming
from fairlead.transport.line_channel import HIGH_WATER
from fairlead.transport.websocket import websocket_channel as outbox
from fairlead.transport.websocket import websocket_client as client_module
from fairlead.transport.websocket.websocket_channel import (
    FLOOD,
    WebSocketChannel,
    WebSocketClientChannel,
    WebSocketClosed,
)
from fairlead.transport.websocket.websocket_client import connect_websocket
from fairlead.wire import Notification, Request, Success

HELLO: dict[str, Any] = {
    "protocolVersion": NEWEST_HANDSHAKE.value,
    "capabilities": {"sampling": {}},
    "clientInfo": {"name": "test", "version": "1"},
}
IDENTITY = Identity({"name": "test", "version": "1"}, {"sampling": {}})


# Our own server


def make_server() -> MCPServer:
    server = MCPServer("sockets")

    @server.tool()
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.progress(1, 2)
        return a + b

    @server.tool()
    async def think(ctx: Context) -> str:
        answer = await ctx.sample("What now?", max_tokens=10)
        return str(answer["content"])

    @server.tool()
    async def stay() -> None:
        await asyncio.Event().wait()

    return server


@contextlib.asynccontextmanager
async def our_server(**options: Any) -> AsyncIterator[str]:
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(make_server().run_http(port=0, started=url.set_result, **options))
    try:
        await asyncio.wait((task, url), return_when=asyncio.FIRST_COMPLETED)
        yield url.result().replace("http", "ws", 1).replace("/mcp", "/ws")
    finally:
        task.cancel()
        await asyncio.wait((task,))


@contextlib.asynccontextmanager
async def peer_at(url: str, **options: Any) -> AsyncIterator[Peer]:
    """Yield a peer on a client channel, before the handshake."""
    settings = {name: options.pop(name) for name in ("handler", "on_error") if name in options}
    told: asyncio.Queue[Notification] = asyncio.Queue()
    channel = await connect_websocket(url, proxy=None, **options)
    peer = Peer(
        channel,
        Conversation(ConversationRole.CLIENT, IDENTITY, principal=ANONYMOUS),
        on_notification=told.put_nowait,
        **settings,
    )
    peer.told = told  # type: ignore[attr-defined]
    peer.start()
    try:
        yield peer
    finally:
        await peer.close()


async def introduce(peer: Peer, revision: Revision) -> None:
    if revision.stateless:
        found = parse(await peer.request("server/discover"))
        assert revision.value in found["supportedVersions"]
        peer.conversation.set_agreement(Agreement(revision=revision))
    else:
        known = parse(await peer.request("initialize", HELLO))
        assert known["protocolVersion"] == revision.value
        peer.conversation.set_agreement(Agreement(revision=revision))
        await peer.notify("notifications/initialized")


@pytest.mark.covers("WSK-01", "WSK-05")
@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST], ids=str)
async def test_requests_of_both_eras_work_over_one_websocket_endpoint(
    revision: Revision, loop_kind: str
) -> None:
    async with our_server() as url, peer_at(url) as peer:
        await introduce(peer, revision)
        progress: list[Any] = []
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        result = parse(
            await peer.request("tools/call", params, on_progress=lambda *p: progress.append(p))
        )
        assert result["content"] == [{"type": "text", "text": "3"}]
        assert len(progress) == 1
        with pytest.raises(RpcError) as caught:
            await peer.request("tools/call", {"name": "no such tool"})
        assert caught.value.code == -32602


@pytest.mark.covers("WSK-05")
async def test_a_server_sends_requests_over_the_same_socket() -> None:
    async def answer(exchange: Exchange) -> Answer:
        assert exchange.method == "sampling/createMessage"
        said = {"type": "text", "text": "lunch"}
        return json.dumps({"role": "assistant", "content": said, "model": "m"}).encode()

    async with our_server() as url, peer_at(url, handler=answer) as peer:
        await introduce(peer, NEWEST_HANDSHAKE)
        result = parse(await peer.request("tools/call", {"name": "think", "arguments": {}}))
        assert "lunch" in result["content"][0]["text"]


@pytest.mark.covers("WSK-03")
async def test_concurrent_calls_get_their_own_responses() -> None:
    async with our_server() as url, peer_at(url) as peer:
        await introduce(peer, NEWEST)

        async def add(n: int) -> int:
            params = {"name": "add", "arguments": {"a": n, "b": n}}
            return int(parse(await peer.request("tools/call", params))["content"][0]["text"])

        staying = asyncio.create_task(peer.request("tools/call", {"name": "stay"}))
        assert await asyncio.gather(*map(add, range(50))) == [2 * n for n in range(50)]
        assert not staying.done()
        staying.cancel()


@pytest.mark.covers("WSK-07", "WSK-08")
async def test_pending_requests_fail_with_1001_when_the_server_shuts_down() -> None:
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(our_server())
        async with peer_at(url) as peer:
            await introduce(peer, NEWEST)
            staying = asyncio.create_task(peer.request("tools/call", {"name": "stay"}))
            # The response shows that the earlier call has arrived.
            assert (await add_one(peer)) == "2"
            await stack.aclose()
            with pytest.raises(
                ChannelClosed, match=r"1001 \(going away\): the server is shutting down"
            ):
                await staying
            assert peer.channel.context.close_code == 1001
            assert not peer.channel.context.connected


async def add_one(peer: Peer) -> str:
    params = {"name": "add", "arguments": {"a": 1, "b": 1}}
    return str(parse(await peer.request("tools/call", params))["content"][0]["text"])


async def test_the_error_of_a_refused_connection_has_the_status_and_body() -> None:
    async with our_server(auth_token="s3cret") as url:
        with pytest.raises(HttpError, match="bearer token") as caught:
            await connect_websocket(url, proxy=None)
        assert caught.value.status == 401
        assert caught.value.www_authenticate == "Bearer"
        headers = {"Authorization": "Bearer s3cret"}
        async with peer_at(url, headers=headers) as peer:
            await introduce(peer, NEWEST)


# Other servers

Script = Callable[[ServerConnection], Awaitable[None]]


@contextlib.asynccontextmanager
async def their_server(script: Script, **options: Any) -> AsyncIterator[str]:
    options.setdefault("subprotocols", [Subprotocol("mcp")])
    async with serve(script, "127.0.0.1", 0, **options) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/mcp"


def success(request: Any, result: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})


@pytest.mark.covers("WSK-07")
@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (1000, "", r"Transport closed: WebSocket closed with 1000 \(normal\)$"),
        (1011, "boom", r"WebSocket closed with 1011 \(internal error\): boom$"),
        (4242, "my own", r"WebSocket closed with 4242: my own$"),
    ],
)
async def test_a_close_fails_pending_requests_with_code_and_reason(
    code: int, reason: str, said: str
) -> None:
    async def script(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.recv()
        await connection.close(code, reason)

    closed: list[ChannelClosed] = []
    async with their_server(script) as url:
        channel = await connect_websocket(url, proxy=None)
        peer = Peer(
            channel,
            Conversation(ConversationRole.CLIENT, IDENTITY, principal=ANONYMOUS),
            on_close=closed.append,
        )
        peer.start()
        asking = [asyncio.create_task(peer.request("server/discover")) for _ in range(2)]
        for task in asking:
            with pytest.raises(ChannelClosed, match=said):
                await task
        await peer.wait_closed()
        assert [str(end) for end in closed] == [str(peer.end)]
        assert channel.context.close_code == code
        with pytest.raises(ChannelClosed, match=said.removeprefix("Transport closed: ")) as late:
            await peer.request("server/discover")
        assert late.value.delivered is False
        await peer.close()


@pytest.mark.covers("WSK-07")
async def test_a_dropped_connection_is_reported_with_close_code_1006() -> None:
    async def script(connection: ServerConnection) -> None:
        await connection.recv()
        connection.transport.abort()

    async with their_server(script) as url, peer_at(url) as peer:
        with pytest.raises(ChannelClosed, match=r"1006 \(dropped without a close frame\)"):
            await peer.request("server/discover")
        assert peer.channel.context.close_code == 1006


@pytest.mark.covers("WSK-02")
async def test_sending_on_a_socket_that_is_not_open_fails() -> None:
    async def script(connection: ServerConnection) -> None:
        await connection.close(1001)

    async with their_server(script) as url:
        channel = await connect_websocket(url, proxy=None)
        closing = channel._socket._connection  # type: ignore[attr-defined]
        await closing.wait_closed()
        with pytest.raises(ChannelClosed, match="WebSocket not open") as caught:
            channel.send(Request(1, "ping"))
        assert caught.value.delivered is False
        await channel.close()
        with pytest.raises(ChannelClosed, match="Transport closed"):
            channel.send(Request(2, "ping"))


@pytest.mark.covers("WSK-06")
async def test_unknown_and_invalid_frames_of_a_server_do_not_end_the_connection() -> None:
    async def script(connection: ServerConnection) -> None:
        request = parse(await connection.recv())
        for _ in range(200):  # more than the limit on invalid lines from stdio servers
            await connection.send('{"type":"ping"}')
        await connection.send('{"type":"notification","method":"notifications/bare","params":{}}')
        await connection.send('{"unknown":true}')
        await connection.send("ping")
        await connection.send("[]")
        await connection.send(b"\x00\xff")
        await connection.send('{"jsonrpc":"2.0","id":999,"result":{}}')
        await connection.send('{"jsonrpc":"2.0","method":"notifications/known"}')
        pong = await connection.ping()
        await pong
        await connection.send(success(request, {"fine": True}))
        await connection.wait_closed()

    errors: list[Exception] = []
    async with their_server(script) as url, peer_at(url, on_error=errors.append) as peer:
        assert parse(await peer.request("server/discover")) == {"fine": True}
        told = peer.told  # type: ignore[attr-defined]
        assert (await told.get()).method == "notifications/bare"
        assert (await told.get()).method == "notifications/known"
        assert peer.malformed == 3
        assert peer.unmatched_count == 1
        assert all(isinstance(error, RemoteProtocolError) for error in errors)


async def test_a_request_timeout_leaves_the_connection_open() -> None:
    async def script(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with their_server(script) as url, peer_at(url) as peer:
        with pytest.raises(RequestTimeout):
            await peer.request("server/discover", timeout=0.05)
        assert peer.connected


async def test_a_message_over_the_limit_ends_the_connection() -> None:
    async def script(connection: ServerConnection) -> None:
        request = parse(await connection.recv())
        await connection.send(success(request, {"long": "x" * 5000}))
        await connection.wait_closed()

    async with their_server(script) as url, peer_at(url, max_size=4000) as peer:
        with pytest.raises(ChannelClosed, match=r"1009 \(message too big\)"):
            await peer.request("server/discover")


async def test_closing_the_client_sends_a_close_frame() -> None:
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def script(connection: ServerConnection) -> None:
        await connection.wait_closed()
        codes.put_nowait(connection.close_code)

    async with their_server(script) as url:
        async with peer_at(url):
            pass
        assert await codes.get() == 1000


# Opening


@pytest.mark.covers("WSK-01")
async def test_a_client_connects_over_tls_and_verifies_the_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make_certificate(key, certificate)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate, key)
    ours = ssl.create_default_context(cafile=str(certificate))
    async with our_server(tls=theirs) as url:
        assert url.startswith("wss://")
        async with peer_at(url, ssl=ours) as peer:
            await introduce(peer, NEWEST)
        with pytest.raises(ConnectFailed, match="certificate"):
            await connect_websocket(url, proxy=None)


def make_certificate(key: Path, certificate: Path) -> None:
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    place = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(place, critical=False)
        .sign(secret, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    key.write_bytes(secret.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    certificate.write_bytes(made.public_bytes(pem))


async def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(ConnectFailed, match=r"ws://mcp.example:81/"):
            await connect_websocket("ws://mcp.example:81/")
    assert asked == [b"CONNECT mcp.example:81 HTTP/1.1"]


@pytest.mark.covers("WSK-01")
async def test_connecting_fails_if_the_server_does_not_answer_the_handshake_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"ws://user:secret@127.0.0.1:{deaf.getsockname()[1]}/mcp?token=secret"
        with pytest.raises(ConnectFailed, match="WebSocket open timeout after 50ms") as caught:
            await connect_websocket(url, open_timeout=0.05, proxy=None)
        assert "secret" not in str(caught.value)


async def test_connecting_to_an_address_without_a_listener_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ConnectFailed, match="Could not connect to ws://127"):
        await connect_websocket(f"ws://127.0.0.1:{port}/", proxy=None)


@pytest.mark.parametrize("url", ["http://localhost/", "nonsense", "ws://[", "ws:///x"])
async def test_an_invalid_url_raises_a_config_error(url: str) -> None:
    with pytest.raises((ConfigError, ConnectFailed)):
        await connect_websocket(url, proxy=None)


async def test_headers_are_not_sent_to_another_origin_after_a_redirect() -> None:
    async def nobody(connection: ServerConnection) -> None:
        raise AssertionError("should not be reached")

    async with their_server(nobody) as elsewhere:

        def redirect(connection: ServerConnection, request: Handshake) -> Response:
            response = connection.respond(302, "")
            response.headers["Location"] = elsewhere
            return response

        async with their_server(nobody, process_request=redirect) as url:
            with pytest.raises(ConnectFailed, match="another origin"):
                await connect_websocket(url, headers={"X-Key": "secret"}, proxy=None)


async def test_a_server_without_subprotocols_is_accepted() -> None:
    async def script(connection: ServerConnection) -> None:
        request = parse(await connection.recv())
        assert connection.request is not None
        sent = connection.request.headers
        # Compression is off, so decompression bombs are impossible.
        assert "Sec-WebSocket-Extensions" not in sent
        await connection.send(success(request, {"offered": sent["Sec-WebSocket-Protocol"]}))
        await connection.wait_closed()

    async with their_server(script, subprotocols=None) as url, peer_at(url) as peer:
        assert parse(await peer.request("server/discover")) == {"offered": "mcp"}


# The tool-call dialect


async def handshaken(peer: Peer) -> None:
    with pytest.raises(RpcError) as caught:
        await peer.request("server/discover")
    assert caught.value.code == -32601
    await introduce(peer, NEWEST_HANDSHAKE)


@pytest.mark.covers("WSK-03", "WSK-04", "DEC-07")
async def test_each_tool_call_is_sent_as_a_frame_with_its_own_id() -> None:
    heard: list[Any] = []

    async def script(connection: ServerConnection) -> None:
        async for frame in connection:
            heard.append(parse(frame))
            if len(heard) == 3:
                for call in reversed(heard):
                    answer = {"content": [{"type": "text", "text": call["name"]}]}
                    await connection.send(success(call, answer))

    async with their_server(script) as url, peer_at(url, dialect="toolcall") as peer:
        await handshaken(peer)
        calls: list[dict[str, Any]] = [
            {"name": "a"},
            {"name": "b", "arguments": {"x": 1}},
            {"name": "c"},
        ]
        results = await asyncio.gather(*(peer.request("tools/call", call) for call in calls))
        assert [parse(result)["content"][0]["text"] for result in results] == ["a", "b", "c"]
        assert heard == [{"id": number, **call} for number, call in enumerate(calls, 1)]
        assert parse(await peer.request("ping")) == {}
        with pytest.raises(RpcError, match="cannot carry tools/list"):
            await peer.request("tools/list")


@pytest.mark.covers("WSK-04", "WSK-06")
async def test_responses_of_every_shape_are_matched_with_their_tool_call() -> None:
    async def script(connection: ServerConnection) -> None:
        async for frame in connection:
            call = parse(frame)
            its = json.dumps(call["id"])
            await connection.send('{"type":"ping"}')
            await connection.send('{"jsonrpc":"2.0","id":77,"result":{"content":[]}}')
            match call["name"]:
                case "bare":
                    await connection.send(f'{{"id":{its},"result":{{"content":[]}}}}')
                case "fails":
                    error = '{"code":-32602,"message":"no such tool"}'
                    await connection.send(f'{{"id":{its},"error":{error}}}')
                case "odd":
                    await connection.send(f'{{"id":{its},"error":"boom"}}')

    async with their_server(script) as url, peer_at(url, dialect="toolcall") as peer:
        await handshaken(peer)
        assert parse(await peer.request("tools/call", {"name": "bare"})) == {"content": []}
        with pytest.raises(RpcError, match="no such tool"):
            await peer.request("tools/call", {"name": "fails"})
        with pytest.raises(RemoteProtocolError):
            await peer.request("tools/call", {"name": "odd"})
        with pytest.raises(RequestTimeout):
            await peer.request("tools/call", {"name": "never"}, timeout=0.05)
        assert parse(await peer.request("tools/call", {"name": "bare"})) == {"content": []}


@pytest.mark.covers("DEC-07")
async def test_client_and_server_support_the_tool_call_dialect() -> None:
    async with our_server() as url, peer_at(url, dialect="toolcall") as peer:
        await handshaken(peer)
        assert await add_one(peer) == "2"
        with pytest.raises(RpcError) as caught:
            await peer.request("tools/call", {"name": "no such tool"})
        assert caught.value.code == -32602


# Limits, tested with a socket in memory whose other end reads when the test allows it


class Held:
    """A `WebSocketConnection` whose peer reads nothing until it is released."""

    def __init__(self) -> None:
        self.open = True
        self.reading = asyncio.Event()
        self.inbox: asyncio.Queue[str | WebSocketClosed] = asyncio.Queue()
        self.fault: Exception | None = None
        self.asked = 0
        self.taken: list[bytes] = []
        self.closed: list[tuple[int, str]] = []

    async def receive(self) -> str | bytes:
        self.asked += 1
        item = await self.inbox.get()
        if isinstance(item, WebSocketClosed):
            raise item
        return item

    async def send(self, frame: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        await self.reading.wait()
        self.taken.append(frame)

    async def close(self, code: int, reason: str) -> None:
        self.open = False
        self.closed.append((code, reason))

    def abort(self) -> None:
        self.open = False


CONTEXT = TransportContext(transport_type="websocket")
LARGE = Success(1, Raw(b'"%b"' % (b"x" * (HIGH_WATER // 2))))


async def turns() -> None:
    """Run all callbacks that are due."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_senders_wait_until_frames_are_written_and_all_frames_arrive() -> None:
    held = Held()
    channel = WebSocketChannel(CONTEXT, held)
    await channel.drain()
    for _ in range(3):
        channel.send(LARGE)
    assert channel.congested
    draining = asyncio.create_task(channel.drain())
    await turns()
    assert not draining.done()
    held.reading.set()
    await draining
    assert not channel.congested
    await channel.close()
    assert len(held.taken) == 3
    assert held.closed == [(1000, "")]


async def test_reading_stops_while_a_peer_does_not_read_responses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "HARD_LIMIT", 2 * HIGH_WATER)
    held = Held()
    channel = WebSocketChannel(CONTEXT, held)
    got: list[Incoming] = []
    running = asyncio.create_task(channel.run(got.append))
    for _ in range(5):
        channel.send(LARGE)
    held.inbox.put_nowait('{"jsonrpc":"2.0","method":"first"}')
    held.inbox.put_nowait('{"jsonrpc":"2.0","method":"second"}')
    await turns()
    assert held.asked == 0
    held.reading.set()
    await turns()
    assert got == [Notification("first"), Notification("second")]
    await channel.close()
    await running


@pytest.mark.covers("WSK-08")
async def test_a_peer_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "STALLED", 0.02)
    held = Held()
    channel = WebSocketChannel(CONTEXT, held)
    running = asyncio.create_task(channel.run(lambda _: None))
    for _ in range(3):
        channel.send(LARGE)
    with pytest.raises(ChannelClosed, match=r"1008 \(policy violation\): the peer does not read"):
        await running
    with pytest.raises(ChannelClosed):
        await channel.drain()
    await channel.close()
    assert held.closed == [(1008, "the peer does not read")]
    assert held.taken == []


async def test_a_queue_over_sixteen_times_the_limit_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "HARD_LIMIT", HIGH_WATER // 4)
    held = Held()
    channel = WebSocketChannel(CONTEXT, held)
    running = asyncio.create_task(channel.run(lambda _: None))
    with pytest.raises(ChannelClosed, match="too many bytes unread") as caught:
        for _ in range(FLOOD):
            channel.send(LARGE)
    assert caught.value.delivered is False
    with pytest.raises(ChannelClosed, match="too many bytes unread"):
        await running
    await channel.close()


async def test_a_failed_write_fails_later_sends_but_only_the_reader_ends_the_channel() -> None:
    held = Held()
    held.fault = WebSocketClosed(1006, "broken pipe")
    channel = WebSocketChannel(CONTEXT, held)
    running = asyncio.create_task(channel.run(lambda _: None))
    channel.send(LARGE)
    await turns()
    with pytest.raises(ChannelClosed, match="broken pipe"):
        channel.send(LARGE)
    assert not running.done()
    held.inbox.put_nowait(WebSocketClosed(1012, "back soon"))
    with pytest.raises(ChannelClosed, match=r"1012 \(restarting\): back soon"):
        await running
    await channel.close()


@pytest.mark.covers("WSK-08")
async def test_an_internal_failure_closes_the_websocket_with_1011() -> None:
    held = Held()
    held.fault = ValueError("a bug")
    channel = WebSocketChannel(CONTEXT, held)
    running = asyncio.create_task(channel.run(lambda _: None))
    channel.send(LARGE)
    with pytest.raises(ChannelClosed, match="1011"):
        await running
    await channel.close()
    assert held.closed == [(1011, "internal error")]


async def test_closing_takes_a_bounded_time_if_the_peer_does_not_read() -> None:
    held = Held()
    channel = WebSocketChannel(CONTEXT, held)
    channel.send(LARGE)
    async with asyncio.timeout(5):
        await asyncio.gather(channel.close(), channel.close())
    assert held.closed == [(1000, "")]
    await channel.run(lambda _: None)  # returns at once
    await channel.close()


async def test_frames_that_arrive_before_run_are_delivered_later() -> None:
    channel = WebSocketClientChannel(CONTEXT, Held())
    channel.take(b'{"jsonrpc":"2.0","method":"early"}')
    got: list[Incoming] = []
    running = asyncio.create_task(channel.run(got.append))
    await turns()
    assert got == [Notification("early")]
    await channel.close()
    await running


# Error messages


def _translated(exc: Exception) -> Exception:
    with pytest.raises(Exception) as caught:
        client_module._translate(exc, "ws://host/ws", 2.5)
    return caught.value


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (
            TimeoutError(),
            ConnectFailed,
            "WebSocket open timeout after 2500ms: ws://host/ws did not answer",
        ),
        (
            InvalidURI("x", "no scheme"),
            ConfigError,
            "ws://host/ws is not a WebSocket URL: no scheme",
        ),
        (
            InvalidHandshake("odd"),
            ConnectFailed,
            "ws://host/ws is not a WebSocket server: odd",
        ),
        (OSError("refused"), ConnectFailed, "Could not connect to ws://host/ws: refused"),
        (ValueError("bad"), ConnectFailed, "Could not connect to ws://host/ws: bad"),
        (KeyError("bug"), KeyError, "'bug'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_connection_errors_of_the_websocket_library_are_translated(
    raised: Exception, kind: type[Exception], text: str
) -> None:
    error = _translated(raised)
    assert type(error) is kind
    assert text in str(error)


def test_at_most_4096_bytes_of_a_refusal_body_are_kept() -> None:
    for size, kept in ((4096, 4096), (4097, 4096)):
        response = Response(403, "Forbidden", Headers({"X-Why": "no"}), b"x" * size)
        error = _translated(InvalidStatus(response))
        assert isinstance(error, HttpError)
        assert (error.status, len(error.body), error.headers["x-why"]) == (403, kept, "no")


@pytest.mark.parametrize(
    ("received", "sent", "received_first", "code", "reason"),
    [
        (Close(1001, "theirs"), Close(1000, "ours"), True, 1001, "theirs"),
        (Close(1001, "theirs"), Close(1000, "ours"), False, 1000, "ours"),
        (Close(1001, "theirs"), None, None, 1001, "theirs"),
        (None, Close(1000, "ours"), None, 1000, "ours"),
        (None, None, None, 1006, "broken pipe"),
    ],
)
def test_close_code_and_reason_come_from_the_first_close_frame(
    received: Close | None, sent: Close | None, received_first: bool | None, code: int, reason: str
) -> None:
    closed = ConnectionClosed(received, sent, received_first)
    closed.__cause__ = OSError("broken pipe")
    gone = client_module._gone(closed)
    assert (gone.code, gone.reason) == (code, reason)


def test_a_connection_lost_without_a_close_frame_has_no_reason() -> None:
    assert client_module._gone(ConnectionClosed(None, None)).reason == ""


class GoneConnection:
    """A stand-in for a closed connection of the `websockets` library."""

    def __init__(self) -> None:
        self.state = State.CLOSED
        self.aborted = 0
        self.transport = self
        self.error = ConnectionClosed(Close(1001, "bye"), None)

    async def recv(self) -> Any:
        raise self.error

    async def send(self, frame: bytes, text: bool) -> None:
        assert text
        raise self.error

    def abort(self) -> None:
        self.aborted += 1
        if self.aborted > 1:
            raise RuntimeError("the connection is being lost")


async def test_closed_connections_of_the_websocket_library_are_translated() -> None:
    gone: Any = GoneConnection()
    connection = client_module._LibraryConnection(gone)
    assert not connection.open
    for attempt in (connection.receive(), connection.send(b"{}")):
        with pytest.raises(WebSocketClosed) as closed:
            await attempt
        assert (closed.value.code, closed.value.reason) == (1001, "bye")
        assert closed.value.__cause__ is gone.error
    connection.abort()
    connection.abort()
    assert gone.aborted == 2
    gone.state = State.OPEN
    assert connection.open
