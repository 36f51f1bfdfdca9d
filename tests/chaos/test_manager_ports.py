"""A manager with unreachable, silent, invalid and restarted network servers."""

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.client import MCPClientConfig
from fairlead.client.connection.era_cache import known_eras
from fairlead.config.upstream_settings import Rules
from fairlead.manager.manager import MCPManager
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from tests.support.faulty_servers import Rough, nothing_left, run, until

QUICK = MCPClientConfig(max_retries=1, retry_delay=0.05, timeout_seconds=5)
HANDSHAKE = MCPClientConfig(
    max_retries=1, retry_delay=0.05, timeout_seconds=5, protocol_version=NEWEST_HANDSHAKE.value
)

PROGRAM = """
import asyncio, os, sys
from fairlead import MCPServer

server = MCPServer("web", rate_limit_rate=0)
notes = {"count": 0}

@server.tool(annotations={"readOnlyHint": True})
async def whoami() -> str:
    return str(os.getpid())

@server.tool()
async def grow() -> str:
    server.tool(name=f"extra_{len(server.registry)}")(lambda: "x")
    return "grown"

@server.tool()
async def touch() -> str:
    server.resource_updated("note://one")
    return "touched"

@server.resource("note://one")
async def note() -> str:
    return "a note"

asyncio.run(server.run_http(port=int(sys.argv[1]), started=lambda url: print(url, flush=True)))
"""


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


class Web:
    """An HTTP server in its own process, always on the same port."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "web_program.py"
        self._program.write_text(PROGRAM)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: asyncio.subprocess.Process | None = None

    def entry(self, kind: str) -> dict[str, Any]:
        """Return the configuration entry of this server for one of its transports."""
        match kind:
            case "sse":
                return {"type": "sse", "url": self.url.replace("/mcp", "/sse")}
            case "websocket":
                url = self.url.replace("/mcp", "/ws").replace("http:", "ws:")
                return {"type": "websocket", "url": url}
        return {"type": "http", "url": self.url}

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(self._program), str(self.port), stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(20):
            assert await self._process.stdout.readline()

    @property
    def pid(self) -> str:
        assert self._process is not None
        return str(self._process.pid)

    async def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.communicate()
            self._process = None


@contextlib.asynccontextmanager
async def web(folder: Path) -> AsyncIterator[Web]:
    one = Web(folder)
    await one.start()
    try:
        yield one
    finally:
        await one.kill()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextlib.asynccontextmanager
async def port(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """Listen on a port and handle every connection with `talk`."""
    lines: set[asyncio.StreamWriter] = set()

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await talk(reader, writer)
        writer.close()
        lines.discard(writer)

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for writer in lines:
            writer.transport.abort()
        await server.wait_closed()


async def says_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(1 << 16):
        pass


def says(data: bytes, *, then_waits: bool = False) -> Any:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(data)
        await writer.drain()
        while then_waits and await reader.read(1 << 16):
            pass

    return talk


def answers(kind: bytes, body: bytes, length: int | None = None, status: bytes = b"200 OK") -> Any:
    size = b"%d" % (len(body) if length is None else length)
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind + b"\r\nContent-Length: " + size
    return says(head + b"\r\n\r\n" + body, then_waits=length is not None)


BAD = {
    "silent": says_nothing,
    "noise": says(bytes(range(256)) * 8),
    "hangup": says(b""),
    "html": answers(b"text/html", b"<html>It works!</html>"),
    "json": answers(b"application/json", b'{"hello": "world"}'),
    "halfjson": answers(b"application/json", b'{"jsonrpc": "2.0", "id": 1, "resu'),
    "cut": answers(b"application/json", b"{}", length=1000),
    "events": answers(b"text/event-stream", b"event: endpoint\ndata: \xff\xfe\n\ndata: {oops\n\n"),
    "open": says(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n", then_waits=True
    ),
    "broken": answers(b"text/plain", b"no", status=b"500 Internal Server Error"),
    "upgrade": says(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: nonsense\r\n\r\n\xff\xff\xff\xff",
        then_waits=True,
    ),
}


@pytest.mark.covers("HST-03", "QUA-04")
async def test_ports_without_an_mcp_server_fail_in_time_and_do_not_affect_other_servers(
    tmp_path: Path,
) -> None:
    calm = Rough(tmp_path, "calm")
    async with nothing_left(tmp_path), contextlib.AsyncExitStack() as stack:
        ports = {name: await stack.enter_async_context(port(talk)) for name, talk in BAD.items()}
        ports["closed"] = free_port()
        entries: dict[str, Any] = {"calm": calm.entry}
        for name, number in ports.items():
            for kind, scheme in (("http", "http"), ("sse", "http"), ("websocket", "ws")):
                entries[f"{name}-{kind}"] = {
                    "type": kind,
                    "url": f"{scheme}://127.0.0.1:{number}/mcp",
                    "timeout": 1000,
                }
        async with MCPManager(config=QUICK) as manager:
            began = time.monotonic()
            loaded = await manager.connect_servers(entries)
            assert time.monotonic() - began < 5.0  # includes the server timeout of one second
            assert loaded.connected_servers == ["calm"]
            assert {error["path"] for error in loaded.errors} == {
                f"mcp:{name}" for name in entries if name != "calm"
            }
            assert all(error["error"] for error in loaded.errors)
            assert await run(manager, "mcp_calm_whoami") == f"calm {calm.pids[0]}"
            for name in entries:
                if name != "calm":
                    began = time.monotonic()
                    with pytest.raises(Exception, match=f'server "{name}" is not connected: .'):
                        await manager.wait_for_connection(name)
                    assert time.monotonic() - began < 0.2


@pytest.mark.covers("HST-20", "HST-24")
@pytest.mark.parametrize("kind", ["http", "session", "sse", "websocket"])
async def test_a_restarted_remote_server_is_reconnected(tmp_path: Path, kind: str) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    calm = Rough(ours, "calm")
    async with web(tmp_path) as server, nothing_left(ours):
        rules = Rules(health_interval=0.2)
        config = HANDSHAKE if kind == "session" else QUICK
        async with MCPManager(config=config, rules=rules) as manager:
            await manager.connect_servers({"web": server.entry(kind), "calm": calm.entry})
            assert await run(manager, "mcp_web_whoami") == server.pid
            await server.kill()
            began = time.monotonic()
            said = await run(manager, "mcp_web_whoami")
            assert said.startswith('MCP error: server "web" is not connected: ')
            assert time.monotonic() - began < 5
            supervisor = manager.describe()["web"]
            # Retries are unlimited, because a remote server may be unavailable for a long time.
            for _ in range(8):
                assert (await run(manager, "mcp_web_whoami")).startswith("MCP error: ")
            assert supervisor.state == "reconnecting"
            assert not manager.get_tool("mcp_web_whoami").available  # type: ignore[union-attr]
            await server.start()
            await until(lambda: supervisor.state == "connected")
            assert await run(manager, "mcp_web_whoami") == server.pid
            connection = manager.get_connection("calm")
            assert connection is not None
            assert connection.generation == 1


@pytest.mark.covers("HST-20", "HST-30")
async def test_lists_and_subscriptions_are_restored_after_a_lost_session(
    tmp_path: Path,
) -> None:
    heard: list[tuple[str, str]] = []
    rules = Rules(health_interval=0)
    async with web(tmp_path) as server:
        async with MCPManager(config=HANDSHAKE, rules=rules) as manager:
            manager.add_notification_listener(
                lambda _, method, params: heard.append((method, params.get("uri", "")))
            )
            await manager.connect_servers({"web": {"type": "http", "url": server.url}})
            await manager.subscribe("note://one")
            await run(manager, "mcp_web_grow")
            await until(lambda: manager.get_tool("mcp_web_extra_3") is not None)
            await server.kill()
            # restarted before the manager notices; the server answers 404 to the lost session
            await server.start()
            assert await run(manager, "mcp_web_whoami") == server.pid
            assert manager.describe()["web"].generation == 1
            # the lists of the restarted server replace the lost ones
            await until(lambda: manager.get_tool("mcp_web_extra_3") is None)
            heard.clear()
            await until_told(manager, heard)


async def until_told(manager: MCPManager, heard: list[tuple[str, str]]) -> None:
    """Touch the resource until its update is received, because restoring may not be complete."""
    async with asyncio.timeout(10):
        while ("notifications/resources/updated", "note://one") not in heard:
            await run(manager, "mcp_web_touch")
            await asyncio.sleep(0.02)


class Proxy:
    """A proxy that forwards bytes to a port until it cuts all connections."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._lines: set[asyncio.StreamWriter] = set()
        self.listens = 0  # number of subscriptions/listen requests

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._lines |= {writer, back}

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await source.read(1 << 16):
                    self.listens += data.count(b'"method":"subscriptions/listen"')
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pump(reader, back), pump(there, writer))
        self._lines -= {writer, back}

    def cut(self) -> None:
        for line in self._lines:
            line.transport.abort()


@pytest.mark.covers("HST-30")
async def test_a_cut_listen_stream_is_reopened_without_missing_changes(
    tmp_path: Path,
) -> None:
    async with web(tmp_path) as server, MCPManager(config=QUICK) as other:
        await other.connect_servers({"web": {"type": "http", "url": server.url}})
        proxy = Proxy(server.port)
        async with port(proxy.talk) as number, MCPManager(config=QUICK) as manager:
            url = f"http://127.0.0.1:{number}/mcp"
            await manager.connect_servers({"web": {"type": "http", "url": url}})
            assert proxy.listens == 1
            for round_ in range(4):  # cut the connection, as proxies do after some time
                proxy.cut()
                await run(other, "mcp_web_grow")  # the list changes while no listen stream is open
                await until(
                    lambda n=round_: manager.get_tool(f"mcp_web_extra_{3 + n}") is not None  # type: ignore[misc]
                )
            assert proxy.listens <= 1 + 4 * 2  # the listen stream is not reopened in a busy loop
            assert manager.describe()["web"].generation == 1
            assert (await run(manager, "mcp_web_whoami")) == server.pid
