"""Upstream servers for gateway tests, in this process and as programs."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer

LIMIT = 20.0
HANDSHAKE, STATELESS = "2025-11-25", "auto"
BOTH = [HANDSHAKE, STATELESS]


def make(name: str) -> MCPServer:
    server = MCPServer(name, rate_limit_rate=0, instructions=f"how to use {name}")

    @server.tool()
    async def who() -> str:
        """Return the name and process id of the server."""
        return f"{name} {os.getpid()}"

    @server.tool()
    async def secret() -> str:
        """Return a secret."""
        return f"the secret of {name}"

    @server.tool()
    async def speak(ctx: Context, text: str) -> str:
        """Log a text."""
        await ctx.info(text)
        return text

    @server.tool()
    async def folders(ctx: Context) -> str:
        """Return the client's roots."""
        return " ".join(root["uri"] for root in await ctx.roots())

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        answer = await ctx.elicit(f"{name} wants to know", str)
        return f"{answer.data} to {name} {os.getpid()}"

    @server.tool()
    async def grow(tool: str) -> str:
        """Register another tool."""
        server.tool(name=tool)(lambda: f"{tool} of {name}")
        return "grown"

    @server.tool()
    async def touch(uri: str) -> str:
        """Announce that a resource has changed."""
        server.resource_updated(uri)
        return "touched"

    @server.tool()
    async def die() -> str:
        """End the process during a call."""
        os._exit(3)

    @server.resource(f"{name}://fixed")
    async def fixed() -> str:
        return f"fixed of {name}"

    @server.resource("shared://note")
    async def note() -> str:
        return f"note of {name}"

    @server.resource(f"{name}://item/{{key}}")
    async def item(key: str) -> str:
        return f"{key} of {name}"

    @server.prompt()
    async def hello(city: str) -> str:
        return f"{name} greets {city}"

    @server.completion("hello", "city")
    async def cities(begun: str) -> list[str]:
        return [
            city for city in (f"{name}-Aachen", f"{name}-Bonn") if begun.lower() in city.lower()
        ]

    @server.completion(f"{name}://item/{{key}}", "key")
    async def keys(begun: str) -> list[str]:
        return [f"{name}-key"]

    return server


def program(name: str) -> dict[str, Any]:
    """Return the configuration entry that runs the server as a program."""
    return {"command": sys.executable, "args": [str(Path(__file__)), name]}


class Gate:
    """A gate that delays the start of programs: they connect to it and wait until it opens."""

    def __init__(self) -> None:
        self.knocked = asyncio.Event()
        self._port = 0
        self._open = False
        self._waiting: list[asyncio.StreamWriter] = []

    def program(self, name: str) -> dict[str, Any]:
        """Return the entry of a program that waits at this gate before it serves."""
        entry = program(name)
        return {**entry, "args": [*entry["args"], str(self._port)]}

    def open(self) -> None:
        """Release all waiting and all future programs."""
        self._open = True
        for writer in self._waiting:
            writer.write(b"!")

    def shut(self) -> None:
        self._open = False
        self.knocked.clear()

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting.append(writer)
        self.knocked.set()
        if self._open:
            writer.write(b"!")

    async def __aenter__(self) -> "Gate":
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for writer in self._waiting:
            writer.close()


def hanging() -> dict[str, Any]:
    """Return the entry of a program that reads its input and never responds."""
    return {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def serving(server: Any, **options: Any) -> AsyncIterator[str]:
    """Serve `server` over HTTP and yield its URL."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        server.run_http(**{"port": 0, "started": ready.set_result, **options})
    )
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def config(version: str = HANDSHAKE) -> MCPClientConfig:
    return MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT, max_retries=0)


def joining(gateway: Any, version: str = HANDSHAKE, **callbacks: Any) -> Any:
    """Connect a client to a gateway in this process."""
    return MCPClient.connect_inprocess(gateway, config(version), **callbacks)


async def until(true: Callable[[], Any]) -> None:
    """Poll until a condition is true. Prefer an event where one exists."""
    async with asyncio.timeout(LIMIT):
        while not true():
            await asyncio.sleep(0.005)


async def names(client: MCPClient) -> list[str]:
    return [tool["name"] for tool in await client.list_tools(cache=False)]


class Ears:
    """Notifications that a client has received."""

    def __init__(self) -> None:
        self.notes: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    def __call__(self, method: str, params: dict[str, Any]) -> None:
        self.notes.put_nowait((method, params))

    async def hear(self, method: str, **wanted: Any) -> dict[str, Any]:
        """Wait for a notification with these params."""
        async with asyncio.timeout(LIMIT):
            while True:
                heard, params = await self.notes.get()
                if heard == method and all(params.get(k) == v for k, v in wanted.items()):
                    return params

    def drain(self) -> list[tuple[str, dict[str, Any]]]:
        """Remove and return received notifications that no test has waited for."""
        found = []
        while not self.notes.empty():
            found.append(self.notes.get_nowait())
        return found


if __name__ == "__main__":
    if len(sys.argv) > 2:
        with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as gate:
            if not gate.recv(1):
                sys.exit("the gate has closed")
    make(sys.argv[1]).run()
