"""Tests of the types of the public API. `make check` checks this file, and `pytest` runs it.

Strict mypy and pyright must infer the type of every name in this file. In a type checker,
`assert_type` fails if a name is missing or has the type `Any`; at run time it has no effect.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

import pytest

import fairlead
from fairlead import (
    Audio,
    Context,
    DeferredMCPTool,
    FairleadError,
    File,
    Image,
    MCPClient,
    MCPClientConfig,
    MCPClientError,
    MCPManager,
    MCPServer,
    MCPServerConfig,
    MCPTool,
    MCPToolCache,
    MCPToolError,
    MCPTransport,
    RpcError,
    discover_and_load_mcp_tools,
    discover_mcp_servers,
    mcp_tool,
)
from fairlead.client import Called, Change, ToolCallResult, call_mcp, parse_sse
from fairlead.gateway import Gateway, Relay
from fairlead.interceptor import Answer, Exchange, Interceptor, Proceed
from fairlead.protocol.types.content import ContentBlock, TextContent
from fairlead.server import Elicited, Header, HttpSettings
from fairlead.server.http_app.app import HttpApp


@dataclass
class Seats:
    count: int
    where: str = "window"


@asynccontextmanager
async def open_counter(server: MCPServer) -> AsyncGenerator[dict[str, int], None]:
    yield {"calls": 0}


class Log:
    """An interceptor."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        self.methods.append(exchange.method)
        return await proceed(exchange)


log = Log()
interceptor: Interceptor = log
config = MCPServerConfig(name="trains")
server = MCPServer(config, lifespan=open_counter, interceptors=[log])


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool("book", annotations={"readOnlyHint": False}, timeout=5.0)
async def book_seats(train: str, ctx: Context, count: Annotated[int, Header("Count")] = 1) -> str:
    asked = await ctx.elicit("Where?", Seats)
    assert_type(asked, Elicited[Seats])
    if asked.action == "accept":
        assert_type(asked.data, Seats)
    else:
        assert_type(asked.data, None)
        assert_type(asked.action, Literal["decline", "cancel"])
    await ctx.progress(1, 1)
    await ctx.info("booked")
    return f"{count} on {train}: {asked.accepted}"


@server.tool()
def plot() -> Image:
    return Image(b"\x89PNG")


@server.tool
def listen() -> list[Audio | File]:
    return [Audio(b"RIFF")]


@server.resource("trains://{number}")
def train_of(number: int) -> dict[str, int]:
    return {"number": number}


@server.prompt()
def ask(topic: str) -> str:
    return f"Tell me about {topic}"


@server.prompt
def ask_again(topic: str) -> str:
    return f"Tell me more about {topic}"


@server.completion("ask", "topic")
def topics(typed: str) -> list[str]:
    return [typed]


@mcp_tool
def marked(text: str) -> str:
    return text


@mcp_tool("other", tags=["x"])
def also_marked(text: str) -> str:
    return text


def test_registration_decorators_keep_the_types_of_functions() -> None:
    assert_type(add(1, 2), int)
    assert_type(plot(), Image)
    assert_type(train_of(7), dict[str, int])
    assert_type(ask("trains"), str)
    assert_type(ask_again("trains"), str)
    assert_type(listen(), list[Audio | File])
    assert_type(topics("a"), list[str])
    assert_type(marked("a"), str)
    assert_type(also_marked("a"), str)
    assert add(1, 2) == 3


def test_lazily_imported_names_have_types() -> None:
    assert_type(fairlead.MCPServer, type[MCPServer])
    assert_type(fairlead.MCPClient, type[MCPClient])
    assert_type(fairlead.MCPManager, type[MCPManager])
    assert_type(fairlead.MCPTool, type[MCPTool])
    assert_type(fairlead.DeferredMCPTool, type[DeferredMCPTool])
    assert_type(fairlead.MCPToolCache, type[MCPToolCache])
    assert_type(fairlead.MCPToolError, type[MCPToolError])
    assert_type(fairlead.RpcError, type[RpcError])
    assert_type(fairlead.MCPClientError, type[FairleadError])
    assert MCPClientError is FairleadError
    assert callable(discover_and_load_mcp_tools)
    assert callable(discover_mcp_servers)
    assert callable(call_mcp)
    assert callable(parse_sse)


def text_of(block: ContentBlock) -> str:
    if block.type == "text":
        assert_type(block, TextContent)
        return block.text
    return block.type


def test_content_blocks_have_their_own_types() -> None:
    assert text_of(TextContent(text="a")) == "a"
    assert text_of(Image(b"").block()) == "image"


def test_misspelt_names_are_type_errors() -> None:
    with pytest.raises(AttributeError):
        _ = fairlead.MCPSever  # type: ignore[attr-defined]


async def test_results_of_a_client_have_types() -> None:
    async with MCPClient.connect_inprocess(server, MCPClientConfig(max_retries=0)) as client:
        assert_type(client, MCPClient)
        assert_type(client.transport.connected, bool)
        transport: MCPTransport = client.transport
        assert transport.connected
        assert_type(client.protocol_version, str | None)
        assert_type(await client.list_tools(), list[dict[str, Any]])
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert_type(result, ToolCallResult)
        assert_type(result.text, str)
        assert_type(result.is_error, bool)
        assert_type(result["content"], Any)
        answer = await client.call_tool("add", {"a": 1, "b": 2}, errors="envelope")
        assert_type(answer, dict[str, Any])
        called = await client.call("add", {"a": 1, "b": 2})
        assert_type(called, Called)
        assert_type(called.is_error, bool)
        assert_type(called.text, str)
        tool = (await client.tools())[0]
        assert_type(tool.name, str)
        contents = await client.read("trains://7")
        assert_type(contents[0].uri, str)
        prompted = await client.prompt("ask", {"topic": "trains"})
        assert prompted.messages
        try:
            await client.call("missing")
        except RpcError as exc:
            assert_type(exc.code, int)
            assert_type(exc.message, str)
    assert "tools/call" in log.methods


async def first_change(client: MCPClient) -> Change | None:
    async with client.changes("tools", uris=["trains://7"]) as changes:
        async for change in changes:
            assert_type(change, Change)
            return change
    return None


async def serve_over_http(started: Callable[[str], None]) -> None:
    app = server.create_http_app(HttpSettings(auth_token="open-sesame"))
    async with app.running() as running:
        assert_type(running, HttpApp)
    await server.run_http(port=0, started=started)


async def use_many() -> None:
    async with MCPManager() as manager:
        report = await manager.connect_servers({"notes": {"command": "notes"}})
        assert_type(report.connected_servers, list[str])
        assert_type(manager.get_tools(), list[MCPTool])
        tool = manager.get_tool("notes_add")
        if tool is not None:
            assert_type(tool.name, str)


def serve_in_place_of_others() -> tuple[Relay, Gateway]:
    return Relay(server, interceptors=[interceptor]), Gateway(MCPManager(), interceptors=[log])
