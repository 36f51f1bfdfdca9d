"""The four paths between a client and a server: direct, proxy, gateway by name, gateway merged."""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import httpx2
import uvicorn

# The module is in tests/support, but here `tests` is the package of the suite.
from line_sockets import listen_tcp

from fairlead.client.connection.era_cache import known_eras
from fairlead.gateway import Gateway, Relay, View
from fairlead.protocol.caller import ANONYMOUS
from fairlead.server.http_app.http_runnable import HttpRunnable
from fairlead.transport.socket import connect_tcp
from fairlead.upstream.server_target import ServerTarget

PATH = os.environ.get("SUITE_PATH", "direct")
NAME = "s"  # name of the server in a gateway; short, because merged names are cut at 64 characters
START = 20.0  # seconds for start-up of a server
GRACE = 1.0  # seconds for pending requests when a server stops
TIMEOUT = httpx2.Timeout(30.0, read=300.0)  # the default timeout of the SDK's client


def http_client(**options: Any) -> httpx2.AsyncClient:
    """Return the SDK's client without TLS certificates, which load slower than most tests run."""
    return httpx2.AsyncClient(**{"timeout": TIMEOUT, **options}, verify=False)


@contextlib.asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI application on a local port and yield its origin.

    The steps are those of `uvicorn.Server.serve` without its main loop, which checks only ten times
    a second whether it should end.
    """
    sock = socket.create_server(("127.0.0.1", 0))
    # Otherwise asyncio leaves Nagle's algorithm on, and event streams stall for 40 ms.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(app, log_config=None, ws="none", lifespan="off", access_log=False)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[sock])
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        await _stop(server)
        sock.close()


async def _stop(server: uvicorn.Server) -> None:
    """Stop a server as uvicorn does, without its waits of 0.1 s."""
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    if tasks := set(server.server_state.tasks):
        _, late = await asyncio.wait(tasks, timeout=GRACE)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=GRACE)
    for connection in list(server.server_state.connections):
        if connection.transport is not None:
            connection.transport.close()
    await asyncio.sleep(0)  # lets transports close their sockets before the loop ends


@contextlib.asynccontextmanager
async def through(entry: Mapping[str, Any], *, front: str = "http") -> AsyncIterator[str]:
    """Run Fairlead in front of the server of a configuration entry and yield the client's URL.

    `front` is the transport that the client will use: `http` or `sse`.
    """
    known_eras.clear()  # Servers of another era may reuse the same port.
    match PATH:
        case "direct":
            yield str(entry["url"])
        case "proxy":
            async with serving(Relay(dict(entry))) as url:
                yield url.removesuffix("/mcp") + "/sse" if front == "sse" else url
        case "command":
            async with proxy_command(entry) as url:
                yield url.removesuffix("/mcp") + "/sse" if front == "sse" else url
        case "gateway-name" | "gateway":
            async with fleet(entry) as gateway, serving(gateway) as url:
                if PATH == "gateway-name":
                    yield f"{url}/{NAME}"  # HTTP+SSE is served for the merged endpoint only
                else:
                    yield url.removesuffix("/mcp") + "/sse" if front == "sse" else url
        case unknown:
            raise ValueError(f"unknown path {unknown!r}")


@contextlib.asynccontextmanager
async def through_lines(entry: Mapping[str, Any], lines: tuple[str, int]) -> AsyncIterator[int]:
    """Put Fairlead in front of a server for clients that send lines, as over stdio; yield the port.

    `lines` is the address where the server itself accepts lines. A gateway connects with `entry`
    instead, because its configuration has no servers on line sockets.
    """
    known_eras.clear()
    match PATH:
        case "direct":
            yield lines[1]
        case "gateway-name":
            async with fleet(entry) as gateway, attaching(gateway.endpoints[NAME]) as port:
                yield port
        case "gateway":
            async with fleet(entry) as gateway, attaching(gateway) as port:
                yield port
        case _:
            way = ServerTarget(name="server", open=lambda: connect_tcp(*lines), is_process=True)
            relay = Relay(way)
            try:
                async with attaching(relay) as port:
                    yield port
            finally:
                await relay.close()


@contextlib.asynccontextmanager
async def attaching(host: Any) -> AsyncIterator[int]:
    """Serve clients of a relay or gateway that send lines, and yield the port."""
    peers: list[Any] = []
    accepted = listen_tcp(
        "127.0.0.1", 0, lambda channel: peers.append(host.attach(channel, ANONYMOUS))
    )
    async with accepted as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            await asyncio.gather(*(peer.close() for peer in peers))


@contextlib.asynccontextmanager
async def fleet(entry: Mapping[str, Any]) -> AsyncIterator[Gateway]:
    """Run a gateway with one server, whose tools and prompts keep their names at both endpoints."""
    async with Gateway(view=_own_names(), deadline=START) as gateway:
        await gateway.connect({NAME: dict(entry)})
        # The view needs complete lists to resolve its names.
        await gateway.listed()
        yield gateway


@contextlib.asynccontextmanager
async def serving(host: HttpRunnable) -> AsyncIterator[str]:
    """Serve a relay or gateway as its command does, and yield the URL of the endpoint."""
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(host.run_http(port=0, started=started.set_result))
    try:
        await asyncio.wait((started, task), timeout=START, return_when="FIRST_COMPLETED")
        if task.done():
            await task
        yield started.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def proxy_command(entry: Mapping[str, Any]) -> AsyncIterator[str]:
    """Run `fairlead proxy` as a user does, and yield the URL that it prints."""
    program = shutil.which("fairlead", path=os.path.dirname(sys.executable))
    assert program is not None, "fairlead is not installed in the environment of the suites"
    sse = ["--sse"] if entry["type"] == "sse" else []
    process = await asyncio.create_subprocess_exec(
        *(program, "proxy", "--listen", "http://127.0.0.1:0", *sse, str(entry["url"])),
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START):
            url = await _printed_url(process.stderr)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


async def _printed_url(stderr: asyncio.StreamReader) -> str:
    seen = ""
    async for line in stderr:
        seen += line.decode()
        if found := re.search(r" at (http://127\.0\.0\.1:\S+)", line.decode()):
            return found[1]
    raise RuntimeError(f"fairlead proxy has not started: {seen}")


class _OwnNames(Mapping[str, str]):
    """A view's `rename` that removes the server's name from every merged name.

    The lists of a test's server are unknown beforehand and may change during the test. Catalogs
    look
    up names in a view's `rename`, so this mapping has an entry for each. Iteration yields one name
    that no server has, because views are compared by their entries.
    """

    _prefix = f"{NAME}_"

    def __getitem__(self, merged: str) -> str:
        if not merged.startswith(self._prefix):
            raise KeyError(merged)
        return merged.removeprefix(self._prefix)

    def __iter__(self) -> Iterator[str]:
        return iter((f"{self._prefix}\0",))

    def __len__(self) -> int:
        return 1


def _own_names() -> View:
    from msgspec.structs import force_setattr

    view = View()
    # The constructor would copy the entries of the mapping.
    force_setattr(view, "rename", _OwnNames())
    return view
