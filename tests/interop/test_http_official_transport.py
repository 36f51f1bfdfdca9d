"""Our HTTP channels connected to servers of the official SDK."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead.errors import HttpError, RpcError
from fairlead.peer import Peer
from fairlead.transport.http.client.http_channel import HttpChannel
from fairlead.transport.http.client.negotiation import open_http
from fairlead.transport.http.client.one_shot import call_mcp
from tests.support.interop.official_http_servers import make_server, on_uvicorn
from tests.support.scripted_http_server import Host, connected, peer_over, shake_hands

# Roots are deprecated but still supported.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture(scope="module")
def sse_url() -> Iterator[str]:
    with on_uvicorn(make_server().streamable_http_app()) as url:
        yield url  # a URL without a path means /mcp


@pytest.fixture(scope="module")
def json_url() -> Iterator[str]:
    with on_uvicorn(make_server().streamable_http_app(json_response=True)) as url:
        yield f"{url}/mcp"


@pytest.fixture(scope="module")
def legacy_url() -> Iterator[str]:
    with on_uvicorn(make_server().sse_app()) as url:
        yield f"{url}/sse"


@pytest.fixture(params=["sse_url", "json_url"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


async def call(peer: Peer, name: str, **arguments: Any) -> str:
    result = await peer.request("tools/call", {"name": name, "arguments": arguments})
    return json.loads(bytes(result))["content"][0]["text"]  # type: ignore[no-any-return]


@pytest.mark.covers("HTT-03", "HTT-04", "DEC-22")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_tools_of_the_official_server_are_listed_and_called(url: str, era: str) -> None:
    async with connected(url, era) as (peer, channel):
        tools = json.loads(bytes(await peer.request("tools/list")))["tools"]
        assert {tool["name"] for tool in tools} == {"echo", "count", "whose_roots", "change"}
        texts = ["grüße", *(f"text {n}" for n in range(30))]
        assert await asyncio.gather(*(call(peer, "echo", text=t) for t in texts)) == texts
        assert (channel.session_id is not None) == (era == "handshake")
        with pytest.raises(RpcError):
            await peer.request("no/such/method")


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_progress_from_the_official_server_arrives_before_the_response(
    sse_url: str, era: str
) -> None:
    seen: list[float] = []
    async with connected(sse_url, era) as (peer, _):
        params = {"name": "count", "arguments": {"to": 3}}
        await peer.request(
            "tools/call", params, on_progress=lambda progress, total, message: seen.append(progress)
        )
        assert seen == [1, 2, 3]


@pytest.mark.covers("HTT-15")
async def test_the_official_server_may_send_requests_during_a_call(sse_url: str) -> None:
    async with connected(sse_url) as (peer, _):
        assert await call(peer, "whose_roots") == "0 roots"


@pytest.mark.covers("HTT-13")
async def test_unsolicited_notifications_from_the_official_server_are_received(
    sse_url: str,
) -> None:
    host = Host()
    async with connected(sse_url, host=host) as (peer, _):
        assert await call(peer, "change") == "changed"
        told = await host.told.get()
        assert told.method == "notifications/tools/list_changed"


@pytest.mark.covers("HTT-08")
async def test_a_session_ended_by_the_official_server_is_renewed(url: str) -> None:
    async with connected(url) as (peer, channel):
        first = channel.session_id
        channel._teardown.end(channel.session_id)
        await channel._teardown.wait()
        assert await asyncio.gather(*(call(peer, "echo", text=str(n)) for n in range(5))) == [
            *"01234"
        ]
        assert channel.session_id not in (None, first)


@pytest.mark.covers("HTT-09")
async def test_closing_the_channel_ends_the_session_at_the_official_server(url: str) -> None:
    async with connected(url) as (_, channel):
        session = channel.session_id
    with pytest.raises(HttpError, match="MCP request failed: 404") as refused:
        await call_mcp(url, "tools/list", session_id=session)
    assert refused.value.status == 404


@pytest.mark.covers("SSE-03", "DEC-09")
async def test_the_http_sse_transport_of_2024_11_05_is_supported(legacy_url: str) -> None:
    host = Host()
    channel = await open_http(legacy_url, mode="sse")
    async with peer_over(channel, host) as peer:
        await shake_hands(peer, "2024-11-05")
        texts = [f"text {n}" for n in range(20)]
        assert await asyncio.gather(*(call(peer, "echo", text=t) for t in texts)) == texts
        assert await call(peer, "whose_roots") == "0 roots"
        assert await call(peer, "change") == "changed"
        assert (await host.told.get()).method == "notifications/tools/list_changed"


@pytest.mark.covers("DEC-09")
async def test_mode_sse_falls_back_to_streamable_http(sse_url: str) -> None:
    channel = await open_http(sse_url, mode="sse")
    assert isinstance(channel, HttpChannel)
    async with peer_over(channel) as peer:
        await shake_hands(peer)
        assert await call(peer, "echo", text="x") == "x"


@pytest.mark.covers("RPC-14")
async def test_call_mcp_sends_a_single_request_without_a_client(url: str) -> None:
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    opened = await call_mcp(url, "initialize", params)
    assert opened["result"]["serverInfo"]["name"] == "official"
    assert opened.session_id
    listed = await call_mcp(url, "tools/list", session_id=opened.session_id)
    assert len(listed["result"]["tools"]) == 4
    assert listed.session_id == opened.session_id
    refused = await call_mcp(url, "no/such", session_id=opened.session_id)
    assert isinstance(refused["error"]["code"], int)
