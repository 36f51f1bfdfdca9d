"""Tests of call arguments in HTTP headers, and of tools with invalid header annotations."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.client import RequestOptions, create_http_transport
from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import ConnectFailed
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.server import Header
from fairlead.wire import RequestId

HANDSHAKE = MCPClientConfig(protocol_version="2025-11-25")


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


class Door:
    """A server interceptor that records requests and may change responses."""

    def __init__(self) -> None:
        self.came: list[tuple[str, Mapping[str, str]]] = []
        self.tools: list[dict[str, Any]] = []  # listed in addition to the existing tools
        self.refusals: dict[str, list[RpcError]] = {}  # errors for the next requests, by method

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.came.append((exchange.method, exchange.transport.headers or {}))
        if refusals := self.refusals.get(exchange.method):
            raise refusals.pop(0)
        answer = await proceed(exchange)
        if exchange.method == "tools/list":
            result = json.loads(bytes(answer or b"{}"))
            return json.dumps({**result, "tools": result["tools"] + self.tools}).encode()
        return answer

    def methods(self) -> list[str]:
        return [method for method, _ in self.came]

    def calls(self) -> list[dict[str, str]]:
        """Return the argument headers of each call."""
        return [
            {name: value for name, value in headers.items() if name.startswith("mcp-param-")}
            for method, headers in self.came
            if method == "tools/call"
        ]


def office(door: Door) -> MCPServer:
    server = MCPServer("office", interceptors=[door])

    @server.tool()
    def sales(region: Annotated[str, Header("Region")], year: int = 2026) -> str:
        return f"{region} {year}"

    return server


def marked(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


@contextlib.asynccontextmanager
async def serving(server: MCPServer) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_arguments_with_a_header_annotation_are_sent_in_headers() -> None:
    door = Door()
    async with serving(office(door)) as url, MCPClient.connect_http(url) as client:
        await client.tools()
        assert (await client.call("sales", {"region": "zürich", "year": 1})).text == "zürich 1"
        await client.call_tool("sales", {"region": "north"})
    assert door.calls() == [
        {"mcp-param-region": "=?base64?esO8cmljaA==?="},
        {"mcp-param-region": "north"},
    ]


async def test_handshake_requests_have_no_argument_headers() -> None:
    door = Door()
    door.tools = [marked("odd", data={"type": "object", "x-mcp-header": "Data"})]
    async with serving(office(door)) as url, MCPClient.connect_http(url, HANDSHAKE) as client:
        assert [tool.name for tool in await client.tools()] == ["sales", "odd"]
        await client.call("sales", {"region": "north"})
    assert door.calls() == [{}]


async def test_tools_with_invalid_header_annotations_are_hidden_over_http(
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Door()
    door.tools = [
        marked("empty", value={"type": "string", "x-mcp-header": ""}),
        marked("fine", value={"type": "boolean", "x-mcp-header": "Value"}),
        marked("deep", value={"type": "array", "items": {"type": "string", "x-mcp-header": "V"}}),
    ]
    server = office(door)
    with caplog.at_level(logging.WARNING, "fairlead.client"):
        async with serving(server) as url, MCPClient.connect_http(url) as client:
            assert [tool["name"] for tool in await client.list_tools()] == ["sales", "fine"]
            assert [tool.name for tool in await client.tools()] == ["sales", "fine"]
            skipped = client.skipped[:2]
    assert skipped == [
        "tools/list: 'empty' cannot be called over HTTP: value: '' is not a valid header name",
        "tools/list: 'deep' cannot be called over HTTP: "
        "value: x-mcp-header is not allowed under 'items'",
    ]
    assert "'empty' cannot be called over HTTP" in caplog.text


async def test_tools_with_invalid_header_annotations_are_listed_without_http() -> None:
    door = Door()
    door.tools = [marked("empty", value={"type": "string", "x-mcp-header": ""})]
    async with MCPClient.connect_inprocess(office(door)) as client:
        assert client.protocol_version == "2026-07-28"
        assert [tool.name for tool in await client.tools()] == ["sales", "empty"]


async def test_a_call_without_required_headers_is_repeated_after_a_new_list() -> None:
    door = Door()
    async with serving(office(door)) as url, MCPClient.connect_http(url) as client:
        assert (await client.call("sales", {"region": "north"})).text == "north 2026"
        assert (await client.call("sales", {"region": "south"})).text == "south 2026"
    assert door.methods()[-3:] == ["tools/list", "tools/call", "tools/call"]
    assert door.calls()[-2:] == [{"mcp-param-region": "north"}, {"mcp-param-region": "south"}]


async def test_a_cached_tool_list_does_not_restore_outdated_headers() -> None:
    door = Door()
    server = MCPServer("office", interceptors=[door], cache_ttl=60)

    def plain(region: str) -> str:
        return region

    def mirrored(region: Annotated[str, Header("Region")]) -> str:
        return region

    server.tool(name="sales")(plain)
    async with serving(server) as url, MCPClient.connect_http(url) as client:
        await client.tools()
        await client.call("sales", {"region": "north"})
        server.remove_tool("sales")
        server.tool(name="sales")(mirrored)
        await client.call("sales", {"region": "north"})
        lists = door.methods().count("tools/list")
        await client.tools()
        await client.call("sales", {"region": "south"})
    assert door.methods().count("tools/list") == lists
    assert door.calls()[-1] == {"mcp-param-region": "south"}


async def test_a_call_without_required_headers_is_repeated_only_once() -> None:
    door = Door()
    async with serving(office(door)) as url, MCPClient.connect_http(url) as client:
        await client.tools()
        before = len(door.came)
        door.refusals["tools/call"] = [RpcError(-32020, "no"), RpcError(-32020, "still no")]
        with pytest.raises(RpcError, match="still no"):
            await client.call("sales", {"region": "north"})
    assert door.methods()[before:] == ["tools/call", "tools/list", "tools/call"]


async def test_a_header_mismatch_error_is_raised_if_the_transport_is_not_http() -> None:
    door = Door()
    async with MCPClient.connect_inprocess(office(door)) as client:
        door.refusals["tools/call"] = [RpcError(-32020, "no")]
        with pytest.raises(RpcError, match="no"):
            await client.call("sales", {"region": "north"})
    assert door.methods().count("tools/call") == 1


async def test_a_refused_discovery_that_names_a_supported_version_is_repeated_once() -> None:
    door = Door()
    refusal = RpcError(-32022, "no", {"supported": ["2026-07-28"], "requested": "2026-07-28"})
    async with serving(office(door)) as url:
        door.refusals["server/discover"] = [refusal]
        async with MCPClient.connect_http(url) as client:
            assert client.protocol_version == "2026-07-28"
        assert door.methods() == ["server/discover", "server/discover"]
        known_eras.clear()
        door.refusals["server/discover"] = [refusal, refusal]
        with pytest.raises(ConnectFailed, match="the server supports only 2026-07-28"):
            await MCPClient.connect_http(url)


@pytest.mark.covers("TRN-02")
async def test_a_call_sends_additional_headers_given_in_its_options() -> None:
    door = Door()
    async with (
        serving(office(door)) as url,
        MCPClient.connect_http(url, headers={"X-Team": "red"}) as client,
    ):
        await client.tools()
        for headers in ({"x-team": "blue"}, None):
            await client.call("sales", {"region": "north"}, headers=headers)
        await client.call_tool(
            "sales", {"region": "north"}, errors="envelope", headers={"X-Team": "green"}
        )
    teams = [headers["x-team"] for method, headers in door.came if method == "tools/call"]
    assert teams == ["blue", "red", "green"]
    async with MCPClient.connect_inprocess(office(door)) as client:
        called = await client.call("sales", {"region": "north"}, headers={"X-Team": "blue"})
        assert (
            called.text == "north 2026"
        )  # an in-process connection has no HTTP headers, so the option is ignored


@pytest.mark.covers("TRN-02")
async def test_a_transport_request_sends_additional_headers_given_in_its_options() -> None:
    door = Door()
    async with (
        serving(office(door)) as url,
        await create_http_transport({"type": "http", "url": url}) as transport,
    ):
        ids: list[RequestId] = []
        options = RequestOptions(headers={"X-Team": "blue"}, on_sent=ids.append)
        await transport.request("server/discover", options=options)
        await transport.request("server/discover")
    assert [headers.get("x-team") for _, headers in door.came] == ["blue", None]
    assert len(ids) == 1
