"""FastMCP over HTTP: the tests of `test_fastmcp.py` with other connections.

FastMCP's client uses our server over Streamable HTTP, with JSON and with streams, and over
HTTP+SSE; our client uses FastMCP's server over each of its transports.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import SSETransport, StreamableHttpTransport

from fairlead import MCPClient
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from tests.interop.test_fastmcp import *  # noqa: F403 - runs all tests with other fixtures
from tests.support.interop import client_features as visits
from tests.support.interop.http_servers import (
    OURS,
    TALKATIVE,
    TERSE,
    our_addresses,
    our_network_visit,
    served,
)
from tests.support.interop.server_processes import LIMIT, Host, Stage, shake_hands

# FastMCP's client with our server


@pytest.fixture(scope="module")
def ours() -> Iterator[dict[str, str]]:
    """Run our server with all features and yield its URLs by kind of connection."""
    with our_addresses() as addresses:
        yield addresses


@pytest.fixture(scope="module", params=OURS, ids="-".join)
def guest(request: pytest.FixtureRequest, ours: dict[str, str]) -> Iterator[Stage[Client[Any]]]:
    """Connect FastMCP's client to our server, with a host that answers every request."""
    way, revision = request.param
    host = Host()
    connecting = arriving(ours[way], revision, host)
    with Stage[Client[Any]](revision, host).connected(connecting) as stage:
        stage.way = way
        yield stage


@contextlib.asynccontextmanager
async def arriving(url: str, revision: Revision, host: Host) -> AsyncIterator[Client[Any]]:
    async def on_elicit(message: str, _: object, params: Any, __: object) -> ElicitResult[Any]:
        host.asked.append(params)
        return ElicitResult(**await host.answer(params.mode))

    async def on_sample(messages: list[Any], params: Any, _: object) -> str:
        host.asked.append(params)
        await host.decide()
        return "four"

    async def on_log(message: Any) -> None:
        host.hear((message.level, message.logger, message.data))

    async def on_message(message: Any) -> None:
        host.hear((message.method, getattr(message.params, "uri", None)))

    transport = SSETransport if url.endswith("/sse") else StreamableHttpTransport
    client = Client(
        transport(url),
        mode="auto" if revision.stateless else "legacy",
        auto_initialize=revision.stateless or revision == NEWEST_HANDSHAKE,
        elicitation_handler=on_elicit,
        sampling_handler=on_sample,
        roots=lambda _: [host.folder],
        log_handler=on_log,
        message_handler=on_message,
        timeout=LIMIT,
    )
    async with client:
        if not client.auto_initialize:
            await shake_hands(client.session, revision)
        yield client


# Our client with FastMCP's server


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    """Run FastMCP's server over every transport."""
    with served("fastmcp_http") as url:
        yield url


@pytest.fixture(scope="module", params=TALKATIVE, ids="-".join)
def visit(request: pytest.FixtureRequest, theirs: str) -> Iterator[Stage[MCPClient]]:
    """Connect our client to FastMCP's server on a transport that allows messages during a call."""
    way, revision = request.param
    with our_network_visit(f"{theirs}/{way}", revision) as stage:
        yield stage


@pytest.fixture(scope="module", params=TERSE, ids="-".join)
def terse(request: pytest.FixtureRequest, theirs: str) -> Iterator[Stage[MCPClient]]:
    """Connect our client to FastMCP's server with JSON responses or without sessions."""
    way, revision = request.param
    with our_network_visit(f"{theirs}/{way}", revision) as stage:
        yield stage


async def test_fastmcp_without_streams_or_sessions_has_the_same_features(
    terse: Stage[MCPClient],
) -> None:
    await test_fairlead_client_uses_tools_resources_and_prompts_of_fastmcp(terse)  # noqa: F405
    await test_fairlead_client_receives_errors_from_fastmcp(terse)  # noqa: F405
    await visits.read_templates(terse)
    await visits.complete_arguments(terse)
    await visits.get_structured_content(terse)


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_fastmcp_without_streams_or_sessions_may_elicit_in_the_stateless_era(
    terse: Stage[MCPClient],
) -> None:
    if terse.revision.stateless:
        await visits.fill_in_forms(terse)
        terse.host.reset()
        await visits.lend_model_and_folders(terse)
    else:
        assert "no back-channel" in (await terse.client.call("ask")).text
