"""Messages that are answered outside any connection."""

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
