"""The number of client functions that one warm call enters, as a measure of its cost."""

import sys
from types import FrameType

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer


@pytest.mark.parametrize("version", ["auto", "latest"])
async def test_a_warm_call_enters_few_client_functions(version: str) -> None:
    server = MCPServer("s")

    @server.tool(inline=True)
    def echo(text: str) -> str:
        return text

    entered: list[str] = []

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and "/fairlead/client/" in frame.f_code.co_filename:
            entered.append(frame.f_code.co_name)

    config = MCPClientConfig(protocol_version=version)
    async with MCPClient.connect_inprocess(server, config) as client:
        await client.call_tool("echo", {"text": "x"})
        sys.setprofile(count)
        try:
            await client.call_tool("echo", {"text": "x"})
        finally:
            sys.setprofile(None)
    out, back = ["call_tool", "request", "peer"], ["call_tool", "request", "read_result"]
    assert entered == [*out, *back, *(["expire_stale"] if version == "auto" else [])]
