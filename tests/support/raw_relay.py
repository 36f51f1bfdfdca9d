"""A relay between a raw client and a raw server, which exchange exact lines over sockets."""

import asyncio
import contextlib
import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from fairlead.gateway import Relay
from fairlead.protocol.caller import ANONYMOUS, Principal
from fairlead.transport.socket import connect_unix
from fairlead.upstream.server_target import ServerTarget
from tests.support.line_sockets import listen_unix

LIMIT = 5.0
STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
META = "io.modelcontextprotocol/"
SERVER_CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {},
    "logging": {},
}
ASKED = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def members(line: bytes | Raw) -> dict[str, bytes]:
    """Return the members of an object, each as its original text."""
    return {k: bytes(v) for k, v in msgspec.json.decode(line, type=dict[str, Raw]).items()}


class End:
    """One end of a connection that sends and reads raw lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._ids = itertools.count(100)
        self.skipped: list[dict[str, Any]] = []

    def send(self, message: bytes | str | dict[str, Any]) -> None:
        if isinstance(message, dict):
            message = json.dumps({"jsonrpc": "2.0", **message})
        data = message.encode() if isinstance(message, str) else message
        self._writer.write(data + b"\n")

    async def line(self) -> bytes:
        """Return the next line; empty if the other side has closed the connection."""
        async with asyncio.timeout(LIMIT):
            return (await self._reader.readline()).rstrip(b"\n")

    async def read(self) -> dict[str, Any]:
        line = await self.line()
        assert line, "the connection has ended"
        message: dict[str, Any] = json.loads(line)
        return message

    async def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the next message for which `wanted` is true; append others to `skipped`."""
        while True:
            message = await self.read()
            if wanted(message):
                return message
            self.skipped.append(message)

    async def method(self, name: str) -> dict[str, Any]:
        return await self.until(lambda message: message.get("method") == name)

    async def answer_to(self, request_id: Any) -> dict[str, Any]:
        return await self.until(lambda m: m.get("id") == request_id and "method" not in m)

    def ask(self, method: str, params: Any = None, request_id: Any = None) -> Any:
        request_id = next(self._ids) if request_id is None else request_id
        message = {"id": request_id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return request_id

    def reply(self, request: dict[str, Any], result: Any) -> None:
        self.send({"id": request["id"], "result": result})

    def refuse(self, request: dict[str, Any], code: int, message: str, data: Any = None) -> None:
        error = {"code": code, "message": message}
        self.send(
            {"id": request["id"], "error": error if data is None else {**error, "data": data}}
        )

    def tell(self, method: str, params: Any = None) -> None:
        self.send({"method": method} if params is None else {"method": method, "params": params})

    async def sync(self) -> None:
        """Wait until the peer has read all messages that were sent before."""
        marker = self.ask("ping")
        await self.answer_to(marker)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Client(End):
    """The client's end of a connection."""

    async def initialize(self, capabilities: Any = None, version: str = HANDSHAKE) -> Any:
        params = {
            "protocolVersion": version,
            "capabilities": {} if capabilities is None else capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        answer = await self.answer_to(self.ask("initialize", params))
        self.tell("notifications/initialized")
        return answer

    def stateless(
        self, method: str, params: Any = None, capabilities: Any = None, **meta: Any
    ) -> Any:
        """Send a request without a handshake."""
        stamp = {
            f"{META}protocolVersion": STATELESS,
            f"{META}clientCapabilities": {} if capabilities is None else capabilities,
            **meta,
        }
        return self.ask(method, {**(params or {}), "_meta": stamp})


class Server(End):
    """The server's end of a connection. It answers the handshake and leaves other requests to the
    test.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.seen: list[dict[str, Any]] = []
        self.inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None
        self.era = ""

    def serve(self, era: str, version: str, extra: dict[str, Any], quiet: set[str]) -> None:
        self.era = era
        self.task = asyncio.ensure_future(self._serve(era, version, extra, quiet))

    async def _serve(self, era: str, version: str, extra: dict[str, Any], quiet: set[str]) -> None:
        info = {"name": "raw", "version": "1"}
        capabilities = extra.pop("capabilities", SERVER_CAPABILITIES)
        while line := await self._reader.readline():
            message = json.loads(line)
            self.seen.append(message)
            method = message.get("method")
            if method in quiet or "id" not in message:
                self.inbox.put_nowait(line.rstrip(b"\n"))
            elif method == "server/discover" and era == "stateless":
                versions = {"supportedVersions": [STATELESS], "capabilities": capabilities}
                meta = {f"{META}serverInfo": info}
                self.reply(message, {"resultType": "complete", **versions, "_meta": meta, **extra})
            elif method in ("server/discover", "initialize") and (
                (era == "stateless") == (method == "initialize")
            ):
                self.refuse(message, -32601, "Method not found")
            elif method == "initialize":
                said = {"protocolVersion": version, "capabilities": capabilities}
                self.reply(message, {**said, "serverInfo": info, **extra})
            elif method in ("ping", "logging/setLevel", "resources/subscribe") or (
                method == "resources/unsubscribe"
            ):
                self.reply(message, {})
            else:
                self.inbox.put_nowait(line.rstrip(b"\n"))
        self.inbox.put_nowait(b"")

    async def line(self) -> bytes:
        async with asyncio.timeout(LIMIT):
            return await self.inbox.get()

    async def heard(self, method: str, uri: str | None = None) -> dict[str, Any]:
        """Wait for a message of this method, including messages that the server answers itself."""
        async with asyncio.timeout(LIMIT):
            while True:
                for message in self.seen:
                    about = message.get("params", {}).get("uri")
                    if message.get("method") == method and uri in (None, about):
                        return message
                await asyncio.sleep(0.002)


class Scene:
    """A relay, with methods that create its clients and servers."""

    def __init__(self, relay: Relay, front: str) -> None:
        self.relay = relay
        self.era = ""  # the era of new servers
        self.servers: list[Server] = []
        self._new: asyncio.Queue[Server] = asyncio.Queue()
        self._front = front
        self._ends: list[End] = []

    async def client(self, limit: int = 64 << 10) -> Client:
        """Connect a client; `limit` is the longest line it reads, and half of its read-ahead."""
        client = Client(*await asyncio.open_unix_connection(self._front, limit=limit))
        self._ends.append(client)
        return client

    async def server(self) -> Server:
        """Return the next connection of the relay whose era the server accepts."""
        async with asyncio.timeout(LIMIT):
            while True:
                server = await self._new.get()
                while not server.seen:
                    await asyncio.sleep(0.002)
                refused = server.era == "stateless" and server.seen[0]["method"] == "initialize"
                if (
                    not refused or self.relay.pool.target.is_process
                ):  # a process is initialized again on the same connection
                    return server

    def came(self, server: Server) -> None:
        self.servers.append(server)
        self._ends.append(server)
        self._new.put_nowait(server)

    async def session(self, capabilities: Any = None, version: str = HANDSHAKE) -> Client:
        client = await self.client()
        answer = await client.initialize(capabilities, version)
        assert "result" in answer, answer
        return client

    async def close(self) -> None:
        for end in self._ends:
            await end.close()
            if isinstance(end, Server) and end.task is not None:
                end.task.cancel()
                await asyncio.wait((end.task,))


@contextlib.asynccontextmanager
async def scene(
    era: str = "handshake",
    *,
    version: str = HANDSHAKE,
    shared: bool = True,
    offers: dict[str, Any] | None = None,
    quiet: set[str] | None = None,
    principal: Callable[[], Principal] = lambda: ANONYMOUS,
    interceptors: Any = (),
    **settings: Any,
) -> AsyncIterator[Scene]:
    """Run a relay to a server of this era; the test answers the methods in `quiet`."""
    with tempfile.TemporaryDirectory() as folder:
        behind, before = str(Path(folder) / "behind"), str(Path(folder) / "before")
        way = ServerTarget(name="raw", open=lambda: connect_unix(behind), is_process=shared)
        relay = Relay(way, interceptors=interceptors, **settings)
        place = Scene(relay, before)
        place.era = era

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server = Server(reader, writer)
            server.serve(place.era, version, dict(offers or {}), quiet or set())
            place.came(server)

        limit = 64 << 20
        async with (
            await asyncio.start_unix_server(accepted, behind, limit=limit),
            listen_unix(before, lambda channel: relay.attach(channel, principal()) and None),
        ):
            try:
                yield place
            finally:
                await relay.close()
                await place.close()


async def two_sessions(place: Scene, capabilities: Any = None) -> tuple[Client, Client, Server]:
    """Open two sessions on one connection to the server."""
    one, other = await place.session(capabilities), await place.session(capabilities)
    return one, other, await place.server()
