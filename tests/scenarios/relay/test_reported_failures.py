"""Failures reported by users of MCP proxies, tested with a relay."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer
from fairlead.gateway import Relay
from fairlead.peer import Peer
from fairlead.relay.client_session import ClientSession
from fairlead.upstream.connection.upstream_connection import UpstreamConnection
from tests.support.http_server import call, introduction, serving
from tests.support.raw_relay import SERVER_CAPABILITIES

pytestmark = pytest.mark.slow  # runs in `make test-all`

LIMIT = 20.0
HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"
both_eras = pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SERVER = """
import asyncio, os, sys
from pathlib import Path
from fairlead import Context, MCPServer
server = MCPServer("ours", rate_limit_rate=0)

@server.tool()
def pid() -> int:
    return os.getpid()

@server.tool()
async def hold(ctx: Context) -> str:
    await ctx.progress(1, message="begun")
    await asyncio.Event().wait()
    return "never"

if __name__ == "__main__":
    with open(sys.argv[1], "a") as starts:
        print(os.getpid(), file=starts)
    if len(sys.argv) > 2:
        Path(sys.argv[2]).read_text()  # a named pipe: waits for a writer
    server.run()
"""

RELAY = """
import asyncio, json, sys
from fairlead.gateway import Relay
relay = Relay(json.loads(sys.argv[1]), connect_timeout=2)
asyncio.run(relay.run_http(port=0, started=lambda url: print(url, flush=True)))
"""


class Behind:
    """A server program that records its process id at each start."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        program = folder / "server.py"
        program.write_text(textwrap.dedent(SERVER))
        self._starts = folder / "starts"
        args = [str(program), str(self._starts), *arguments]
        self.entry = {"command": sys.executable, "args": args}

    @property
    def starts(self) -> list[int]:
        return [int(line) for line in self._starts.read_text().split()]


@contextlib.asynccontextmanager
async def relay_process(folder: Path, entry: dict[str, Any]) -> AsyncIterator[tuple[Any, str]]:
    """Run a relay over HTTP as a program, and yield the process and its URL."""
    program = folder / "relay.py"
    program.write_text(textwrap.dedent(RELAY))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), json.dumps(entry)), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(LIMIT):
            assert process.stdout is not None
            yield process, (await process.stdout.readline()).decode().strip()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def connecting(url: str, version: str) -> contextlib.AbstractAsyncContextManager[MCPClient]:
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    return MCPClient.connect_http(url, config)


async def gone(pid: int) -> None:
    """Wait until a process has ended and was reaped."""
    async with asyncio.timeout(LIMIT):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)


# Processes and connections


@both_eras
async def test_thirty_concurrent_clients_start_one_server_process(
    version: str, tmp_path: Path
) -> None:
    """A relay must not start a process per client or per POST."""
    behind = Behind(tmp_path)

    async def visit(url: str) -> str:
        async with connecting(url, version) as client:
            return (await client.call("pid")).text

    async with asyncio.timeout(LIMIT), serving(Relay(behind.entry)) as edge:  # type: ignore[arg-type]
        seen = await asyncio.gather(*(visit(edge.url) for _ in range(20)))
        seen += [await visit(edge.url) for _ in range(10)]

    assert len(seen) == 30
    assert [str(pid) for pid in behind.starts] == sorted(set(seen))
    assert len(behind.starts) == 1


@both_eras
async def test_a_hundred_calls_share_a_connection_to_the_server(version: str) -> None:
    """Calls over HTTP reuse the session and the TCP connections."""
    server = MCPServer("behind", rate_limit_rate=0)
    server.tool("add")(_add)
    accepted = 0

    async with asyncio.timeout(LIMIT), serving(server) as behind:
        host, port = behind.url.removeprefix("http://").removesuffix("/mcp").split(":")

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            with contextlib.suppress(ConnectionError):
                there, back = await asyncio.open_connection(host, int(port))
                await asyncio.gather(_pump(reader, back), _pump(there, writer))

        counting = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        where = f"http://127.0.0.1:{counting.sockets[0].getsockname()[1]}/mcp"
        async with (
            counting,
            serving(Relay({"type": "http", "url": where})) as edge,  # type: ignore[arg-type]
            connecting(edge.url, version) as client,
        ):
            for number in range(100):
                assert (await client.call("add", {"a": number, "b": 1})).text == str(number + 1)

    assert accepted <= 3  # one connection each for calls, notifications and discovery


def _add(a: int, b: int) -> int:
    return a + b


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def test_cancelling_a_request_during_server_start_does_not_affect_other_requests(
    tmp_path: Path,
) -> None:
    """A server connection outlives the request that opened it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    behind = Behind(tmp_path, str(gate))
    async with asyncio.timeout(LIMIT), serving(Relay(behind.entry)) as edge:  # type: ignore[arg-type]
        first = asyncio.create_task(edge.stateless("tools/list"))
        while not behind._starts.exists():
            await asyncio.sleep(0.01)
        second = asyncio.create_task(edge.stateless("tools/call", {"name": "pid"}))
        first.cancel()
        await asyncio.wait([first])
        await asyncio.to_thread(gate.write_text, "go")
        result = (await second).result
        third = (await edge.stateless("tools/call", {"name": "pid"})).result

    assert first.cancelled()
    assert [result["content"][0]["text"], third["content"][0]["text"]] == [
        str(behind.starts[0])
    ] * 2
    assert len(behind.starts) == 1


# Cleanup


async def test_two_hundred_ended_sessions_leave_no_objects_in_memory() -> None:
    server = MCPServer("behind", rate_limit_rate=0)
    server.tool("add")(_add)
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as behind,
        serving(relay := Relay({"type": "http", "url": behind.url})) as edge,  # type: ignore[arg-type]
    ):

        async def visit() -> None:
            session = await edge.initialize()
            assert (await session.call("add", {"a": 1, "b": 2})).status == 200
            async with edge.http.delete(edge.url, headers=session.headers) as response:
                assert response.status == 200

        before = _alive()  # objects left by other tests
        for _ in range(20):
            await asyncio.gather(*(visit() for _ in range(10)))
        # the last connections may not be closed yet
        while relay.pool.connections or _alive() > before:
            await asyncio.sleep(0.01)


def _alive() -> int:
    gc.collect()
    return sum(
        isinstance(thing, ClientSession | UpstreamConnection | Peer) for thing in gc.get_objects()
    )


@on_linux
async def test_servers_exit_when_their_relay_is_killed(tmp_path: Path) -> None:
    behind = Behind(tmp_path)
    async with relay_process(tmp_path, behind.entry) as (process, url):
        async with connecting(url, STATELESS) as client:
            assert (await client.call("pid")).text == str(behind.starts[0])
            process.kill()
            await gone(behind.starts[0])
    assert len(behind.starts) == 1


@on_linux
@both_eras
async def test_a_killed_client_leaves_no_zombies_and_other_clients_are_served(
    version: str, tmp_path: Path
) -> None:
    """Killing a client during a call ends only that call."""
    behind = Behind(tmp_path)
    program = f"""
        import asyncio
        from fairlead import MCPClient, MCPClientConfig
        async def main():
            config = MCPClientConfig(protocol_version={version!r})
            async with MCPClient.connect_http(sys.argv[1], config) as client:
                await client.call("hold", on_progress=lambda *_: print("begun", flush=True))
        import sys
        asyncio.run(main())
    """
    async with relay_process(tmp_path, behind.entry) as (relay, url):
        for _ in range(3):
            client = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", textwrap.dedent(program), url),
                stdout=asyncio.subprocess.PIPE,
            )
            assert client.stdout is not None
            assert await client.stdout.readline() == b"begun\n"
            client.kill()
            await client.wait()
        async with connecting(url, version) as other:
            assert (await other.call("pid")).text == str(behind.starts[0])
        assert len(behind.starts) == 1
        assert await _idle(relay.pid) < 0.3


@on_linux
async def test_a_relay_whose_server_was_killed_does_not_busy_wait(tmp_path: Path) -> None:
    """The server is killed during calls and a listen stream. The processor time is measured when
    the calls have failed and the clients have disconnected.
    """
    behind = Behind(tmp_path)
    # The server's port refuses connections: the relay retries at intervals.
    async with relay_process(tmp_path, behind.entry) as (inner, where):
        folder = tmp_path / "outer"
        folder.mkdir()
        async with relay_process(folder, {"type": "http", "url": where}) as (outer, url):
            async with connecting(url, STATELESS) as modern, connecting(url, HANDSHAKE) as older:
                await modern.listen("tools")
                for one in (modern, older):
                    assert int((await one.call("pid")).text) in behind.starts
                calls = [asyncio.create_task(one.call("hold")) for one in (modern, older)]
                inner.send_signal(signal.SIGKILL)
                done = await asyncio.gather(*calls, return_exceptions=True)
                assert all(isinstance(outcome, Exception) for outcome in done)
            assert await _idle(outer.pid) < 0.3


async def _idle(pid: int) -> float:
    """Return the processor seconds that a process used during one second."""
    before = _used(pid)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            await gone(pid)
    return _used(pid) - before


def _used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@both_eras
async def test_a_stdio_relay_exits_at_the_end_of_its_input_despite_open_listen_streams(
    version: str, tmp_path: Path
) -> None:
    behind = Behind(tmp_path)
    program = f"""
        import asyncio
        from fairlead.gateway import Relay
        asyncio.run(Relay({behind.entry!r}).run_stdio())
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", textwrap.dedent(program)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    meta = "io.modelcontextprotocol/"
    about = {f"{meta}protocolVersion": STATELESS, f"{meta}clientCapabilities": {}}
    wanted = {"notifications": {"toolsListChanged": True}, "_meta": about}
    message = introduction()
    if version == STATELESS:
        message = {**message, "method": "subscriptions/listen", "params": wanted}
    async with asyncio.timeout(LIMIT):
        process.stdin.write(json.dumps(message).encode() + b"\n")
        assert await process.stdout.readline()
    # Hosts wait about two seconds before they kill a server.
    async with asyncio.timeout(1.2):
        process.stdin.close()
        assert await process.wait() == 0
        await gone(behind.starts[0])


# Streams


class Moody:
    """A handshake-era server whose GET stream fails or ends at once."""

    def __init__(self, habit: str) -> None:
        self._habit = habit
        self.streams = self.sessions = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            self.streams += 1
            if self._habit == "fails":
                return web.Response(status=500)
            return web.Response(content_type="text/event-stream")
        if request.method == "DELETE":
            return web.Response()
        body = await request.json()
        headers = {}
        if body["method"] == "initialize":
            self.sessions += 1
            headers["Mcp-Session-Id"] = f"s{self.sessions}"
            result: Any = {"protocolVersion": HANDSHAKE, "capabilities": SERVER_CAPABILITIES}
            result["serverInfo"] = {"name": "moody", "version": "1"}
        elif "Mcp-Session-Id" not in request.headers:
            return web.Response(status=400, text="Missing session ID")
        elif "id" not in body:
            return web.Response(status=202)
        else:
            text = request.headers["Mcp-Session-Id"]
            result = {"content": [{"type": "text", "text": text}], "tools": []}
        answer = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        return web.json_response(answer, headers=headers)


@contextlib.asynccontextmanager
async def moody(habit: str) -> AsyncIterator[tuple[Moody, dict[str, Any]]]:
    server = Moody(habit)
    app = web.Application()
    app.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield server, {"type": "http", "url": f"http://{host}:{port}/mcp"}
    finally:
        await runner.cleanup()


@both_eras
@pytest.mark.parametrize("habit", ["fails", "ends"])
async def test_a_get_stream_that_the_server_does_not_support_is_not_requested_in_a_loop(
    habit: str, version: str
) -> None:
    """Clients of both eras work with a server that requires sessions."""
    async with (
        asyncio.timeout(LIMIT),
        moody(habit) as (server, entry),
        serving(Relay(entry)) as edge,  # type: ignore[arg-type]
        connecting(edge.url, version) as client,
    ):
        said = {(await client.call("x")).text for _ in range(100)}
        assert len(said) == 1
        assert server.sessions <= 2  # one session for discovery and one for calls
        assert server.streams <= 4


@both_eras
@pytest.mark.parametrize("behind", ["stdio", "http"])
async def test_progress_is_forwarded_before_the_call_ends(
    behind: str, version: str, tmp_path: Path
) -> None:
    """Notifications are not held until the response is complete."""
    server = MCPServer("behind")
    go_on = asyncio.Event()

    @server.tool()
    async def hold(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await go_on.wait()
        return "whole"

    heard: list[float] = []

    def on_progress(progress: float, *_: object) -> None:
        heard.append(progress)
        go_on.set()  # only this line lets the tool continue

    async with asyncio.timeout(LIMIT), contextlib.AsyncExitStack() as stack:
        target: Any = server
        if behind == "http":
            url = (await stack.enter_async_context(serving(server))).url
            target = {"type": "http", "url": url}
        edge = await stack.enter_async_context(serving(Relay(target)))  # type: ignore[arg-type]
        client = await stack.enter_async_context(connecting(edge.url, version))
        assert (await client.call("hold", on_progress=on_progress)).text == "whole"
    assert heard == [1]


# Clients and replicas


async def test_a_client_that_ignores_its_session_id_is_still_served(tmp_path: Path) -> None:
    behind = Behind(tmp_path)
    async with asyncio.timeout(LIMIT), serving(Relay(behind.entry)) as edge:  # type: ignore[arg-type]
        assert (await edge.post(introduction())).status == 200
        listed = await edge.post({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        called = await edge.post(call("pid"))
    assert [tool["name"] for tool in listed.result["tools"]] == ["pid", "hold"]
    assert int(called.result["content"][0]["text"]) in behind.starts


async def test_requests_of_one_client_may_be_sent_to_different_relays() -> None:
    """The client sends the state of a stateless server with each request."""
    server = MCPServer("behind", rate_limit_rate=0)

    @server.tool()
    async def ask(ctx: Context) -> str:
        before = await ctx.step("before", lambda: "kept")
        answer = await ctx.elicit("Please enter your name.", str, key="who")
        return f"{before} {answer.data}"

    async with (
        asyncio.timeout(LIMIT),
        serving(server) as behind,
        serving(Relay({"type": "http", "url": behind.url})) as one,  # type: ignore[arg-type]
        serving(Relay({"type": "http", "url": behind.url})) as other,  # type: ignore[arg-type]
    ):
        can = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
        first = (await one.stateless("tools/call", {"name": "ask"}, **can)).result
        given = {"who": {"action": "accept", "content": {"value": "Ada"}}}
        params = {"name": "ask", "requestState": first["requestState"], "inputResponses": given}
        second = (await other.stateless("tools/call", params, **can)).result

    assert first["resultType"] == "input_required"
    assert second["content"][0]["text"] == "kept Ada"
