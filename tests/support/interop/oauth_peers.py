"""Clients of other projects that log in to a protected endpoint and call its tools.

Each of them is a context manager that yields a function, which calls a tool and returns its text.
All use the user Alice, who approves everything.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import fastmcp
from mcp import Client, ClientSession
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from tests.interop.test_typescript import PACKAGES as TYPESCRIPT
from tests.support.interop.node_packages import packages
from tests.support.oidc_provider import visit

__all__ = ["PEERS", "CallTool", "Peer"]

REDIRECT = "http://127.0.0.1:9/callback"  # never opened: the test reads the redirect itself
SCRIPTS = Path(__file__).parents[2] / "interop" / "typescript"
MCP_REMOTE = {"mcp-remote": "0.15.1"}

CallTool = Callable[[str], Awaitable[str]]
Peer = Callable[[str, Path], contextlib.AbstractAsyncContextManager[CallTool]]


class _MemoryStorage:
    """Tokens and registration of a client of the official SDK."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def _official_login(url: str) -> OAuthClientProvider:
    redirects: asyncio.Queue[str] = asyncio.Queue()

    async def open_page(address: str) -> None:
        redirects.put_nowait(await visit(address, REDIRECT, "alice"))

    async def callback() -> AuthorizationCodeResult:
        query = parse_qs(urlsplit(await redirects.get()).query)
        return AuthorizationCodeResult(
            **{name: query[name][0] for name in ("code", "state", "iss")}
        )

    metadata = OAuthClientMetadata(
        client_name="official",
        redirect_uris=[REDIRECT],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    return OAuthClientProvider(url, metadata, _MemoryStorage(), open_page, callback)


@contextlib.asynccontextmanager
async def official_stateless(url: str, folder: Path) -> AsyncIterator[CallTool]:
    async with create_mcp_http_client(auth=_official_login(url)) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            yield lambda tool: _text(client.call_tool(tool, {}))


@contextlib.asynccontextmanager
async def official_handshake(url: str, folder: Path) -> AsyncIterator[CallTool]:
    async with (
        create_mcp_http_client(auth=_official_login(url)) as http,
        streamable_http_client(url, http_client=http) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        yield lambda tool: _text(session.call_tool(tool, {}))


@contextlib.asynccontextmanager
async def fastmcp_client(url: str, folder: Path) -> AsyncIterator[CallTool]:
    """FastMCP's client, whose browser is replaced by the scripted user."""
    import webbrowser

    loop = asyncio.get_running_loop()
    visits: set[asyncio.Task[None]] = set()

    def open_browser(address: str) -> bool:
        loop.call_soon_threadsafe(lambda: visits.add(loop.create_task(_log_in(address))))
        return True

    usual, webbrowser.open = webbrowser.open, open_browser  # type: ignore[assignment]
    try:
        async with fastmcp.Client(url, auth="oauth") as client:
            yield lambda tool: _text(client.call_tool(tool, {}))
    finally:
        webbrowser.open = usual


async def _text(calling: Awaitable[Any]) -> str:
    return str((await calling).content[0].text)


async def _log_in(address: str) -> None:
    """Visit an authorization page and follow its last redirect to the listener of a client."""
    redirect = parse_qs(urlsplit(address).query)["redirect_uri"][0]
    final = await visit(address, redirect, "alice")
    async with aiohttp.ClientSession() as http, http.get(final) as response:
        assert response.status == 200


@contextlib.asynccontextmanager
async def typescript(url: str, folder: Path) -> AsyncIterator[CallTool]:
    modules = await asyncio.to_thread(packages, "node-interop", TYPESCRIPT)
    script = str(SCRIPTS / "oauth.cjs")
    async with _node_program(script, url, NODE_PATH=str(modules)) as program:
        assert program.stdin is not None

        async def call(tool: str) -> str:
            program.stdin.write(f"{tool}\n".encode())  # type: ignore[union-attr]
            while "visit" in (answer := await _next_message(program)):
                redirect = await visit(answer["visit"], REDIRECT, "alice")
                program.stdin.write(f"{redirect}\n".encode())  # type: ignore[union-attr]
            return str(answer["text"])

        yield call


@contextlib.asynccontextmanager
async def mcp_remote(url: str, folder: Path) -> AsyncIterator[CallTool]:
    """The proxy from stdio to HTTP, which prints the page that it would open."""
    modules = await asyncio.to_thread(packages, "mcp-remote", MCP_REMOTE)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = str(modules / "mcp-remote" / "dist" / "proxy.js")
    settings = {"MCP_REMOTE_CONFIG_DIR": str(folder), "BROWSER": "true"}
    async with _node_program(script, url, str(port), "--allow-http", **settings) as program:
        following = asyncio.create_task(_follow_pages(program))
        number = 0

        async def ask(method: str, **params: Any) -> Any:
            nonlocal number
            number += 1
            _send(program, {"id": number, "method": method, "params": params})
            while (answer := await _next_message(program)).get("id") != number:
                pass
            return answer["result"]

        async def call(tool: str) -> str:
            answer = await ask("tools/call", name=tool, arguments={})
            return str(answer["content"][0]["text"])

        try:
            about = {"name": "test", "version": "1"}
            await ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=about)
            _send(program, {"method": "notifications/initialized"})
            yield call
        finally:
            following.cancel()
            await asyncio.wait((following,))


async def _follow_pages(program: asyncio.subprocess.Process) -> None:
    """Visit the authorization pages that a program prints to stderr."""
    assert program.stderr is not None
    while line := (await program.stderr.readline()).decode():
        if found := re.match(r"\s*(https?://\S+/auth\?\S+)", line):
            await _log_in(found[1])


def _send(program: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
    assert program.stdin is not None
    program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


async def _next_message(program: asyncio.subprocess.Process) -> Any:
    assert program.stdout is not None
    line = await program.stdout.readline()
    assert line, "the program has ended"
    return json.loads(line)


@contextlib.asynccontextmanager
async def _node_program(*command: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "node", *command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, **env}
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


PEERS: dict[str, Peer] = {
    "mcp, handshake": official_handshake,
    "mcp, stateless": official_stateless,
    "FastMCP": fastmcp_client,
    "TypeScript": typescript,
    "mcp-remote": mcp_remote,
}
