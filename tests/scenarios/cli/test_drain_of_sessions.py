"""Requests that run in sessions when a server on the network gets SIGTERM."""

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.errors import FairleadError
from tests.support.cli_process import LIMIT, Signpost, server_file, signpost
from tests.support.cli_user import Person, person
from tests.support.running_gateway import running, text_of

__all__ = ["person"]

Words = Callable[[Path, Path], tuple[str, ...]]
COMMANDS: dict[str, tuple[Words, str]] = {
    "serve": (lambda file, _: ("serve", "--http", "0", str(file)), ""),
    "proxy": (lambda file, _: ("proxy", "--listen", "0", "--", sys.executable, str(file)), ""),
    "gateway": (lambda _, gateway: ("gateway", "--port", "0", str(gateway)), "one_"),
}
# The tools take longer than the default time for running requests of a gateway, one second.
TOOLS = """
@server.tool()
async def quiet() -> str:
    {report}
    await asyncio.sleep(1.5)
    return "finished"

@server.tool()
async def chatty(ctx: Context) -> str:
    await ctx.progress(1, 2)
    {report}
    await asyncio.sleep(1.5)
    return "finished"

@server.tool()
async def endless() -> str:
    {report}
    await asyncio.Event().wait()
    return "never"
"""


def words_for(command: str, folder: Path, post: Signpost, *options: str) -> tuple[str, ...]:
    """Return the command line that serves the tools with `--sessions`, and write its files."""
    file = server_file(folder, TOOLS.format(report=post.report))
    gateway = folder / "gateway.toml"
    gateway.write_text(f'[servers.one]\ncommand = "{sys.executable}"\nargs = ["{file}"]\n')
    first, *rest = COMMANDS[command][0](file, gateway)
    return (first, "--sessions", str(folder / "sessions.db"), *options, *rest)


def url_of(said: str) -> str:
    return next(word for word in said.split() if word.startswith("http://127.0.0.1"))


def client_of(url: str) -> AbstractAsyncContextManager[MCPClient]:
    """Return a client of the handshake era for a URL of HTTP, HTTP+SSE or WebSocket."""
    config = MCPClientConfig(protocol_version="2025-11-25", timeout_seconds=LIMIT, max_retries=0)
    if url.startswith("ws"):
        return MCPClient.connect_websocket(url, config)
    return MCPClient.connect_http(url, config, mode="sse" if url.endswith("/sse") else "http")


@pytest.mark.parametrize("tool", ["quiet", "chatty"])
@pytest.mark.parametrize("command", COMMANDS)
async def test_a_call_in_a_session_is_answered_within_the_drain_time(
    command: str, tool: str, tmp_path: Path, person: Person
) -> None:
    with signpost(tmp_path / "pipe") as post:
        words = words_for(command, tmp_path, post, "--drain", "10")
        with running(person, *words) as it:
            url = url_of(it.wait_for("http://127.0.0.1"))
            async with asyncio.timeout(LIMIT), client_of(url) as idle, client_of(url) as client:
                await idle.list_tools()
                name = COMMANDS[command][1] + tool
                call = asyncio.create_task(client.call_tool(name, on_progress=lambda *_: None))
                await asyncio.to_thread(post.read)
                it.process.send_signal(signal.SIGTERM)
                assert text_of(await call) == "finished"
                it.process.send_signal(signal.SIGTERM)  # ends the rest of the drain time
            assert await asyncio.to_thread(it.process.wait, 5) == 0


@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_a_call_over_http_sse_or_websocket_is_answered_within_the_drain_time(
    transport: str, tmp_path: Path, person: Person
) -> None:
    with signpost(tmp_path / "pipe") as post:
        with running(person, *words_for("serve", tmp_path, post, "--drain", "10")) as it:
            url = url_of(it.wait_for("http://127.0.0.1")).removesuffix("mcp") + transport
            url = url.replace("http", "ws") if transport == "ws" else url
            async with asyncio.timeout(LIMIT), client_of(url) as idle, client_of(url) as client:
                await idle.list_tools()
                call = asyncio.create_task(client.call_tool("quiet"))
                await asyncio.to_thread(post.read)
                it.process.send_signal(signal.SIGTERM)
                assert text_of(await call) == "finished"
                it.process.send_signal(signal.SIGTERM)  # ends the rest of the drain time
            assert await asyncio.to_thread(it.process.wait, 5) == 0


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_call_that_takes_longer_than_the_drain_time_fails_and_the_program_exits(
    command: str, tmp_path: Path, person: Person
) -> None:
    with signpost(tmp_path / "pipe") as post:
        words = words_for(command, tmp_path, post, "--drain", "0.3")
        with running(person, *words) as it:
            url = url_of(it.wait_for("http://127.0.0.1"))
            async with asyncio.timeout(LIMIT), client_of(url) as client:
                call = asyncio.create_task(client.call_tool(COMMANDS[command][1] + "endless"))
                await asyncio.to_thread(post.read)
                it.process.send_signal(signal.SIGTERM)
                with pytest.raises(FairleadError):
                    await call
            # The drain time, and the time to stop the servers.
            assert await asyncio.to_thread(it.process.wait, 8) == 0
