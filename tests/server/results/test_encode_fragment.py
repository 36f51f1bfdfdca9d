"""Tests of result fragments that a tool sends before its result."""

from typing import Any

import pytest
from msgspec import Raw

from fairlead import Context, MCPServer
from fairlead.interceptor import Exchange
from fairlead.interceptor.direct_edge import NullReplyPath, direct_exchange
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.protocol.types.content import ImageContent, TextContent
from fairlead.server.context.context import Context as ServerContext
from fairlead.wire import Request
from tests.support.raw_server_client import META, wire_to


def server() -> MCPServer:
    made = MCPServer("s")

    @made.tool()
    async def write(ctx: Context) -> str:
        await ctx.fragment("once ")
        await ctx.fragment(TextContent(text="upon "))
        await ctx.progress(10, 20)
        await ctx.fragment(ImageContent(data="AAAA", mime_type="image/png"))
        await ctx.fragment(["a time", ImageContent(data="AAAA", mime_type="image/png")])
        return "once upon a time"

    @made.tool()
    def write_in_thread(ctx: Context) -> str:
        ctx.wait(ctx.fragment({"part": 1}))
        return "whole"

    return made


@pytest.mark.covers("SRV-28", "SRV-35")
@pytest.mark.parametrize("meta", [{}, META])
async def test_result_fragments_are_sent_as_progress_if_the_caller_requests_progress(
    meta: dict[str, Any],
) -> None:
    async with wire_to(server()) as wire:
        if not meta:
            await wire.greet()
        wire.send("tools/call", {"name": "write", "_meta": {"progressToken": "p", **meta}}, id=1)
        heard = [(await wire.next())["params"] for _ in range(5)]
        assert (await wire.next())["result"]["content"][0]["text"] == "once upon a time"
        assert heard == [
            {"progressToken": "p", "progress": 1, "message": "once "},
            {"progressToken": "p", "progress": 2, "message": "upon "},
            {"progressToken": "p", "progress": 10, "total": 20},
            {"progressToken": "p", "progress": 11},
            {"progressToken": "p", "progress": 12, "message": "a time"},
        ]
        call = {"name": "write_in_thread", "_meta": {"progressToken": "p", **meta}}
        wire.send("tools/call", call, id=2)
        assert (await wire.next())["params"]["message"] == '{"part":1}'
        assert (await wire.next())["id"] == 2


@pytest.mark.covers("SRV-35")
async def test_result_fragments_are_dropped_if_the_request_has_no_progress_token() -> None:
    async with wire_to(server()) as wire:
        answer = await wire.ask("tools/call", {"name": "write", "_meta": META})
        assert answer["result"]["content"][0]["text"] == "once upon a time"


@pytest.mark.covers("SRV-35")
async def test_result_fragments_are_sent_on_reply_paths_that_support_them() -> None:
    class PartsEdge(NullReplyPath):
        def __init__(self) -> None:
            super().__init__(ANONYMOUS)
            self.parts: list[bytes] = []

        async def fragment(self, exchange: Exchange, content: Raw) -> None:
            self.parts.append(bytes(content))

    message = Request(1, "tools/call", Raw(b'{"_meta":{"progressToken":1}}'))
    exchange = direct_exchange(message, Caller(NEWEST_HANDSHAKE, False, ANONYMOUS))
    exchange.edge = edge = PartsEdge()
    context = ServerContext(exchange)
    await context.fragment("a")
    await context.fragment(ImageContent(data="AAAA", mime_type="image/png"))
    assert edge.parts == [
        b'[{"type":"text","text":"a"}]',
        b'[{"type":"image","data":"AAAA","mimeType":"image/png"}]',
    ]
