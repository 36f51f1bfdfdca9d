"""A web server whose responses a test controls byte by byte, and a peer that uses it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fairlead.errors import ChannelClosed
from fairlead.interceptor import Answer, Exchange
from fairlead.peer import Peer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.conversation.era_probe import judge_discover, judge_initialize
from fairlead.protocol.outgoing_params import Identity
from fairlead.protocol.revisions import Revision
from fairlead.transport.channel import Channel
from fairlead.transport.http.client.http_channel import HttpChannel
from fairlead.wire import Notification, Success

SESSION = "0123-session"


class Call:
    """One HTTP request, with methods that answer it."""

    def __init__(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self._reader, self._writer = reader, writer

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}  # type: ignore[no-any-return]

    @property
    def rpc(self) -> str:
        """Return the method of the message, or the HTTP method if the body is empty."""
        return self.message.get("method", self.method)  # type: ignore[no-any-return]

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, status: int = 200, body: bytes | str = b"", **headers: str) -> None:
        """Send a whole response; header names are written with underscores."""
        body = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        await self.raw("\r\n".join(lines).encode() + body)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        headers = {"Content_Type": "application/json", **headers}
        await self.answer(status, json.dumps(value), **headers)

    async def result(self, result: Any, **headers: str) -> None:
        await self.json({"jsonrpc": "2.0", "id": self.message["id"], "result": result}, **headers)

    async def accept(self) -> None:
        await self.answer(202)

    async def begin_events(self, **headers: str) -> None:
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.raw("\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, message: Any, *, event: str = "", id: str = "", retry: str = "") -> None:
        text = "".join(
            f"{name}: {value}\n"
            for name, value in (("event", event), ("id", id), ("retry", retry))
            if value
        )
        data = message if isinstance(message, str) else json.dumps(message)
        await self.chunk(f"{text}data: {data}\n\n".encode())

    async def result_event(self, result: Any, **fields: str) -> None:
        await self.event({"jsonrpc": "2.0", "id": self.message["id"], "result": result}, **fields)

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()

    async def gone(self) -> None:
        """Wait until the client closes the connection."""
        while await self._reader.read(1 << 16):
            pass


Handler = Callable[[Call], Awaitable[None]]


class RawServer:
    """A server that records its calls in order."""

    def __init__(self, handler: Handler) -> None:
        self.calls: list[Call] = []
        self.port = 0
        self.connections = 0
        self.open = 0
        self.most_open = 0
        self._handler = handler
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def of(self, rpc: str) -> list[Call]:
        return [call for call in self.calls if call.rpc == rpc]

    async def wait_for(self, rpc: str, count: int = 1) -> Call:
        """Wait for the call number `count` of that method."""
        async with asyncio.timeout(10), self._news:
            await self._news.wait_for(lambda: len(self.of(rpc)) >= count)
        return self.of(rpc)[count - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while (call := await _read_call(reader, writer)) is not None:
                async with self._news:
                    self.calls.append(call)
                    self._news.notify_all()
                await self._handler(call)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    async def stop(self) -> None:
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _read_call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Call | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {n.strip().lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Call(method, path, headers, body, reader, writer)


@contextlib.asynccontextmanager
async def raw_server(handler: Handler, path: str | None = None) -> AsyncIterator[RawServer]:
    """Serve on a free port, or on a unix socket."""
    served = RawServer(handler)
    if path is not None:
        server = await asyncio.start_unix_server(served.serve, path)
    else:
        server = await asyncio.start_server(served.serve, "127.0.0.1", 0, limit=1 << 26)
        served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        await served.stop()


def handshake_server(rest: Handler, *, session: str | None = SESSION) -> Handler:
    """Return a handler that answers the handshake and rejects GET; `rest` handles other calls."""

    async def handle(call: Call) -> None:
        if call.rpc == "initialize":
            headers = {"Mcp_Session_Id": session} if session else {}
            await call.result(
                {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "resources": {"subscribe": True}},
                    "serverInfo": {"name": "raw", "version": "1"},
                },
                **headers,
            )
        elif call.rpc == "server/discover":
            await call.answer(400, "what is that?")
        elif call.rpc in ("notifications/initialized", "notifications/cancelled"):
            await call.accept()
        elif call.rpc == "GET" and "last-event-id" not in call.headers:
            await call.answer(405)
        elif call.rpc == "DELETE":
            await call.answer(200)
        else:
            await rest(call)

    return handle


def handshake_server_with_listening(rest: Handler) -> Handler:
    """Return a handler like `handshake_server`, except that `rest` also handles GET."""
    inner = handshake_server(rest)

    async def handle(call: Call) -> None:
        await (rest(call) if call.rpc == "GET" else inner(call))

    return handle


def stateless_server(rest: Handler) -> Handler:
    """Return a handler that answers `server/discover`; `rest` handles other calls."""

    async def handle(call: Call) -> None:
        if call.rpc == "server/discover":
            await call.result(
                {
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "ttlMs": 0,
                    "cacheScope": "public",
                }
            )
        else:
            await rest(call)

    return handle


class Host:
    """Recorder of the notifications and errors that a client reports, and of its end."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Notification] = asyncio.Queue()
        self.errors: list[Exception] = []
        self.ends: list[ChannelClosed] = []

    async def answer(self, exchange: Exchange) -> Answer:
        return b'{"roots":[]}'


@contextlib.asynccontextmanager
async def peer_over(channel: Channel, host: Host | None = None) -> AsyncIterator[Peer]:
    """Run a peer on a channel, without opening the conversation."""
    host = host or Host()
    conversation = Conversation(
        ConversationRole.CLIENT, Identity({"name": "test", "version": "1"}), principal=ANONYMOUS
    )
    peer = Peer(
        channel,
        conversation,
        handler=host.answer,
        on_notification=host.told.put_nowait,
        on_error=host.errors.append,
        on_close=host.ends.append,
    )
    peer.start()
    try:
        async with asyncio.timeout(20):
            yield peer
    finally:
        await peer.close()


@contextlib.asynccontextmanager
async def connected(
    url: str, era: str = "handshake", host: Host | None = None, **options: Any
) -> AsyncIterator[tuple[Peer, HttpChannel]]:
    """Connect a peer over HTTP and open the conversation."""
    channel = HttpChannel(url, **options)
    async with peer_over(channel, host) as peer:
        await (shake_hands(peer) if era == "handshake" else discover(peer))
        yield peer, channel


async def shake_hands(peer: Peer, version: str = Revision.V2025_11_25) -> None:
    result = await peer.request(
        "initialize",
        {
            "protocolVersion": str(version),
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "test", "version": "1"},
        },
    )
    peer.conversation.set_agreement(judge_initialize(Success(0, result)))
    await peer.notify("notifications/initialized")


async def discover(peer: Peer) -> None:
    verdict = judge_discover(Success(0, await peer.request("server/discover", quiet=True)))
    peer.conversation.set_agreement(verdict)  # type: ignore[arg-type]


async def echo(call: Call) -> None:
    await call.result({"said": call.message.get("params")})


def progress(n: int) -> dict[str, Any]:
    params = {"level": "info", "data": n}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
