"""FastMCP's tests over real sockets, directly or through Fairlead.

Its clients reach a server object through `FastMCPTransport`. Here that transport serves the object
over Streamable HTTP with FastMCP's own application, and connects with the SDK's own client.
"""

import contextlib
import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp.client.transports.base import TransportOptions
from fastmcp.client.transports.memory import FastMCPTransport
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from .paths import http_client, listening, through
from .plugin import ERA, connected, limited, select


@contextlib.asynccontextmanager
async def connect_session(
    self: FastMCPTransport,
    *,
    transport_options: TransportOptions | None = None,
    **session_kwargs: Any,
) -> AsyncIterator[Any]:
    connected()
    options = transport_options or TransportOptions()
    if isinstance(self.server, MCPServer):
        app: Any = self.server.streamable_http_app()
    else:
        app = self.server.http_app(path="/mcp")
    async with (
        app.router.lifespan_context(app),
        listening(app) as origin,
        through({"type": "http", "url": f"{origin}/mcp"}) as url,
        http_client() as client,
        streamable_http_client(url, http_client=client) as (read, write),
        options.session_class(read, write, **session_kwargs) as session,
    ):
        with limited():
            yield session


FastMCPTransport.connect_session = connect_session  # type: ignore[method-assign]
# With `legacy_only`, a client without its own `mode` sends `initialize`.
FastMCPTransport.legacy_only = ERA == "handshake"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    select(items, _may_connect)


def _may_connect(item: pytest.Item) -> bool:
    """Return True if the source of a test creates a client; other tests are not run."""
    function = getattr(item, "function", None)
    try:
        return function is not None and "Client(" in inspect.getsource(function)
    except OSError:
        return False
