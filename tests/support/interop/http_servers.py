"""The servers of `server_processes`, served over HTTP."""

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
# Kinds of connections to our server: JSON responses where possible ("auto"), only event
# streams ("events"), or HTTP+SSE ("sse").
OURS = [("auto", era) for era in ERAS] + [("events", era) for era in ERAS]
OURS += [("sse", NEWEST_HANDSHAKE)]
# Kinds of connections of our client by what a server can send during a call: messages before
# the response (`TALKATIVE`), or only the response (`TERSE`).
TALKATIVE = [("events", era) for era in ERAS] + [("sse", NEWEST_HANDSHAKE)]
TERSE = [("json", era) for era in ERAS] + [("stateless", NEWEST_HANDSHAKE)]


@contextlib.contextmanager
def served(name: str, *arguments: str) -> Iterator[str]:
    """Run one of the HTTP servers in `servers/` and yield its URL."""
    with started(command(name, *arguments)) as url:
        yield url


@contextlib.contextmanager
def started(program: list[str], env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a program that prints its URL and ends when its stdin is closed."""
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
            assert url, "the program has not started"
            yield url
        finally:
            process.stdin.close()
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def port_of(url: str) -> str:
    """Return the port of a URL, to start a server on the same port again."""
    return url.rpartition(":")[2]


@contextlib.contextmanager
def our_addresses() -> Iterator[dict[str, str]]:
    """Run our server with all features and yield its URLs by kind of connection."""
    with served("ours_http", "auto") as auto, served("ours_http", "sse") as events:
        yield {"auto": f"{auto}/mcp", "events": f"{events}/mcp", "sse": f"{auto}/sse"}


@contextlib.contextmanager
def our_network_visit(url: str, revision: Revision) -> Iterator[Stage[MCPClient]]:
    """Connect our client and yield it with a host that answers every server request."""
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
    """Connect our client to the server at `url`."""
    config = MCPClientConfig(protocol_version=version, timeout_seconds=LIMIT)
    connecting = MCPClient.connect_http(url, config, mode=mode, **settings)
    async with asyncio.timeout(limit), connecting as client:
        yield client
