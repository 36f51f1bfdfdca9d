"""The same programs over the network."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Literal

from fairlead import MCPClient, MCPClientConfig
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from tests.support.interop.server_processes import LIMIT, Host, Stage, answering, command

ERAS = (NEWEST_HANDSHAKE, NEWEST)
# How our server is visited: it answers with JSON if it can, always with events, or over HTTP+SSE.
OURS = [("auto", era) for era in ERAS] + [("events", era) for era in ERAS]
OURS += [("sse", NEWEST_HANDSHAKE)]
# How our client visits, where the server can tell and ask in the middle of a call, and where not.
TALKATIVE = [("events", era) for era in ERAS] + [("sse", NEWEST_HANDSHAKE)]
TERSE = [("json", era) for era in ERAS] + [("stateless", NEWEST_HANDSHAKE)]


@contextlib.contextmanager
def served(name: str, *arguments: str) -> Iterator[str]:
    """One of the servers in `servers/` that are served over HTTP, and its address."""
    with started(command(name, *arguments)) as url:
        yield url


@contextlib.contextmanager
def started(program: list[str], env: Mapping[str, str] | None = None) -> Iterator[str]:
    """A program that prints where it can be reached, and ends when its stdin does."""
    with subprocess.Popen(
        program,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=sys.__stderr__,
        text=True,
        env={**os.environ, **(env or {})},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url, "it has not started"
            yield url
        finally:
            process.stdin.close()
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def port_of(url: str) -> str:
    """Where to start a server once more."""
    return url.rpartition(":")[2]


@contextlib.contextmanager
def our_addresses() -> Iterator[dict[str, str]]:
    """Our server that has everything, by the way in which it is visited."""
    with served("ours_http", "auto") as auto, served("ours_http", "sse") as events:
        yield {"auto": f"{auto}/mcp", "events": f"{events}/mcp", "sse": f"{auto}/sse"}


@contextlib.contextmanager
def our_network_visit(url: str, revision: Revision) -> Iterator[Stage[MCPClient]]:
    """Our client on a stage at that address, with a host that answers everything."""
    host = Host()
    mode: Literal["http", "sse"] = "sse" if url.endswith("/sse") else "http"
    settings = answering(host)
    connecting = our_network_client(url, revision.value, mode=mode, limit=None, **settings)
    with Stage[MCPClient](revision, host).connected(connecting) as stage:
        assert stage.client.protocol_version == revision
        stage.way = url.rpartition("/")[2]
        yield stage


@contextlib.asynccontextmanager
async def our_network_client(
    url: str,
    version: str = "auto",
    *,
    mode: Literal["http", "sse"] = "http",
    limit: float | None = LIMIT,
    **settings: Any,
) -> AsyncIterator[MCPClient]:
    """Our client, connected to a server at that address."""
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    connecting = MCPClient.connect_http(url, config, mode=mode, **settings)
    async with asyncio.timeout(limit), connecting as client:
        yield client
