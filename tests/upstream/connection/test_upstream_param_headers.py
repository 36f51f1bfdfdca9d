"""Arguments that are repeated in headers, when a relay forwards the request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.gateway import Relay
from fairlead.protocol.envelope import TransportContext
from fairlead.protocol.revisions import Revision
from fairlead.server import Header
from fairlead.upstream.connection.upstream_param_headers import (
    ServerParamHeaders,
    sends_param_headers,
)
from tests.support.http_server import LIMIT, serving
from tests.support.single_exchange import exchange

HEADER_MISMATCH = -32020


def make() -> MCPServer:
    server = MCPServer("behind", rate_limit_rate=0, page_size=1)

    @server.tool()
    def first() -> str:
        return "of two pages"

    @server.tool()
    def where(region: Annotated[str, "Where", Header("Region")] = "") -> str:
        return f"in {region}"

    return server


@contextlib.asynccontextmanager
async def relayed(behind: str, era: str = "auto") -> AsyncIterator[Relay]:
    """Return a relay to the server, over HTTP or in memory."""
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(LIMIT))
        target: Any = make()
        if behind == "http":
            target = {"type": "http", "url": (await stack.enter_async_context(serving(target))).url}
        relay = Relay(target, era=era)  # type: ignore[arg-type]
        stack.push_async_callback(relay.close)
        yield relay


@pytest.mark.parametrize("listed", [True, False], ids=["after-a-list", "at-once"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_client_without_headers_can_call_a_server_that_requires_them(
    version: str, era: str, listed: bool
) -> None:
    config = MCPClientConfig(protocol_version=version)
    async with (
        relayed("http", era) as relay,
        MCPClient.connect_inprocess(relay, config) as client,
    ):
        if listed:
            await client.tools()
        assert (await client.call("where", {"region": "zürich"})).text == "in zürich"


async def test_headers_of_a_client_are_forwarded_before_tools_were_listed() -> None:
    call = {"name": "where", "arguments": {"region": "north"}}
    async with relayed("http") as relay, serving(relay) as edge:  # type: ignore[arg-type]
        good = await edge.stateless("tools/call", call, {"Mcp-Param-Region": "north"})
        wrong = await edge.stateless("tools/call", call, {"Mcp-Param-Region": "south"})
        missing = await edge.stateless("tools/call", call)
    assert good.result["content"][0]["text"] == "in north"
    assert [(a.status, a.error) for a in (wrong, missing)] == [(400, HEADER_MISMATCH)] * 2


@pytest.mark.parametrize(
    ("behind", "era"), [("memory", "auto"), ("http", "handshake"), ("http", "stateless")]
)
async def test_headers_are_compared_with_the_arguments_for_every_server(
    behind: str, era: str
) -> None:
    """Headers are compared even for servers without HTTP, because routers may rely on them."""
    call = {"name": "where", "arguments": {"region": "north"}}
    async with relayed(behind, era) as relay, serving(relay) as edge:  # type: ignore[arg-type]
        page = (await edge.stateless("tools/list")).result
        await edge.stateless("tools/list", {"cursor": page["nextCursor"]})
        good = await edge.stateless("tools/call", call, {"Mcp-Param-Region": "north"})
        wrong = await edge.stateless("tools/call", call, {"Mcp-Param-Region": "south"})
        missing = await edge.stateless("tools/call", call)
    assert good.result["content"][0]["text"] == "in north"
    assert [(a.status, a.error) for a in (wrong, missing)] == [(400, HEADER_MISMATCH)] * 2


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_relay_supports_every_revision_for_servers_of_either_era(era: str) -> None:
    async with relayed("http", era) as relay, serving(relay) as edge:  # type: ignore[arg-type]
        found = (await edge.stateless("server/discover")).result
    assert set(found["supportedVersions"]) == {revision.value for revision in Revision}
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "behind"


async def test_the_page_after_an_empty_cursor_is_requested() -> None:
    schema = {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    tool = {"name": "where", "inputSchema": {"type": "object", **schema}}
    pages: dict[str | None, Any] = {
        None: {"tools": [], "nextCursor": ""},
        "": {"tools": [tool], "nextCursor": ""},
    }

    class ListPeer:
        async def request(self, method: str, params: dict[str, str] | None, **_: float) -> Raw:
            return Raw(msgspec.json.encode(pages[(params or {}).get("cursor")]))

    marks = ServerParamHeaders()
    async with asyncio.timeout(LIMIT):
        await marks.ask(ListPeer(), LIMIT)  # type: ignore[arg-type]  # has the used methods
    assert [mark.header for mark in marks.of("where")] == ["Region"]


class PagingPeer:
    """A server whose second page has an empty cursor, which is valid in the stateless era."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.refuses = False

    async def request(self, method: str, params: Any, *, timeout: float) -> Raw:
        self.asked.append((method, params, timeout))
        if self.refuses and params == {"cursor": ""}:
            raise RpcError(-32602, "no such cursor")
        cursors = ["", "2"]
        page: dict[str, Any] = {"tools": []}
        if len(self.asked) <= len(cursors):
            page["nextCursor"] = cursors[len(self.asked) - 1]
        return Raw(msgspec.json.encode(page))


async def test_all_pages_of_a_stateless_server_are_read() -> None:
    peer: Any = PagingPeer()
    await ServerParamHeaders().ask(peer, 3.0)
    assert peer.asked == [
        ("tools/list", None, 3.0),
        ("tools/list", {"cursor": ""}, 3.0),
        ("tools/list", {"cursor": "2"}, 3.0),
    ]
    peer = PagingPeer()
    peer.refuses = True
    with pytest.raises(RpcError, match="no such cursor"):
        await ServerParamHeaders().ask(peer, 3.0)


@pytest.mark.parametrize(
    ("stateless", "transport", "sends"),
    [(True, "http", True), (True, "stdio", False), (False, "http", False)],
)
def test_stateless_http_clients_send_param_headers_themselves(
    stateless: bool, transport: str, sends: bool
) -> None:
    asked = exchange(stateless=stateless)
    asked.transport = TransportContext(transport_type=transport)
    assert sends_param_headers(asked) is sends
