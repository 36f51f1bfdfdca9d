"""Messages that are answered outside any connection."""

from typing import Any

import pytest

from fairlead import MCPServer
from tests.support.in_memory_client import META, ask


@pytest.mark.covers("SRV-07")
async def test_single_messages_without_any_connection() -> None:
    server = MCPServer("s")

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    answer = await ask(server, "tools/call", call)
    assert answer == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [{"type": "text", "text": "3"}]},
    }
    assert await server.handle_request({"jsonrpc": "2.0", "method": "notifications/x"}) is None
    invalid = await server.handle_request({"jsonrpc": "2.0", "id": "q", "method": 1})
    assert invalid is not None
    assert (invalid["id"], invalid["error"]["code"]) == ("q", -32600)
    stateless = await ask(server, "tools/call", {**call, "_meta": META})
    assert stateless["result"]["resultType"] == "complete"
    assert (await ask(server, "ping"))["result"] == {}


@pytest.mark.parametrize(
    ("message", "request_id", "code", "text"),
    [
        (
            [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
            None,
            -32600,
            "Send one message at a time",
        ),
        (
            {
                "jsonrpc": "2.0",
                "id": 7,
                "method": "tools/list",
                "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "1999"}},
            },
            7,
            -32602,
            "_meta lacks io.modelcontextprotocol/clientCapabilities (an object)",
        ),
        (
            {"jsonrpc": "2.0", "id": 7, "method": "no/such"},
            7,
            -32601,
            "Method not found: no/such",
        ),
    ],
    ids=["batch", "malformed", "unknown"],
)
async def test_a_message_that_is_refused_is_answered_with_the_reason(
    message: Any, request_id: int | None, code: int, text: str
) -> None:
    answer = await MCPServer("s").handle_request(message)
    assert answer is not None
    assert answer["id"] == request_id
    assert (answer["error"]["code"], answer["error"]["message"]) == (code, text)
