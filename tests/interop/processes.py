"""The programs that the tests here talk to, and how to reach them."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp_types import (
    ClientCapabilities,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeRequestParams,
    InitializeResult,
)

from fairlead import MCPClient, MCPClientConfig
from fairlead.protocol.revisions import Revision

SERVERS = Path(__file__).parent / "servers"
LIMIT = 20.0  # seconds for everything that is done with one process
PIXEL = "iVBORw0KGgoAAAANSUhEUg=="


def command(name: str, *arguments: str) -> list[str]:
    """How to start one of the servers in `servers/`."""
    return [sys.executable, str(SERVERS / f"{name}.py"), *arguments]


def parameters(name: str, *arguments: str) -> StdioServerParameters:
    """The same for the official SDK."""
    program, *rest = command(name, *arguments)
    return StdioServerParameters(command=program, args=rest)


@contextlib.asynccontextmanager
async def official_session(
    revision: Revision, name: str = "ours", **settings: Any
) -> AsyncIterator[ClientSession]:
    """A session of the official SDK that has opened the conversation with exactly that revision.

    Its own `initialize()` only ever proposes the newest one, so we send the others ourselves.
    """
    async with (
        asyncio.timeout(LIMIT),
        stdio_client(parameters(name), errlog=sys.__stderr__) as (read, write),
        ClientSession(read, write, read_timeout_seconds=LIMIT, **settings) as session,
    ):
        if revision.stateless:
            await session.discover()
        else:
            await _shake_hands(session, revision)
        assert session.protocol_version == revision
        yield session


async def _shake_hands(session: ClientSession, revision: Revision) -> None:
    params = InitializeRequestParams(
        protocol_version=revision.value,
        capabilities=ClientCapabilities(),
        client_info=Implementation(name="official", version="2"),
    )
    session.adopt(await session.send_request(InitializeRequest(params=params), InitializeResult))
    await session.send_notification(InitializedNotification())


@contextlib.asynccontextmanager
async def our_client(
    name: str, version: str = "auto", *arguments: str, **settings: Any
) -> AsyncIterator[MCPClient]:
    """Our client, connected to one of the servers."""
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    connecting = MCPClient.connect_stdio(command(name, *arguments), config, **settings)
    async with asyncio.timeout(LIMIT), connecting as client:
        yield client
