"""The official Python SDK's interaction tests over real sockets, directly or through Fairlead.

The conftest of these tests has four connection factories, one for each transport of its matrix:

| transport | client to Fairlead | Fairlead to server |
|---|---|---|
| `in-memory` | lines on a socket, as over stdio | the same; Streamable HTTP behind a gateway |
| `streamable-http` | Streamable HTTP | Streamable HTTP with sessions |
| `streamable-http-stateless` | Streamable HTTP | Streamable HTTP without sessions |
| `sse` | HTTP+SSE; Streamable HTTP at `/mcp/NAME` | HTTP+SSE |
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from .paths import PATH, http_client, listening, through, through_lines
from .plugin import ERA, connected, limited, select

UNGUARDED = TransportSecuritySettings(enable_dns_rebinding_protection=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    conftest: Any = sys.modules["tests.interaction.conftest"]
    conftest._FACTORIES.update(
        {
            "in-memory": over_lines,
            "streamable-http": over_http,
            "streamable-http-stateless": partial(over_http, stateless_http=True),
            "sse": over_sse,
        }
    )
    select(items, _is_of_era)


def _is_of_era(item: pytest.Item) -> bool:
    """Return True if a test uses the factories with a revision of the requested era."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or "connect" not in callspec.params:
        return False
    _, version = callspec.params["connect"]
    return (version in MODERN_PROTOCOL_VERSIONS) == (ERA == "stateless")


@contextlib.asynccontextmanager
async def over_http(
    server: Any,
    *,
    stateless_http: bool = False,
    spec_version: str = LATEST_HANDSHAKE_VERSION,
    **options: Any,
) -> AsyncIterator[Client]:
    connected()
    app = server.streamable_http_app(stateless_http=stateless_http, transport_security=UNGUARDED)
    async with (
        server.session_manager.run(),
        listening(app) as origin,
        through({"type": "http", "url": f"{origin}/mcp"}) as url,
        http_client() as http,
        Client(
            streamable_http_client(url, http_client=http), mode=_mode(spec_version), **options
        ) as client,
    ):
        with limited():
            yield client


@contextlib.asynccontextmanager
async def over_sse(
    server: Any, *, spec_version: str = LATEST_HANDSHAKE_VERSION, **options: Any
) -> AsyncIterator[Client]:
    from tests.interaction._connect import build_sse_app  # type: ignore[import-not-found]

    connected()
    app, _ = build_sse_app(server)
    async with (
        listening(app) as origin,
        through({"type": "sse", "url": f"{origin}/sse"}, front="sse") as url,
    ):
        transport: Any = sse_client(url, httpx_client_factory=http_client)
        async with contextlib.AsyncExitStack() as stack:
            if PATH == "gateway-name":
                http = await stack.enter_async_context(http_client())
                transport = streamable_http_client(url, http_client=http)
            client = await stack.enter_async_context(Client(transport, mode="legacy", **options))
            with limited():
                yield client


@contextlib.asynccontextmanager
async def over_lines(
    server: Any, *, spec_version: str = LATEST_HANDSHAKE_VERSION, **options: Any
) -> AsyncIterator[Client]:
    connected()
    app = server.streamable_http_app(transport_security=UNGUARDED)
    behind_gateway = PATH.startswith("gateway")
    async with contextlib.AsyncExitStack() as stack:
        entry, lines = {}, ("127.0.0.1", 0)
        if behind_gateway:
            await stack.enter_async_context(server.session_manager.run())
            entry = {
                "type": "http",
                "url": await stack.enter_async_context(listening(app)) + "/mcp",
            }
        else:
            lines = "127.0.0.1", await stack.enter_async_context(serving_lines(server))
        port = await stack.enter_async_context(through_lines(entry, lines))
        transport = lines_client("127.0.0.1", port)
        mode = _mode(spec_version)
        client = await stack.enter_async_context(Client(transport, mode=mode, **options))
        with limited():
            yield client


def _mode(version: str) -> Any:
    return version if version in MODERN_PROTOCOL_VERSIONS else "legacy"


# JSON lines over sockets, with the SDK's streams


@contextlib.asynccontextmanager
async def serving_lines(server: Any) -> AsyncIterator[int]:
    """Serve each connection with the SDK's own stdio loop, and yield the port."""
    lowlevel = server._lowlevel_server if isinstance(server, MCPServer) else server
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _streams(reader, writer) as (read, write):
            await lowlevel.run(read, write, lowlevel.create_initialization_options())

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 26)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        running = list(tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@contextlib.asynccontextmanager
async def lines_client(host: str, port: int) -> AsyncIterator[Any]:
    """Connect a transport for the SDK's `Client`."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 26)
    async with _streams(reader, writer) as streams:
        yield streams


@contextlib.asynccontextmanager
async def _streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[Any]:
    """Yield the pair of streams that both ends of the SDK expect."""
    to_us, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_us = anyio.create_memory_object_stream[SessionMessage](0)

    async def receive() -> None:
        async with to_us:
            with contextlib.suppress(ConnectionError, anyio.BrokenResourceError):
                async for line in reader:
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError as exc:
                        await to_us.send(exc)
                    else:
                        await to_us.send(SessionMessage(message))

    async def send() -> None:
        async with from_us:
            with contextlib.suppress(ConnectionError):
                async for sent in from_us:
                    text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(text.encode() + b"\n")
                    await writer.drain()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        tasks.start_soon(send)
        try:
            async with read, write:
                yield read, write
        finally:
            tasks.cancel_scope.cancel()
            writer.close()
            with contextlib.suppress(ConnectionError), anyio.CancelScope(shield=True):
                await writer.wait_closed()
